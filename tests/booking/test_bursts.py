"""Messages to the booking assistant that are there before the first is taken up."""

import pytest

from tests.booking.talk import WISH, Talk


def in_a_burst(talk: Talk, *said: str) -> None:
    """Messages that are all there before the first is taken up."""
    first, *more = ({"messages": [{"role": "user", "content": text}]} for text in said)
    talk.fleet.submit("booking", "b1", first)
    for message in more:
        talk.fleet.send(talk.thread_id, message)
    talk.run()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (("a room for 8 tomorrow", "at 2pm please"), "For 8 on Tue 4 Jun, 14:00–15:00"),
        (("我要订会议室", "8个人", "明天", "下午2点"), "6月4日（周二）14:00–15:00，8人"),
        ((WISH["en"], "actually 10 people"), "For 10 on Tue 4 Jun, 14:00"),
        ((WISH["en"], "2"), "Shall I book Orchid"),
        # Nobody had asked yet.
        ((WISH["en"], "1", "yes"), "Shall I book Plum"),
    ],
)
def test_messages_in_a_burst_are_one_request(talk: Talk, said: list[str], asked: str) -> None:
    """What is said while a question is on its way is the reply to it, but no yes."""
    in_a_burst(talk, *said)
    assert asked in talk.asked["message"] and talk.bookings() == []
    messages = talk.state["messages"]
    assert [m["content"] for m in messages if m["type"] == "human"] == [*said]
    calls = [call["id"] for m in messages for call in m.get("tool_calls") or []]
    assert {m["tool_call_id"] for m in messages if m["type"] == "tool"} == {*calls[:-1]}


def test_mail_that_was_called_off_with_its_request_is_no_part_of_the_next(talk: Talk) -> None:
    """Also where no question had been asked yet."""
    talk.fleet.submit("booking", "b1", {"messages": [{"role": "user", "content": WISH["en"]}]})
    talk.fleet.cancel(talk.thread_id)
    talk.run().say("at 3pm")
    assert talk.asked["data"]["known"] == {"start": "15:00"}
