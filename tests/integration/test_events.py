"""What clients see of a thread: events of real turns, in Postgres and in the broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from graphs.control import ClaimLost
from infra import failpoints
from infra.event_stream import FIELD, stream
from producers import Fleet
from tests.harness import ROOT, Broker, Database, Shop, eventually
from workers import events
from workers.drain import drain
from workers.places import Place
from workers.slot import Slot
from workers.turn import Turn

TALKING = Path(__file__).parents[1] / "graphs" / "talking.py"
CHATS = ("chat", "achat", "plainly", "forgets", "asks", "nested", "fails", "tries_again")
OTHERS = ("busy", "functional")


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    """The refund graph and those of tests/graphs/talking.py."""
    file = tmp_path / "langgraph.json"
    graphs: dict[str, Any] = {n: f"{TALKING}:{n}" for n in (*CHATS, *OTHERS)}
    graphs["refund"] = f"{ROOT}/graphs/refund.py:graph"
    graphs["quiet"] = {"path": f"{TALKING}:chat", "events": "steps"}
    file.write_text(json.dumps({"graphs": graphs}))
    database.register(file)
    return file


def say(fleet: Fleet, slot: Slot, graph: str, text: str, number: int = 1, **more: Any) -> str:
    """One message of a chat, and its turn; gives the thread."""
    message = {"role": "user", "content": text, "id": f"u{number}"}
    given = {"messages": [message], **more}
    if number == 1:
        thread = fleet.submit(graph, "A", given, message_id=f"u{number}").thread_id
    else:
        thread = f"{graph}:A"
        fleet.send(thread, given, message_id=f"u{number}")
    drain(slot, thread)
    flushed(slot)
    return thread


def durable(database: Database, thread_id: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(id, type, data) of the thread's events in Postgres, in order."""
    rows = database.fetch(
        "SELECT epoch, n, type, payload FROM fleet.events WHERE thread_id = %s ORDER BY epoch, n",
        thread_id,
    )
    return [(f"{epoch}-{n}", kind, data) for epoch, n, kind, data in rows]


def streamed(broker: Broker, thread_id: str) -> list[dict[str, Any]]:
    """The events in the thread's stream, in order."""
    found: Any = broker.client.xrange(stream(thread_id))
    return [event for _, fields in found for event in orjson.loads(fields[FIELD.encode()])]


def flushed(slot: Slot) -> None:
    assert slot.publisher.flush(5)


def types(events: Any) -> list[str]:
    return [e["type"] if isinstance(e, dict) else e[1] for e in events]


