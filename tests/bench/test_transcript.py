"""The transcript that `fleet bench live` judges by sees what must never be shown."""

from typing import Any

from producers.bench.live_transcript import Transcript


def taken(*frames: dict[str, Any]) -> Transcript:
    found = Transcript()
    for frame in frames:
        found.take(frame)
    return found


def token(seq: str, text: str, message: str = "a1") -> dict[str, Any]:
    return {"type": "token", "seq": seq, "message_id": message, "text": text}


def whole(seq: str, text: str, message: str = "a1") -> dict[str, Any]:
    frame = {"type": "message", "seq": seq, "role": "assistant"}
    return frame | {"message_id": message, "text": text}


def complete(seq: str) -> dict[str, Any]:
    return {"type": "complete", "seq": seq, "data": {"message_id": "m1"}}


def snapshot(seq: str, *messages: dict[str, Any], status: str = "running") -> dict[str, Any]:
    batch = {"type": "history_batch", "snapshot": True, "last_seq": seq, "status": status}
    return batch | {"messages": list(messages), "partial": []}


def test_a_turn_without_faults() -> None:
    """Words, then the whole text in their place; numbers, not texts, are compared."""
    found = taken(token("9-9", "t.0 "), token("9-10", "t.1 "), whole("10-1", "t.0 t.1 "))
    assert found.texts() == [("assistant", "t.0 t.1 ")] and not found.faults
    found.take(complete("10-2"))
    assert found.completed == {"m1"} and not found.faults


def test_what_comes_twice() -> None:
    """The same event, or the same word in another."""
    assert taken(token("1-1", "t.0 "), token("1-1", "t.1 ")).faults
    assert taken(token("1-1", "t.0 t.1 "), token("1-2", "t.1 ")).faults


def test_a_persons_words_that_are_shown_again() -> None:
    """A worker left before they were in the state, and the next one has them."""
    said = {"type": "received", "at": "", "data": {"message_id": "m1", "content": "hello"}}
    gone = {"type": "message", "seq": "1-2", "removed": "m1"}
    found = taken({"type": "event", "seq": "1-1", "event": said}, gone)
    assert found.texts() == []
    found.take(whole("2-1", "hello", "m1") | {"role": "user"})
    assert found.texts() == [("user", "hello")]


def test_what_is_left_standing() -> None:
    """The words of an attempt that was lost, beside the text that took their place."""
    left = [token("1-1", "t.0 "), whole("2-1", "t.0 t.1 ", "a2"), complete("2-2")]
    assert taken(*left).faults
    assert not taken(left[0], snapshot("2-0"), *left[1:]).faults


def test_a_snapshot_takes_the_place_of_all() -> None:
    """What it does not have is not shown any more, and what it has at rest is complete."""
    said = {"message_id": "m1", "role": "user", "text": "hello"}
    found = taken(whole("1-1", "old"), snapshot("1-5", said, status="done"))
    assert found.texts() == [("user", "hello")] and found.completed == {"m1"}
    assert found.seq == "1-5"


def test_a_turn_that_fails_is_a_fault() -> None:
    """Kills are no reason for one."""
    frame = {"type": "error", "seq": "1-3", "code": "turn_dead", "message": "…", "retry": False}
    assert taken(frame).faults
