"""The booking assistant by its rules, turn by turn on real servers."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from graphs.booking import rooms, state
from infra.sql import query
from producers.cli import main
from tests.booking.talk import WISH, Talk
from tests.harness import Broker, Database


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


@pytest.fixture
def connected(
    talk: Talk, database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Addresses that Python code connects to from now on; all but the test's servers and
    every name's look-up are refused. (libpq opens its own sockets, to Postgres only.)"""
    ours = {urlsplit(url).port for url in (database.url, broker.url)}
    tried: list[Any] = []

    def guarded(name: str) -> None:
        real = getattr(socket.socket, name)

        def connect(sock: socket.socket, address: Any) -> Any:
            tried.append(address)
            if address[0] != "127.0.0.1" or address[1] not in ours:
                raise OSError(f"no network in this test: {address}")
            return real(sock, address)

        monkeypatch.setattr(socket.socket, name, connect)

    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **given: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            tried.append((host, None))
            raise socket.gaierror(f"no names in this test: {host}")
        return look_up(host, *args, **given)

    guarded("connect")
    guarded("connect_ex")
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match="no names in this test"):
        socket.create_connection(("rooms.example.org", 80), 1)
    with pytest.raises(OSError, match="no network in this test"):
        socket.create_connection(("127.0.0.1", 9), 1)
    tried.clear()
    return tried


@pytest.mark.parametrize(
    "said",
    [
        ("hello", "tomorrow at half past two", "8", "the second one", "no", "Plum", "yes"),
        ("您好", "明天下午两点半", "8", "第二个", "不要", "梅", "好的"),
    ],
)
def test_the_rules_need_no_network(
    talk: Talk, broker: Broker, connected: list[Any], said: tuple[str, ...]
) -> None:
    """A whole conversation in which nothing is connected to but Postgres and the broker."""
    for text in said:
        talk.say(text)
    assert talk.bookings() == [("R3", "2030-06-04 14:30", 60, 8)]
    assert talk.slot.publisher.flush(5)
    assert connected and {*connected} == {("127.0.0.1", urlsplit(broker.url).port)}


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