def test_a_refund_tells_its_steps(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, shop: Shop
) -> None:
    """Durable: what came, what was done, what was asked, how it ended; live the same ids, and
    each turn's beginning."""
    thread = fleet.submit("refund", shop.new_order("1500.00"), {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    fleet.answer(thread, None, "approve")
    drain(slot, thread)
    flushed(slot)
    kept, live = durable(database, thread), streamed(broker, thread)
    assert types(kept) == [
        *("received", "step", "question", "ended"),
        *("received", "step", "step", "step", "ended"),
    ]
    assert types(live) == [
        *("turn", "received", "step", "question", "ended"),
        *("turn", "received", "step", "step", "step", "ended"),
    ]
    assert [i for i, _, _ in kept] == [e["id"] for e in live if e["type"] != "turn"]
    steps = [data for _, kind, data in kept if kind == "step"]
    assert [s["node"] for s in steps] == [
        *("load_order", "require_approval", "process_refund", "notify_user"),
    ]
    assert kept[-1][2]["outcome"] == "done" and kept[-1][2]["status"] == "done"


def of_type(events: Any, kind: str) -> list[dict[str, Any]]:
    """Their data."""
    return [
        e["data"] if isinstance(e, dict) else e[2]
        for e in events
        if (e["type"] if isinstance(e, dict) else e[1]) == kind
    ]


@pytest.mark.parametrize(("graph", "ns"), [("chat", ""), ("achat", ""), ("nested", "desk")])
def test_a_chat_is_streamed_and_kept(
    graph: str, ns: str, slot: Slot, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """Deltas add up to the message, which is durable; what the user said is told once."""
    thread = say(fleet, slot, graph, "hello")
    live, kept = streamed(broker, thread), durable(database, thread)
    (message,) = of_type(kept, "message")
    assert message | {"message_id": ""} == {
        "message_id": "",
        "role": "assistant",
        "text": "You said hello.",
        "node": "answer",
        "ns": ns,
    }
    tokens = of_type(live, "token")
    assert "".join(t["text"] for t in tokens) == "You said hello."
    assert {t["message_id"] for t in tokens} == {message["message_id"]}
    assert of_type(kept, "received")[0]["content"] == "hello"
    assert of_type(kept, "custom")[0] == {"node": "answer", "ns": ns, "data": {"thinking": True}}
    assert of_type(live, "message") == [message]
    say(fleet, slot, graph, "again", 2)
    texts = [m["text"] for m in of_type(durable(database, thread), "message")]
    assert texts == ["You said hello.", "You said again."]


def test_messages_given_as_dicts_and_removed_ones_are_told(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """The new state is compared with what was told."""
    thread = say(fleet, slot, "plainly", "hello")
    (message,) = of_type(durable(database, thread), "message")
    assert (message["role"], message["text"]) == ("assistant", "as a dict")
    thread = say(fleet, slot, "forgets", "hello")
    assert of_type(durable(database, thread), "message") == [
        {"removed": "u1", "node": "", "ns": ""}
    ]


def test_a_graph_of_steps_shows_no_values(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """Neither texts nor what was said, in Postgres or in the broker."""
    thread = say(fleet, slot, "quiet", "a secret")
    kept = durable(database, thread)
    assert types(kept) == ["received", "custom", "step", "ended"]
    assert "secret" not in json.dumps(kept)
    assert "secret" not in json.dumps(streamed(broker, thread))


def test_a_failed_try_is_taken_back(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, tmp_path: Path
) -> None:
    """A node that its retry policy runs again: half a text is removed, and never durable."""
    thread = say(fleet, slot, "tries_again", "hello", folder=str(tmp_path))
    live = streamed(broker, thread)
    half, *_, whole = [t["message_id"] for t in of_type(live, "token")]
    assert half != whole
    assert {"removed": half} in [{"removed": m.get("removed")} for m in of_type(live, "message")]
    assert [m["text"] for m in of_type(durable(database, thread), "message")] == ["You said hello."]


def test_a_second_attempt_says_so(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, tmp_path: Path
) -> None:
    """Its turn has attempt 2; what the first one streamed is not durable, and what was
    received is told once."""
    thread = say(fleet, slot, "fails", "hello", folder=str(tmp_path))
    assert of_type(durable(database, thread), "ended")[0]["outcome"] == "retry"
    database.fetch("UPDATE fleet.messages SET available_at = fleet.now()")
    drain(slot, thread)
    flushed(slot)
    turns = of_type(streamed(broker, thread), "turn")
    assert [t["attempt"] for t in turns] == [1, 2]
    kept = durable(database, thread)
    assert types(kept) == ["received", "ended", "message", "step", "ended"]


def test_tasks_beside_each_other_have_ids_of_their_own(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """A thousand events in a tight loop from two tasks: unique, rising, each of them there."""
    thread = fleet.submit("busy", "A", {"count": 500}).thread_id
    drain(slot, thread)
    flushed(slot)
    kept, live = durable(database, thread), streamed(broker, thread)
    numbers = [tuple(map(int, e["id"].split("-"))) for e in live]
    assert numbers == sorted(set(numbers))
    told = [(d["data"]["task"], d["data"]["n"]) for d in of_type(kept, "custom")]
    assert sorted(told) == [(t, n) for t in (0, 1) for n in range(500)]
    assert of_type(live, "custom") == of_type(kept, "custom")
    assert [s["node"] for s in of_type(kept, "step")] == ["begin", "work", "work"]


def test_what_a_task_writes_without_end_is_live_only(
    slot: Slot,
    fleet: Fleet,
    database: Database,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond what is held for it; the steps are durable all the same."""
    monkeypatch.setattr(events, "MOST_HELD", 20_000)
    thread = fleet.submit("busy", "A", {"count": 200}).thread_id
    drain(slot, thread)
    flushed(slot)
    kept, live = durable(database, thread), streamed(broker, thread)
    assert len(of_type(live, "custom")) == 400
    # Half a kilobyte each and a little; each of the two tasks lets go of its own at its end.
    assert 30 <= len(of_type(kept, "custom")) <= 80
    assert of_type(live, "custom")[:5] == of_type(kept, "custom")[:5]
    assert [s["node"] for s in of_type(kept, "step")] == ["begin", "work", "work"]


def test_functional_graphs_are_heard(slot: Slot, fleet: Fleet, database: Database) -> None:
    """Tasks that are called are steps, with what they write."""
    thread = fleet.submit("functional", "A", {}).thread_id
    drain(slot, thread)
    kept = durable(database, thread)
    assert [d["data"] for d in of_type(kept, "custom")] == [{"doubling": 1}, {"doubling": 2}]
    assert [s["node"] for s in of_type(kept, "step")] == ["_double", "_double", "functional"]


def test_a_question_is_told_with_its_end(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """In one commit with it; the answer is what is received next."""
    thread = say(fleet, slot, "asks", "hello")
    (question,) = of_type(durable(database, thread), "question")
    assert question["payload"]["message"] == "When?"
    assert of_type(streamed(broker, thread), "question") == [question]
    fleet.answer(thread, question["question_id"], "noon")
    drain(slot, thread)
    kept = durable(database, thread)
    assert of_type(kept, "received")[1]["content"] == "noon"
    assert of_type(kept, "message")[0]["text"] == "At noon."


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def finished(database: Database, thread_id: str) -> list[str]:
    """Nodes of the root graph's tasks whose writes are committed, in order."""
    rows = database.fetch(
        """SELECT task_path, min(checkpoint_id) FROM checkpoint_writes
        WHERE thread_id = %s AND checkpoint_ns = '' AND idx >= 0 AND task_path NOT LIKE %s
        GROUP BY task_path ORDER BY 2""",
        thread_id,
        "%__start__",
    )
    return [path.removeprefix("~__pregel_pull, ") for path, _ in rows]


@pytest.mark.parametrize(
    ("point", "steps"),
    [
        ("barrier.before_intent", 0),
        ("barrier.after_intent", 1),
        ("turn.before_unlock", 2),
        ("turn.after_commit", 3),
    ],
)
def test_steps_are_durable_with_the_writes_of_their_tasks(
    point: str, steps: int, slot: Slot, fleet: Fleet, database: Database, shop: Shop, disarmed: None
) -> None:
    """Wherever the session is lost: the next attempt has both or neither."""
    thread = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    patient = slot.settings.model_copy(update={"flush_after": 3600.0})
    slow = Slot(patient, slot.registry, "fleet")
    failpoints.arm(f"{point}=disconnect:::1")
    drain(slow, thread)
    failpoints.arm("")
    told = [d["node"] for d in of_type(durable(database, thread), "step")]
    assert told == finished(database, thread)
    assert len(told) == steps
    eventually(lambda: drain(slot, thread) or fleet.status(thread).status == "done")
    kept = durable(database, thread)
    assert [d["node"] for d in of_type(kept, "step")] == [
        *("load_order", "process_refund", "notify_user"),
    ]
    assert len(of_type(kept, "received")) == len(of_type(kept, "ended")) == 1
    slow.disconnect()


def test_an_end_is_told_after_its_commit_only(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, shop: Shop, disarmed: None
) -> None:
    """A process that dies between the two leaves it to readers: Postgres has it."""
    thread = fleet.submit("refund", shop.new_order("1500.00"), {"user_id": "u_42"}).thread_id
    failpoints.arm("events.after_commit=raise")
    with pytest.raises(failpoints.FailpointError):
        drain(slot, thread)
    flushed(slot)
    assert types(durable(database, thread))[-2:] == ["question", "ended"]
    assert not {"question", "ended"} & {*types(streamed(broker, thread))}


def test_a_claim_that_is_lost_tells_nothing_more(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, shop: Shop
) -> None:
    """Its left-over threads, too."""
    thread = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    turn = Turn(slot, slot.claim(thread))
    events = turn.telling.events
    events.begin()
    database.fetch("UPDATE fleet.threads SET epoch = epoch + 1")
    with pytest.raises(ClaimLost):
        turn.claim.check()
    events.custom(Place.of("node:t1"), "late")
    events.token(Place.of("node:t1"), "m", "late")
    events.message(Place(), {"message_id": "m", "role": "assistant", "text": "late"})
    turn.claim.close()
    flushed(slot)
    assert types(streamed(broker, thread)) == ["turn", "received"]
    assert durable(database, thread) == []


def test_turns_go_on_without_a_broker(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """What is durable is there; nobody waits for the rest."""
    away = slot.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    alone = Slot(away, slot.registry, "fleet")
    thread = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    drain(alone, thread)
    assert types(durable(database, thread))[-1] == "ended"
    alone.disconnect()


def test_what_no_turn_changes_is_told_too(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """Each in an epoch of its own: quarantined, retried, dropped, expired, cancelled."""
    thread = fleet.submit("refund", shop.new_order("1500.00"), {"user_id": "u_42"}).thread_id
    database.fetch("UPDATE fleet.messages SET crashes = 3")
    drain(slot, thread)
    fleet.retry(thread)
    database.fetch("UPDATE fleet.messages SET crashes = 3")
    drain(slot, thread)
    fleet.drop(thread)
    fleet.submit("refund", thread.partition(":")[2], {"user_id": "u_42"}, on_existing="restart")
    drain(slot, thread)
    database.fetch("UPDATE fleet.questions SET expires_at = fleet.now()")
    database.fetch("SELECT fleet.expire_questions()")
    fleet.cancel(thread)
    told = of_type(durable(database, thread), "status")
    assert [(d["reason"], d["status"]) for d in told] == [
        ("quarantined", "failed"),
        ("retried", "idle"),
        ("quarantined", "failed"),
        ("dropped", "cancelled"),
        ("question_expired", "failed"),
        ("cancelled", "cancelled"),
    ]
    ids = [tuple(map(int, i.split("-"))) for i, _, _ in durable(database, thread)]
    assert ids == sorted(set(ids))
    assert of_type(durable(database, thread), "received")[-1]["generation"] == 2


def test_what_a_reader_needs_of_the_broker_is_short_in_graphs_of_steps(
    slot: Slot, fleet: Fleet, database: Database, broker: Broker, shop: Shop
) -> None:
    """What is asked stays in Postgres."""
    thread = fleet.submit("refund", shop.new_order("1500.00"), {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    flushed(slot)
    (live,) = [e for e in streamed(broker, thread) if e["type"] == "question"]
    (kept,) = of_type(durable(database, thread), "question")
    assert live["short"] and "payload" not in live["data"]
    assert kept["payload"]["action_requests"][0]["args"]["amount"] == "1500.00"
