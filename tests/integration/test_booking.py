"""The booking assistant by its rules, turn by turn on real servers."""

import pytest

from producers import Fleet
from tests.harness import Database
from tests.integration.booking_talk import NOW, Talk, at
from workers.slot import Slot


@pytest.fixture
def talk(slot: Slot, fleet: Fleet, database: Database) -> Talk:
    at(database, NOW)
    return Talk(slot, fleet, database)


@pytest.mark.parametrize(
    ("wish", "pick", "yes", "booked"),
    [
        ("明天下午2点8人会议室", "选1", "好的", "已预订：梅，6月4日（周二）14:00–15:00，8人。"),
        (
            "a room for 8 tomorrow at 2pm for an hour",
            "the second one",
            "yes, please",
            "Booked: Orchid, Tue 4 Jun, 14:00–15:00, for 8.",
        ),
    ],
)
def test_a_room_is_booked_in_both_languages(
    talk: Talk, wish: str, pick: str, yes: str, booked: str
) -> None:
    """Said at once, picked, confirmed, booked; each question in its phase."""
    talk.say(wish)
    assert (talk.kind, talk.state["phase"]) == ("select_room", "AWAITING_SELECTION")
    candidates = talk.asked["data"]["candidates"]
    assert [c["id"] for c in candidates] == ["R3", "R4", "R5", "R6"]
    assert candidates[0]["capacity"] == 8 and candidates[0]["equipment"]
    assert candidates[0]["slot"]["start"] == "2030-06-04T14:00:00+00:00"
    talk.say(pick)
    assert (talk.kind, talk.state["phase"]) == ("confirm", "CONFIRMING")
    assert talk.bookings() == []
    talk.say(yes)
    assert (talk.kind, talk.state["phase"]) == (None, "BOOKED")
    assert talk.fleet.status(talk.thread_id).status == "done"
    booking = talk.state["booking"]
    assert talk.bookings() == [(booking["room_id"], "2030-06-04 14:00", 60, 8)]
    last = talk.texts("ai")[-1]
    assert last.startswith(booked) and booking["booking_id"] in last


def test_what_is_missing_is_asked_for(talk: Talk) -> None:
    """In one question, in the user's language; a mere number answers it."""
    talk.say("我想订一间会议室")
    assert talk.kind == "clarify"
    assert talk.asked["data"]["missing"] == ["date", "start", "people"]
    assert talk.asked["text"] is True and talk.asked["phase"] == "COLLECTING_SLOTS"
    talk.say("后天上午十点半，两个小时")
    assert talk.asked["message"] == "请告诉我多少人？"
    talk.say("12")
    assert talk.kind == "select_room"
    slot = talk.asked["data"]["slot"]
    assert (slot["start"][:16], slot["end"][:16]) == ("2030-06-05T10:30", "2030-06-05T12:30")