def test_the_command_line_is_a_client_too(
    talk: Talk, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """submit, answer and send, as docs/booking.md has them; show names the question's kind."""

    def fleet(*args: str) -> str:
        capfd.readouterr()
        assert main(args) == 0
        talk.run()
        return capfd.readouterr().out

    def said(text: str) -> str:
        return json.dumps({"messages": [{"role": "user", "content": text}]})

    fleet("submit", "booking", "b1", "--input", said("明天下午2点8人会议室"))
    assert "select_room" in fleet("show", "booking:b1")
    fleet("answer", "booking:b1", "--value", '"选1"')
    fleet("answer", "booking:b1", "--value", '{"confirmed": true}')
    assert [b[0] for b in talk.bookings()] == ["R3"]
    fleet("send", "booking", "b1", "--input", said("another one on Friday at 10 for 4"))
    assert talk.asked["data"]["slot"]["start"] == "2030-06-07T10:00:00+00:00"


@pytest.mark.parametrize(
    ("language", "change", "people", "first"),
    [
        ("en", "actually 10 people", 10, "R4"),
        ("zh", "改成10人", 10, "R4"),
        ("en", {"text": "make it 12"}, 12, "R5"),
    ],
)
@pytest.mark.parametrize("phase", ["AWAITING_SELECTION", "CONFIRMING"])
def test_a_change_of_mind_is_followed(
    talk: Talk, phase: str, language: str, change: Any, people: int, first: str
) -> None:
    """At each question: rooms are looked for anew, and what was said before still holds."""
    talk.say(WISH[language])
    if phase == "CONFIRMING":
        talk.say("选1")
    talk.answer(change)
    assert talk.kind == "select_room"
    assert talk.asked["data"]["people"] == people
    assert talk.asked["data"]["candidates"][0]["id"] == first
    talk.say("1").say("好" if language == "zh" else "ok")
    assert talk.bookings() == [(first, "2030-06-04 14:00", 60, people)]


@pytest.mark.parametrize(
    ("pick", "room"),
    [
        ({"room_id": "R5"}, "R5"),
        ("松", "R5"),
        ("Pine please", "R5"),
        ("r5", "R5"),
        ("最后一个", "R6"),
        (2, "R4"),
        ({"value": "选2"}, "R4"),
    ],
)
@pytest.mark.parametrize("yes", [{"confirmed": True}, True, "approved", "就这个"])
def test_answers_may_be_words_or_data(talk: Talk, pick: Any, room: str, yes: Any) -> None:
    """A room by its number, its name in either language, or its id."""
    talk.say(WISH["en"]).answer(pick)
    assert talk.asked["data"]["room"]["id"] == room
    talk.answer(yes)
    assert [b[0] for b in talk.bookings()] == [room]


@pytest.mark.parametrize("no", [{"confirmed": False}, "no", "换一个", False])
def test_a_no_goes_back_to_the_rooms(talk: Talk, no: Any) -> None:
    """And another one may be picked."""
    talk.say(WISH["en"]).say("1").answer(no)
    assert talk.kind == "select_room"
    talk.say("the second one").say("yes")
    assert [b[0] for b in talk.bookings()] == ["R4"]


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("today at 8am for 4", "has passed already"),
        ("tomorrow at 2pm for 50", "the largest holds 20"),
        ("明天下午2点50人", "最大的可容纳20人"),
        ("9999-12-31 23:30 for 4", "no such day"),
        ("tomorrow at 3 for 4 for 30 hours", "24 hours at most"),
        ("明天3点4人 30个小时", "最长可以订24小时"),
        ("2月30日", "没有这一天"),
        ("Tuesday the 7th", "no such day"),
        ("last friday", "That day has passed already"),
        ("上周五 4人", "那一天已经过去了"),
        ("昨天下午3点", "那一天已经过去了"),
        ("0001-01-01 at 10 for 4", "has passed already"),
        ("tomorrow at 3 for 99999999999999999999 people", "how many people"),
        ("明天三点 99999999999999999999 人", "多少人"),
        ("tomorrow at 10am for 18 for 2 hours", "No room for 18 is free on Tue 4 Jun, 10:00–12:00"),
    ],
)
def test_what_cannot_be_had_is_said(talk: Talk, wish: str, told: str) -> None:
    """As a question that may be answered with another time, or fewer people."""
    other = Talk(talk.slot, talk.fleet, talk.database, "other")
    other.say("tomorrow at 10am for 18 for 2 hours").say("1").say("yes")
    assert len(talk.bookings()) == 1
    talk.say(wish)
    assert talk.kind == "clarify" and told in talk.asked["message"]
    talk.say("tomorrow at 3pm, for 4")
    assert talk.kind == "select_room" and talk.asked["data"]["people"] == 4


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_loser_is_offered_others(talk: Talk, language: str) -> None:
    """Two people confirm one room: one has it, the other is told and picks another."""
    other = Talk(talk.slot, talk.fleet, talk.database, "other")
    for one in (talk, other):
        one.say(WISH[language]).say("1")
    other.say("yes")
    talk.say("yes" if language == "en" else "好")
    assert talk.kind == "select_room"
    assert talk.asked["message"].startswith({"en": "Sorry, Plum", "zh": "抱歉，梅"}[language])
    assert [c["id"] for c in talk.asked["data"]["candidates"]] == ["R4", "R5", "R6"]
    talk.say("1")
    assert "Sorry" not in talk.asked["message"]
    talk.say("ok")
    assert [b[0] for b in talk.bookings()] == ["R3", "R4"]


def test_rooms_are_free_again_where_times_only_touch(talk: Talk) -> None:
    """The end of one booking is the beginning of the next."""
    for key, time in (("a", "1pm to 2pm"), ("b", "2pm to 3pm"), ("c", "3pm to 4pm")):
        one = Talk(talk.slot, talk.fleet, talk.database, key)
        one.say(f"tomorrow {time} for 20").say("1").say("yes")
    assert len(talk.bookings()) == 3


