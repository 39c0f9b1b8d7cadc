"""When a run is over, and how: by what is recorded of its thread."""

from typing import Any

import pytest

from producers.gateway.agui_ends import End, end_of
from tests.gateway.agui_streams import message, question, thread


def ended(status: str, ours: Any = frozenset({"m1"}), refused: Any = None, **more: Any) -> Any:
    return end_of(thread(status, **more), ours, refused or {})


def test_a_run_ends_with_its_message() -> None:
    """What others have sent meanwhile is work for their runs."""
    others = [message(2, "m2", "pending")]
    assert ended("running", messages=others) == End("success")
    assert ended("running", messages=[message(1, "m1", "claimed"), *others]) is None
    assert ended("idle", messages=[message(1, "m1", "pending")]) is None


def test_a_joined_run_ends_with_all_mail() -> None:
    """It is about no message of its own."""
    assert ended("running", None) is None
    assert ended("idle", None, messages=[message(2, "m2", "pending")]) is None
    assert ended("done", None) == End("success")
    assert ended("cancelled", None) == End("cancelled")


def test_questions_interrupt_unless_an_answer_is_on_its_way() -> None:
    """All that are open are told; the second of two answers is still to be worked on."""
    asked = [question("q1"), question("q2")]
    end = ended("waiting", questions=asked)
    assert end.kind == "interrupt" and [i.id for i in end.interrupts] == ["q1", "q2"]
    assert ended("waiting", messages=[message(3, "m1", "pending")], questions=asked[:1]) is None


@pytest.mark.parametrize("status", ["failed", "in_doubt", "incompatible"])
def test_what_needs_a_person_is_an_error(status: str) -> None:
    """Also for mail that waits behind it."""
    end = ended(status, messages=[message(2, "m1", "pending")], last_error="ValueError: no")
    assert (end.kind, end.code, end.message) == ("error", status, "ValueError: no")
    assert ended(status).message


def test_a_message_that_was_given_up_unread_is_an_error() -> None:
    """The client is told why nothing came of it."""
    end = ended("done", refused={"m1": "the graph takes no such input"})
    assert (end.kind, end.code) == ("error", "refused") and "takes no" in end.message
    assert ended("done", refused={"m9": None}) == End("success")
