"""Events and snapshots as chat pages get them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from producers.gateway.ws_frames import Frames
from producers.live.events import Event
from producers.live.ids import EventId
from producers.live.snapshot import Snapshot
from producers.status import Question, ThreadStatus

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = {"kind": "clarify", "message": "How many?", "data": {"least": 1}, "phase": "SLOTS"}
CALL = {"name": "refund", "args": {"amount": 5}}
REFUND = {**CALL, "description": "Refund 5?"}


def event(type: str, n: int = 1, **data: Any) -> Event:
    return Event(EventId(7, n), type, AT.isoformat(), data)


def snapshot(count: int = 0, **thread: Any) -> Snapshot:
    status = ThreadStatus(
        thread_id="acme/talk:k 1",
        tenant="acme",
        graph="talk",
        key="k 1",
        generation=1,
        status="waiting",
        epoch=7,
        created_at=AT,
        updated_at=AT,
        **thread,
    )
    said = [{"message_id": str(n), "role": "assistant", "text": f"t{n}"} for n in range(count)]
    return Snapshot(EventId(7, 9), "first", status, said)


def test_the_words_of_an_end_are_those_that_stay() -> None:
    """The last of the agent's messages in their order; not one that was removed or emptied."""
    frames = Frames()
    for name in ("a", "b", "c", "d"):
        frames.of(event("message", message_id=name, role="assistant", text=f"t{name}"))
    frames.of(event("message", removed="c"))
    frames.of(event("message", message_id="d", role="assistant", text=""))
    assert frames.of(event("order", 5, ids=["b", "a", "d"])) == {
        "type": "order",
        "seq": "7-5",
        "ids": ["b", "a", "d"],
    }
    assert frames.of(event("ended", outcome="done"))["message"] == "ta"


def test_a_token_and_a_message_are_frames_of_their_own() -> None:
    """With the event's id as their seq."""
    frames = Frames()
    token = frames.of(event("token", 3, message_id="m", node="n", ns="", text="Hel"))
    assert token == {"type": "token", "seq": "7-3", "message_id": "m", "text": "Hel", "node": "n"}
    said = frames.of(event("message", 4, message_id="m", role="assistant", text="Hello"))
    assert (said["type"], said["seq"], said["text"]) == ("message", "7-4", "Hello")


def test_a_question_is_an_interrupt_with_what_its_payload_says() -> None:
    """Kind, text, data and phase, and whether a plain message answers it."""
    frames = Frames()
    asked = event("question", question_id="q1", kind="clarify", payload=ASKED)
    frame = frames.of(asked)
    assert (frame["type"], frame["question_id"], frame["kind"]) == ("interrupt", "q1", "clarify")
    assert (frame["message"], frame["data"], frame["phase"]) == ("How many?", {"least": 1}, "SLOTS")
    assert frame["text"] is True and frames.asked == {"q1"}


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("clarify", ASKED, "How many?"),
        ("select_room", {"message": "Which room?", "data": {"candidates": []}}, "Which room?"),
        ("confirm", {"message": "Book it?", "data": {"room": "A"}}, "Book it?"),
        ("approve", {"action_requests": [REFUND], "review_configs": []}, "Refund 5?"),
        ("approve", {"action_requests": [REFUND, CALL]}, 'Refund 5?\n\nrefund {"amount": 5}'),
        ("approve", {"action_request": {"action": "pay", "args": {"a": 1}}}, 'pay {"a": 1}'),
        ("approve", [{"action_request": {"action": "pay", "args": {}}}], "pay {}"),
        ("approve", [{"action_request": {}, "description": "Pay 5?"}], "Pay 5?"),
        ("value", {"question": "Which day?"}, "Which day?"),
        ("value", "Which day?", "Which day?"),
        ("value", {"options": [1, 2]}, None),
        ("value", [{"a": 1}], None),
        ("value", None, None),
    ],
)
def test_a_question_is_told_in_words(kind: str, payload: Any, message: str | None) -> None:
    """Whatever the shape of what the graph asks, live and in a snapshot; null where it has none."""
    frames = Frames()
    frame = frames.of(event("question", question_id="q", kind=kind, payload=payload))
    assert (frame["message"], frame["payload"]) == (message, payload)
    asked = Question(question_id="q", kind=kind, payload=payload, asked_at=AT)
    assert frames.snapshot(snapshot(questions=[asked]))["questions"][0]["message"] == message


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("clarify", {"message": "?"}, True),
        ("value", {"message": "?", "text": True}, True),
        ("value", {"message": "?", "text": "yes"}, False),
        ("confirm", {"message": "?"}, False),
        ("value", "plain", False),
        ("value", None, False),
    ],
)
def test_which_questions_take_text(kind: str, payload: Any, text: bool) -> None:
    """Those that clarify, and those that say so."""
    frame = Frames().of(event("question", question_id="q", kind=kind, payload=payload))
    assert frame["text"] is text


