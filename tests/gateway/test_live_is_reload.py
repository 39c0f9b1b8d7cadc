"""What a page shows live is what it shows after a reload."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphs.registry import Registry
from producers import Fleet
from tests.gateway.agui_turns import Working
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.gateway.shown import Shown
from tests.graphs.showing import GATE
from tests.harness import Database, eventually, registered_graphs
from workers import shutdown
from workers.drain import drain
from workers.hearing import Hearing
from workers.outcomes import Kind
from workers.slot import Slot
from workers.turn import Turn

NAMES = (
    *("waits", "beside", "helped", "private", "stops", "redacts", "turns_round", "plain"),
    *("retried", "speaks_and_asks", "asks_beside", "counts", "forgets", "helped_first"),
    *("keeps", "helped_beside"),
)


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    """Those of tests/graphs/showing.py."""
    places = {name: f"showing.py:{name}" for name in NAMES}
    return registered_graphs(tmp_path, database, places)


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file for which the node of `waits` waits."""
    monkeypatch.setenv(GATE, str(tmp_path / "open"))
    return tmp_path / "open"


def reloaded(gateway: Gateway, page: Page) -> Shown:
    with Page(gateway, None, session_id=page.session_id) as again:
        again.until("recovery_complete")
        return Shown(again.frames)


def same(gateway: Gateway, page: Page) -> list[str]:
    """The texts that the page shows, and would show after a reload."""
    live = Shown(page.frames)
    assert live.items == reloaded(gateway, page).items
    return live.texts


@pytest.mark.parametrize(
    ("graph", "texts"),
    [
        ("beside", ["hi", "slow", "fast"]),
        ("helped", ["hi", "aloud"]),
        ("private", ["hi", "the sum of it"]),
        ("stops", ["hi", "something else"]),
        ("redacts", ["***", "done"]),
        ("turns_round", ["in short", "hi"]),
        ("plain", ["hi", "as a dict", "as a pair"]),
        ("retried", ["hi", "You said hi.", "after all"]),
    ],
)
def test_after_a_turn(gateway: Gateway, working: Working, graph: str, texts: list[str]) -> None:
    """Words that the state does not have are gone, what was changed is changed, and messages
    are in the state's order; also in the next turn."""
    with Page(gateway, graph) as page:
        for text in ("hi", "bye"):
            page.say(text)
            page.completed()
            if text == "hi":
                assert same(gateway, page) == texts
        same(gateway, page)


@pytest.mark.parametrize(
    ("graph", "asked", "answered"),
    [
        ("speaks_and_asks", ["hi"], ["hi", "You said hi.", "So A."]),
        ("asks_beside", ["hi", "You said hi."], ["hi", "So A.", "You said hi."]),
    ],
)
def test_at_a_question(
    gateway: Gateway, working: Working, graph: str, asked: list[str], answered: list[str]
) -> None:
    """What a node spoke before it asked is said again after the answer; what another has
    finished stays."""
    with Page(gateway, graph) as page:
        page.say("hi")
        question = page.asked()
        page.until("event", "recovery_complete")
        assert same(gateway, page) == asked
        page.send("answer", question_id=question, value="A", message_id="a1")
        page.completed()
        assert same(gateway, page) == answered


def user(text: str, **more: str) -> dict[str, str]:
    return {"role": "user", "content": text, **more}


B = {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("graph", "given", "texts"),
    [
        ("counts", [[user("a"), B, user("c")]], ["a", "b", "c", "3 messages"]),
        ("counts", [[user("a", id="1"), user("c", id="3")]], ["a", "c", "2 messages"]),
        ("counts", [[user("a", id="1")], [user("z", id="1")]], ["z", "1 messages", "2 messages"]),
        (
            "counts",
            [[user("a", id="1")], [{"type": "remove", "id": "1", "content": ""}]],
            ["1 messages", "1 messages"],
        ),
        ("counts", ["hello"], ["hello", "1 messages"]),
        ("counts", [["hello"]], ["hello", "1 messages"]),
        ("counts", [[["user", "hey"]]], ["hey", "1 messages"]),
        ("counts", [user("alone")], ["alone", "1 messages"]),
        ("counts", [[B]], ["b", "1 messages"]),
        ("forgets", [[user("secret")]], ["forgotten"]),
        ("forgets", [[user("secret", id="1")]], ["forgotten"]),
    ],
)
def test_input_from_other_doors(
    gateway: Gateway,
    client: httpx.Client,
    working: Working,
    graph: str,
    given: list[Any],
    texts: list[str],
) -> None:
    """All of it is shown, once, in whichever form and under whichever ids it came."""
    with Page(gateway, graph) as page:
        thread = page.until("welcome")["thread_id"]
        for n, messages in enumerate(given):
            reply = client.post(
                f"/threads/{thread.replace(':', '/')}/messages",
                json={"input": {"messages": messages}, "on_existing": "send"},
                headers={"Idempotency-Key": f"k{n}"},
            )
            assert reply.status_code == 202, reply.text
            page.completed()
        assert same(gateway, page) == texts


def written(database: Database, thread_id: str) -> int:
    """How many of the tasks beside each other have their messages in Postgres."""
    (row,) = database.fetch(
        """SELECT count(*) FROM checkpoint_writes WHERE thread_id LIKE %s
        AND channel = 'messages' AND task_path NOT LIKE %s""",
        f"{thread_id}%",
        "%__start__",
    )
    return int(row[0])


