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
from infra.settings import get_settings
from infra.sql import query
from producers import Fleet
from producers.cli import main
from tests.harness import Broker, Database
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


WISH = {"en": "a room for 8 tomorrow at 2pm", "zh": "明天下午两点，8个人"}


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


ROOMS = {"en": "4 free", "zh": "4间空闲"}
#: What is said where a room is to be picked and where one is to be confirmed: what comes of it.
#: None: it is not understood, and asked again.
ODD: dict[str, dict[str, tuple[str | None, str | None]]] = {
    "en": {
        "the other one": ("What would you like to change", ROOMS["en"]),
        "the second one": ("Shall I book Orchid", "Shall I book Orchid"),
        "number two": ("Shall I book Orchid", "Shall I book Orchid"),
        "(2)": ("Shall I book Orchid", "Shall I book Orchid"),
        "no, the last": ("Shall I book Lotus", "Shall I book Lotus"),
        "option 9": (None, None),
        "pine or orchid": (None, None),
        "for 90 minutes": ("14:00–15:30", "14:00–15:30"),
        "from 3 to 4:30": ("15:00–16:30", "15:00–16:30"),
        "half an hour later": ("14:30–15:30", "14:30–15:30"),
        "for 13 hours": ("14:00–2030-06-05 03:00", "14:00–2030-06-05 03:00"),
        "not 8 but 10 people": ("For 10", "For 10"),
        "yes, but for ten people": ("For 10", "For 10"),
        "1001 people": ("No room holds 1001", "No room holds 1001"),
        "0 people": (None, None),
        "-3 people": (None, None),
        "NaN people": (None, None),
        "tomorrow at 25": (None, None),
        "🙂": (None, None),
        "x" * 5000: (None, None),
        "9" * 5000 + " hours": (None, None),
        "please don't cancel": ("we go on. For 8", "we go on. Shall I book Plum"),
        "forget about it": ("Nothing was booked", "Nothing was booked"),
        "yes 👍": (None, "Booked: Plum"),
    },
    "zh": {
        "换另外一个": ("您想改什么", ROOMS["zh"]),
        "选2": ("确认预订兰", "确认预订兰"),
        "二": ("确认预订兰", "确认预订兰"),
        "不要这个，要第二个": ("确认预订兰", "确认预订兰"),
        "第九个": (None, None),
        "松或者兰": (None, None),
        "九十分钟": ("14:00–15:30", "14:00–15:30"),
        "下周三上午十点半到十二点": ("6月12日（周三）10:30–12:00", "6月12日（周三）10:30–12:00"),
        "推迟一小时": ("15:00–16:00", "15:00–16:00"),
        "不是8个人，是10个人": ("10人，有", "10人，有"),
        "两万五千人": ("没有能容纳25000人", "没有能容纳25000人"),
        "零个人": (None, None),
        "负三个人": (None, None),
        "明天25点": (None, None),
        "🙂": (None, None),
        "啊" * 5000: (None, None),
        "先别取消，让我想想": ("我们继续。6月4日", "我们继续。确认预订梅"),
        "我不想订了": ("没有预订任何会议室", "没有预订任何会议室"),
        "没问题👌": (None, "已预订：梅"),
    },
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("phase", [0, 1])
def test_odd_words_are_taken_as_they_are_meant(talk: Talk, phase: int, language: str) -> None:
    """Or asked about; none is taken for something else, and none ends the turn."""
    unclear = {"en": "did not understand", "zh": "没有听懂"}[language]
    for n, (said, told) in enumerate(ODD[language].items()):
        one = Talk(talk.slot, talk.fleet, talk.database, f"odd{n}")
        one.say(WISH[language])
        if phase == 1:
            one.say("1")
        before = one.asked
        one.say(said)
        last = one.asked["message"] if one.questions() else one.texts("ai")[-1]
        expected = told[phase]
        assert (expected or unclear) in last, (said[:40], last)
        assert (unclear in last) == (expected is None), (said[:40], last)
        if expected is None:
            assert one.asked["data"] == before["data"]


@pytest.mark.parametrize("odd", ["qwerty", {"room_id": "R99"}, {"what": [1]}, None, 77, [], ""])
def test_an_answer_that_says_nothing_is_asked_for_again(talk: Talk, odd: Any) -> None:
    """The same question stays, in words that say so; nothing else changes."""
    talk.say(WISH["en"])
    before = talk.asked
    talk.answer(odd)
    assert talk.kind == "select_room" and talk.asked["data"] == before["data"]
    assert "did not understand" in talk.asked["message"]
    talk.say("1").answer(odd)
    assert talk.kind == "confirm" and talk.bookings() == []


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
    field: tests/unit/test_booking_state.py)."""
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


@pytest.mark.parametrize(
    ("said", "when"),
    [
        (["tomorrow evening for 4", "8"], "Tue 4 Jun, 20:00–21:00"),
        (["明天晚上，4人", "8点"], "6月4日（周二）20:00–21:00"),
        (["明天晚上 4人", "12点"], "6月5日（周三）00:00–01:00"),
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


@pytest.mark.parametrize("start", ["noon-ish", "2030-06-05T15:00:00+00:00"])
def test_values_that_the_database_refuses_are_told_as_such(talk: Talk, start: str) -> None:
    """No time, or one that begins after its end: the turn goes on, and says so."""
    slot = state.Slot(start=start, end="2030-06-04T15:00:00+00:00")
    with pytest.raises(rooms.Unanswerable):
        rooms.free_rooms(slot, 4, [], "en")


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