def test_a_good_end_repeats_the_last_words_of_its_turn() -> None:
    """And not those of the one before it."""
    frames = Frames()
    frames.of(event("message", message_id="m", role="assistant", text="Booked."))
    frames.of(event("message", message_id="u", role="user", text="Thanks"))
    frame = frames.of(event("ended", outcome="done", status="done", message_id="x"))
    assert (frame["type"], frame["message"]) == ("complete", "Booked.")
    assert frame["data"] == {"status": "done", "message_id": "x"}
    frames.of(event("turn", 0, message_id="y", kind="input", seq=2, attempt=1))
    assert frames.of(event("ended", outcome="done", status="done"))["message"] == ""


@pytest.mark.parametrize("outcome", ["dead", "in_doubt", "incompatible", "refused"])
def test_a_bad_end_is_an_error_with_a_seq(outcome: str) -> None:
    """In a batch of what was missed it is what happened, and no alarm."""
    frames = Frames()
    ended = event("ended", outcome=outcome, status="failed", message_id="x", error="ValueError")
    frame = frames.of(ended)
    assert (frame["type"], frame["code"], frame["seq"]) == ("error", f"turn_{outcome}", "7-1")
    assert frame["retry"] is False and frame["message"] and frame["message_id"] == "x"
    batch = frames.missed([ended], "7-1")
    assert batch["events"][0]["type"] == "event"
    assert batch["events"][0]["event"]["data"]["outcome"] == outcome


@pytest.mark.parametrize("outcome", ["waiting", "retry", "released", "cancelled", "drained"])
def test_other_ends_are_events(outcome: str) -> None:
    """A page may show them or not."""
    frame = Frames().of(event("ended", outcome=outcome, status="idle"))
    assert frame["type"] == "event" and frame["event"]["data"]["outcome"] == outcome


def test_a_snapshot_shows_the_open_questions_in_place_of_earlier_ones() -> None:
    """So that a plain message never answers one that is gone."""
    frames = Frames()
    frames.of(event("question", question_id="old", kind="clarify", payload=ASKED))
    asked = Question(question_id="new", kind="clarify", payload=ASKED, asked_at=AT)
    batch = frames.snapshot(snapshot(questions=[asked]))
    assert frames.asked == {"new"} and batch["questions"][0]["message"] == "How many?"
    assert (batch["state"], batch["status"]) == ("interrupted", "waiting")
    assert batch["last_seq"] == "7-9"


def test_all_of_a_chat_of_a_thousand_messages_comes_at_once() -> None:
    """There is nothing earlier to ask for."""
    batch = Frames().snapshot(snapshot(1000))
    assert len(batch["messages"]) == 1000
    assert batch["earlier"] == 0 and "earlier_url" not in batch


def test_of_a_longer_chat_the_last_fifty_come() -> None:
    """With how many came before, and where they are to be had."""
    batch = Frames().snapshot(snapshot(1001))
    assert [m["text"] for m in batch["messages"]] == [f"t{n}" for n in range(951, 1001)]
    assert batch["earlier"] == 951
    assert batch["earlier_url"] == "/threads/talk/k%201/messages"


def test_a_snapshot_has_what_is_being_written_and_done() -> None:
    """Texts that have begun, and tools with their arguments that have not come back."""
    running = [{"id": "t1", "name": "book", "args": {"room": "r1"}}]
    begun = [{"message_id": "m", "node": "say", "text": "Hel"}]
    batch = Frames().snapshot(replace(snapshot(), partial=begun, running_tools=running))
    assert (batch["partial"], batch["running_tools"]) == (begun, running)