TEXTS = ["hi", "one", "as a dict", "as a pair", "at last"]


def test_a_page_opened_between_tasks_of_one_step(
    gateway: Gateway, working: Working, database: Database, gate: Path
) -> None:
    """It has what the finished ones gave, under the ids that the state will have."""
    with Page(gateway, "waits") as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi")
        eventually(lambda: written(database, thread) == 2)
        with Page(gateway, None, session_id=page.session_id) as late:
            late.until("recovery_complete")
            assert sorted(Shown(late.frames).texts) == sorted(TEXTS[:-1])
            gate.touch()
            late.completed()
            assert same(gateway, late) == TEXTS
        page.completed()
        assert same(gateway, page) == TEXTS


@pytest.mark.parametrize(
    ("graph", "tasks", "texts"),
    [("waits", 2, TEXTS), ("helped_first", 1, ["hi", "aloud", "at last"])],
)
def test_a_worker_is_lost(
    gateway: Gateway,
    slot: Slot,
    database: Database,
    fleet: Fleet,
    gate: Path,
    graph: str,
    tasks: int,
    texts: list[str],
) -> None:
    """The next attempt goes on with the messages of the finished tasks as they were told, and
    takes back what the lost one has told for good and the state does not have."""
    with Page(gateway, graph) as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi")
        claim, session = "SELECT epoch FROM fleet.threads", slot.connection().info.backend_pid
        first = threading.Thread(target=drain, args=(slot, thread))
        first.start()
        eventually(lambda: written(database, thread) == tasks)
        lost = database.value(claim)
        database.fetch("SELECT pg_terminate_backend(%s)", session)
        gate.touch()
        first.join(30)
        assert not first.is_alive()
        eventually(lambda: drain(slot, thread) or fleet.status(thread).status == "done", 40)
        assert database.value(claim) > lost
        page.completed()
        assert same(gateway, page) == texts


def finished(page: Page) -> None:
    """Waits for the good end of a turn, as an event."""
    assert page.until("complete", "error")["type"] == "complete", page.frames[-1]


def test_a_worker_leaves_before_the_first_step(
    gateway: Gateway, slot: Slot, fleet: Fleet, database: Database
) -> None:
    """What was said is not in the state then, and is shown again once it is."""
    with Page(gateway, "counts") as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi")
        turn = Turn(slot, slot.claim(thread))
        shutdown.hold(True)
        try:
            turn.run(None)
        finally:
            shutdown.hold(False)
        assert turn.outcome.kind is Kind.DRAINED
        drain(slot, thread)
        finished(page)
        assert same(gateway, page) == ["hi", "1 messages"]


def test_a_worker_without_the_graph(
    gateway: Gateway, slot: Slot, database: Database, tmp_path: Path
) -> None:
    """It can't tell what was said; the one that has the graph does."""
    (tmp_path / "other").mkdir()
    other = registered_graphs(tmp_path / "other", database, {"plain": "showing.py:plain"})
    database.register(slot.settings.graphs_path)
    stranger = Slot(slot.settings, Registry.load(other), "fleet")
    with Page(gateway, "counts") as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi")
        turn = Turn(stranger, stranger.claim(thread))
        turn.run(None)
        stranger.disconnect()
        assert page.until("complete", "error")["code"] == "turn_incompatible"
        database.fetch("UPDATE fleet.messages SET available_at = fleet.now()")
        drain(slot, thread)
        finished(page)
        assert same(gateway, page) == ["hi", "1 messages"]


@pytest.mark.parametrize("said", ["lock", "text"])
def test_a_turn_that_cannot_be_stored(
    gateway: Gateway, slot: Slot, database: Database, said: str
) -> None:
    """Nothing of it stays on the page: neither what was new nor what was changed or removed."""
    database.fetch("ALTER TABLE checkpoint_writes ADD CHECK (channel <> 'kept')")
    patient = slot.settings.model_copy(update={"flush_after": 3600.0})
    slow = Slot(patient, slot.registry, "fleet")
    with Working(slow, database), Page(gateway, "keeps") as page:
        page.say("hi")
        finished(page)
        page.say(said)
        assert page.until("complete", "error")["code"] == "turn_dead"
        assert "***" in [f.get("text") for f in page.frames]
        assert same(gateway, page) == ["hi", "aloud"]
    slow.disconnect()


def test_what_a_left_over_thread_writes_at_the_end(
    gateway: Gateway, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written between the last look at what was told and the end."""
    free: list[bool] = []
    corrections = Hearing.corrections

    def write() -> None:
        if turn.claim.lock.acquire(False):
            free.append(True)
            turn.claim.lock.release()

    def looked(hearing: Hearing) -> Sequence[tuple[str, dict[str, Any]]]:
        found = corrections(hearing)
        left_over = threading.Thread(target=write)
        left_over.start()
        left_over.join()
        return found

    monkeypatch.setattr(Hearing, "corrections", looked)
    with Page(gateway, "counts") as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi")
        turn = Turn(slot, slot.claim(thread))
        turn.run(None)
        finished(page)
    assert not free


def test_a_subgraph_begins(gateway: Gateway, working: Working) -> None:
    """That is no input from outside: how messages follow each other is told at the end."""
    with Page(gateway, "helped_beside") as page:
        page.say("hi")
        finished(page)
        assert same(gateway, page) == ["hi", "slow", "fast", "at last"]
        told = page.types()
        assert told.count("order") == 1
        said = [f.get("text") for f in page.frames]
        assert told.index("order") > said.index("at last")
