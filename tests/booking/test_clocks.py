"""The booking assistant and the time: of the message, of the rooms, of the clocks' changes."""

import pytest

from infra.settings import get_settings
from tests.booking.talk import WISH, Talk, at
from tests.harness import Database


@pytest.mark.parametrize(
    ("wish", "kind", "told"),
    [
        ("on monday at 9 for 4", "select_room", "Mon 10 Jun, 09:00"),
        ("周一上午9点，4人", "select_room", "6月10日（周一）09:00"),
        ("monday at 4pm for 4", "select_room", "Mon 3 Jun, 16:00"),
        ("today at 9 for 4", "clarify", "Mon 3 Jun, 09:00–10:00 has passed already"),
        ("今天上午9点，4人", "clarify", "6月3日（周一）09:00–10:00已经过去了"),
        (["monday", "at 9", "4"], "select_room", "Mon 10 Jun, 09:00"),
        (["周一，4人", "9"], "select_room", "6月10日（周一）09:00"),
        (["monday", "at 4pm", "4"], "select_room", "Mon 3 Jun, 16:00"),
        (["monday", "no, today", "at 9", "4"], "clarify", "has passed already"),
        ("at 9 for 4", "clarify", "which day"),
        ("上午9点，4人", "clarify", "哪一天"),
    ],
)
def test_a_time_that_is_over_today(talk: Talk, wish: str | list[str], kind: str, told: str) -> None:
    """Said on a Monday afternoon, at once or bit by bit: any Monday is the next one, today's is
    over, and a time without a day is no day's."""
    at(talk.database, "2030-06-03T15:00:00+00:00")
    for said in [wish] if isinstance(wish, str) else wish:
        talk.say(said)
    assert talk.kind == kind and told in talk.asked["message"]


@pytest.mark.parametrize(
    ("said", "when"),
    [
        (["tomorrow evening for 4", "8"], "Tue 4 Jun, 20:00–21:00"),
        (["明天晚上，4人", "8点"], "6月4日（周二）20:00–21:00"),
        (["明天晚上 4人", "12点"], "6月5日（周三）00:00–01:00"),
        (["tomorrow night for 4", "12"], "Wed 5 Jun, 00:00–01:00"),
        (["tomorrow at 12 at night for 4", "12 at night please"], "Wed 5 Jun, 00:00–01:00"),
        (["tomorrow at 12 at night", "4", "no, at 11 at night"], "Tue 4 Jun, 23:00"),
        (["tomorrow at 12 at night", "on friday", "4"], "Sat 8 Jun, 00:00–01:00"),
        (["明天下午 4人", "八点半"], "6月4日（周二）20:30–21:30"),
        (["tomorrow morning for 4", "good evening", "at 8"], "Tue 4 Jun, 08:00–09:00"),
        (["tomorrow at 2pm for 4", "in the morning", "9"], "Tue 4 Jun, 09:00–10:00"),
        (["tomorrow at 2pm for 4", "until 5"], "Tue 4 Jun, 14:00–17:00"),
        (["tomorrow at 2pm for 4", "30 hours", "2 hours"], "Tue 4 Jun, 14:00–16:00"),
        (["all day tomorrow for 4"], "Tue 4 Jun, 09:00–18:00"),
    ],
)
def test_a_time_is_read_with_what_was_said_before(talk: Talk, said: list[str], when: str) -> None:
    """The half of the day, the start, and what was too long."""
    for text in said:
        talk.say(text)
    assert talk.kind == "select_room" and when in talk.asked["message"]


@pytest.mark.parametrize(
    ("wish", "minutes"),
    [("at 01:30", 60), ("at 02:30", None), ("at 02:30 for 30 minutes", None), ("at 03:00", 60)],
)
def test_a_time_that_the_clocks_go_past_is_told(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, wish: str, minutes: int | None
) -> None:
    """Between two and three there is nothing to book; an hour over it is one hour."""
    monkeypatch.setenv("FLEET_BOOKING_ZONE", "Europe/Berlin")
    get_settings.cache_clear()
    at(talk.database, "2027-03-01T09:00:00+00:00")
    talk.say(f"2027-03-28 {wish} for 4")
    if minutes is None:
        assert "the clocks go forward" in talk.asked["message"]
        assert talk.asked["data"]["missing"] == ["start"]
        talk.say("at 04:00")
    talk.say("1").say("yes")
    [(_, _, booked, _)] = talk.bookings()
    assert booked == (minutes or (30 if "30 minutes" in wish else 60))


def test_tomorrow_is_the_day_after_the_one_on_which_it_was_said(talk: Talk) -> None:
    """However late its turn comes, and also where it was said in an answer."""
    at(talk.database, "2030-06-03T23:59:00+00:00")
    talk.fleet.submit(
        "booking", "b1", {"messages": [{"role": "user", "content": "tomorrow at 2pm"}]}
    )
    at(talk.database, "2030-06-04T08:00:00+00:00")
    talk.run()
    assert talk.asked["data"]["known"] == {"date": "2030-06-04", "start": "14:00"}
    at(talk.database, "2030-06-04T23:59:00+00:00")
    [question] = talk.questions()
    talk.fleet.answer(talk.thread_id, question.question_id, "no, tomorrow, for 4")
    at(talk.database, "2030-06-05T08:00:00+00:00")
    talk.run()
    assert talk.asked["data"]["slot"]["start"] == "2030-06-05T14:00:00+00:00"


def test_times_are_those_of_the_rooms(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """FLEET_BOOKING_ZONE: where it is Tuesday already, tomorrow is Wednesday."""
    monkeypatch.setenv("FLEET_BOOKING_ZONE", "Asia/Shanghai")
    get_settings.cache_clear()
    at(database, "2030-06-03T20:00:00+00:00")
    talk.say(WISH["zh"])
    assert talk.asked["data"]["slot"]["start"] == "2030-06-05T14:00:00+08:00"
    talk.say("选1").say("好")
    assert talk.bookings() == [("R3", "2030-06-05 06:00", 60, 8)]
    assert "6月5日（周三）14:00–15:00" in talk.texts("ai")[-1]
