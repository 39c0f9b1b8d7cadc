"""Requests to the booking assistant that are given up or called off, and what then stands."""

from typing import Any

import pytest

from tests.booking.talk import WISH, Talk, at


@pytest.mark.parametrize("word", ["cancel", "取消", {"cancel": True}])
@pytest.mark.parametrize("said", [[], [WISH["en"]], [WISH["en"], "1"]])
def test_a_request_is_given_up(talk: Talk, said: list[str], word: Any) -> None:
    """At each question; nothing is booked, and the next request starts clean."""
    talk.say("hello")
    for text in said:
        talk.say(text)
    talk.answer(word)
    assert (talk.kind, talk.state["outcome"], talk.state["booking"]) == (None, "cancelled", None)
    assert talk.bookings() == []
    talk.say("hello again")
    assert talk.asked["data"]["known"] == {}


def test_a_request_that_was_called_off_starts_anew(talk: Talk) -> None:
    """A cancelled thread's next message has nothing to do with the question before."""
    talk.say(WISH["en"]).say("1")
    talk.fleet.cancel(talk.thread_id)
    talk.run()
    assert talk.fleet.status(talk.thread_id).status == "cancelled"
    talk.say("yes")
    assert talk.kind == "clarify" and talk.asked["data"]["known"] == {}
    assert talk.bookings() == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["cancel"], "Your booking stands: Plum, Tue 4 Jun, 14:00–15:00, for 8, booking id B"),
        (["取消预订"], "之前的预订仍然有效：Plum，6月4日（周二）14:00–15:00，8人，预订号B"),
        (["another one on friday", "never mind"], "nothing more was booked. Your booking stands"),
    ],
)
def test_a_cancel_after_a_booking_says_that_it_stands(
    talk: Talk, said: list[str], told: str
) -> None:
    """What is booked is not called off by the way."""
    talk.say(WISH["en"]).say("1").say("yes")
    for text in said:
        talk.say(text)
    assert told in talk.texts("ai")[-1] and len(talk.bookings()) == 1
    assert (talk.kind, talk.state["outcome"]) == (None, "cancelled")


@pytest.mark.parametrize(("time", "stands"), [("14:59", True), ("15:01", False)])
def test_a_booking_that_is_over_is_told_no_more(talk: Talk, time: str, stands: bool) -> None:
    """A cancel long after says nothing of it."""
    talk.say(WISH["en"]).say("1").say("yes")
    at(talk.database, f"2030-06-04T{time}:00+00:00")
    talk.say("another one on friday").say("cancel")
    assert ("Your booking stands" in talk.texts("ai")[-1]) == stands
    assert ("Nothing was booked" in talk.texts("ai")[-1]) != stands