def test_the_next_request_starts_clean(talk: Talk) -> None:
    """Nothing of the request before is left but its messages and what it booked (field by
    field: tests/booking/test_state.py)."""
    talk.say("tomorrow at 2pm for 8 with a projector").say("1").say("yes")
    assert talk.state["phase"] == "BOOKED"
    booking = talk.state["booking"]
    talk.say("我想再订一间")
    state = talk.state
    expected: dict[str, Any] = {
        **{"phase": "COLLECTING_SLOTS", "slots": {}, "candidates": [], "room": None},
        **{"confirmed": None, "problem": None, "result": None, "booking": None, "outcome": None},
        **{"language": "zh", "steps": 1, "earlier": booking, "since": state["messages"][-2]["id"]},
    }
    assert {name: value for name, value in state.items() if name in expected} == expected
    assert set(state) == {*expected, "messages", "now"}
    assert state["messages"][-2]["content"] == "我想再订一间"
    assert talk.asked["data"]["missing"] == ["date", "start", "people"]
    talk.say("后天上午9点，4人").say("选1").say("确认")
    assert talk.bookings()[1] == ("R1", "2030-06-05 09:00", 60, 4)


@pytest.mark.parametrize("start", ["noon-ish", "2030-06-05T15:00:00+00:00"])
def test_values_that_the_database_refuses_are_told_as_such(talk: Talk, start: str) -> None:
    """No time, or one that begins after its end: the turn goes on, and says so."""
    slot = state.Slot(start=start, end="2030-06-04T15:00:00+00:00")
    with pytest.raises(rooms.Unanswerable):
        rooms.free_rooms(slot, 4, [], "en")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_booking_that_the_database_refuses_is_not_told_as_taken(
    talk: Talk, database: Database, language: str
) -> None:
    """The person hears that it is not possible, and may change the wish."""
    talk.say(WISH[language]).say("1")
    database.fetch("ALTER TABLE booking.bookings ADD CONSTRAINT few CHECK (people < 8)")
    talk.say("yes" if language == "en" else "好")
    assert talk.kind == "select_room"
    told = {"en": "Sorry, Plum could not be booked", "zh": "抱歉，梅没能订上"}[language]
    assert talk.asked["message"].startswith(told) and talk.bookings() == []
    talk.say("actually 7 people").say("1").say("ok")
    assert [people for *_, people in talk.bookings()] == [7]


def test_answers_stand_in_the_messages_as_they_were_said(talk: Talk) -> None:
    """With the id of their own message, so that clients know them; data in words."""
    talk.say(WISH["zh"]).answer({"room_id": "R4"}).answer({"confirmed": True})
    said = [m for m in talk.state["messages"] if m["type"] == "human"]
    assert [m["content"] for m in said] == [WISH["zh"], "兰", "好的，确认"]
    ids = [m.message_id for m in talk.fleet.status(talk.thread_id).messages]
    assert [m["id"] for m in said[1:]] == ids[1:]
    for message in talk.state["messages"]:
        assert message["content"] and "{" not in message["content"], message


def test_every_call_has_its_result(talk: Talk) -> None:
    """A history that any model takes, in order, with no id twice."""
    talk.say("hi").say(WISH["en"]).say("no").say("make it 6").say("1").say("yes").say("again")
    messages = talk.state["messages"]
    called = [c["id"] for m in messages for c in m.get("tool_calls", [])]
    answered = [m["tool_call_id"] for m in messages if m["type"] == "tool"]
    assert called[:-1] == answered and len({*called}) == len(called)
    assert len({m["id"] for m in messages}) == len(messages)


@pytest.mark.parametrize("overlap", [(0, 60), (30, 60), (15, 15), (-30, 120)])
def test_of_two_who_book_at_once_one_has_it(database: Database, overlap: tuple[int, int]) -> None:
    """Overlapping times of one room, in two transactions at the same moment; again with the
    same request id it is the same booking."""
    begin = datetime(2030, 6, 4, 14, tzinfo=UTC)
    start = begin + timedelta(minutes=overlap[0])
    spans = [(begin, begin + timedelta(hours=1)), (start, start + timedelta(minutes=overlap[1]))]
    barrier = threading.Barrier(2)

    def book(n: int) -> list[Any]:
        span, end = spans[n]
        args = {"room_id": "R3", "start": span, "end": end, "people": 4, "thread_id": "booking:x"}
        with database.connect() as conn:
            barrier.wait(10)
            for _ in range(2):
                found = conn.execute(query("booking_book"), {**args, "request_id": f"r{n}"})
            assert found.fetchall() == []
            again = conn.execute(query("booking_of_request"), {"request_id": f"r{n}"})
            return again.fetchall()

    with ThreadPoolExecutor(2) as pool:
        booked = [rows for rows in pool.map(book, range(2)) if rows]
    assert len(booked) == 1
    assert database.value("SELECT count(*) FROM booking.bookings") == 1
