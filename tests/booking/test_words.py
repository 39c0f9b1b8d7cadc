"""What the booking assistant's rules read out of texts, in Chinese, in English and mixed."""

import time
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import dateparser
import pytest
from dateparser.search import search_dates
from hypothesis import given
from hypothesis import strategies as st

from graphs.booking.parser import day_of_date, day_of_week
from graphs.booking.plaintext import normalised
from graphs.booking.reading import read
from graphs.booking.state import NO_DAY, Half, Slots
from graphs.booking.words import language_of

#: A Monday.
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=UTC)

WISHES: dict[str, dict[str, Any]] = {
    "明天下午2点8人会议室": {"date": "2026-12-01", "start": "14:00", "people": 8},
    "a room for 8 tomorrow at 2pm for an hour": {
        **{"date": "2026-12-01", "start": "14:00", "minutes": 60, "people": 8}
    },
    "actually 10 people": {"people": 10},
    "后天上午十点半到十二点，十二个人，要投影仪": {
        **{"date": "2026-12-02", "start": "10:30", "minutes": 90, "people": 12},
        "equipment": ["projector"],
    },
    "下周三下午两点到四点 6人": {
        **{"date": "2026-12-09", "start": "14:00", "minutes": 120, "people": 6}
    },
    "周五14:30 一个半小时 四位": {
        **{"date": "2026-12-04", "start": "14:30", "minutes": 90, "people": 4}
    },
    "12月3日晚上7点，20人，两小时": {
        **{"date": "2026-12-03", "start": "19:00", "minutes": 120, "people": 20}
    },
    "大后天中午 5个人": {"date": "2026-12-03", "start": "12:00", "people": 5},
    "今晚八点三刻 3人": {"date": "2026-11-30", "start": "20:45", "people": 3},
    "明早9点 4人": {"date": "2026-12-01", "start": "09:00", "people": 4},
    "三点一刻，十人": {"start": "15:15", "people": 10},
    "上午九点到下午一点": {"start": "09:00", "minutes": 240},
    "30号下午3点": {"date": "2026-11-30", "start": "15:00"},
    "5号上午10点": {"date": "2026-12-05", "start": "10:00"},
    "1月5日": {"date": "2027-01-05"},
    "2027年3月2日": {"date": "2027-03-02"},
    "二〇二七年三月二日": {"date": "2027-03-02"},
    "星期天": {"date": "2026-12-06"},
    "周一": {"date": "2026-11-30"},
    "下周一": {"date": "2026-12-07"},
    "3天后": {"date": "2026-12-03"},
    "半小时": {"minutes": 30},
    "一小时三十分钟": {"minutes": 90},
    "改到3点": {"start": "15:00"},
    "改成10个": {"people": 10},
    "人数改成十二": {"people": 12},
    "next Friday 2-4pm for 6 people with a whiteboard": {
        **{"date": "2026-12-11", "start": "14:00", "minutes": 120, "people": 6},
        "equipment": ["whiteboard"],
    },
    "this friday at 9:30": {"date": "2026-12-04", "start": "09:30"},
    "Dec 3 at 10:30 for 90 minutes, party of 5": {
        **{"date": "2026-12-03", "start": "10:30", "minutes": 90, "people": 5}
    },
    "3rd of December from 2 to 4, we are 12": {
        **{"date": "2026-12-03", "start": "14:00", "minutes": 120, "people": 12}
    },
    "tomorrow afternoon at 2 for half an hour for 4": {
        **{"date": "2026-12-01", "start": "14:00", "minutes": 30, "people": 4}
    },
    "half past two on friday": {"date": "2026-12-04", "start": "14:30"},
    "quarter to three": {"start": "14:45"},
    "tonight at 8 for 2": {"date": "2026-11-30", "start": "20:00", "people": 2},
    "book a room tomorrow between 2 and 4 for 8": {
        **{"date": "2026-12-01", "start": "14:00", "minutes": 120, "people": 8}
    },
    "in 2 days at noon for 3": {"date": "2026-12-02", "start": "12:00", "people": 3},
    "the day after tomorrow, 11-1pm": {"date": "2026-12-02", "start": "11:00", "minutes": 120},
    "2026-12-05 09:00 for 7 for 2 hours": {
        **{"date": "2026-12-05", "start": "09:00", "minutes": 120, "people": 7}
    },
    "12/3 at 9am, 4 ppl": {"date": "2026-12-03", "start": "09:00", "people": 4},
    "november 30 at 5pm": {"date": "2026-11-30", "start": "17:00"},
    "an hour and a half": {"minutes": 90},
    "1.5 hours": {"minutes": 90},
    "make it 10": {"people": 10},
    "without a projector": {"equipment": []},
    "明天 2pm for 8人": {"date": "2026-12-01", "start": "14:00", "people": 8},
    "Tomorrow 下午3点, 6 people, 一个小时": {
        **{"date": "2026-12-01", "start": "15:00", "minutes": 60, "people": 6}
    },
    "我想订一下会议室": {},
    "大一点的": {},
    "hello": {},
    "31 february": {"date": NO_DAY},
    "2/30": {"date": NO_DAY},
    "dec 45": {"date": NO_DAY},
    "13月45日": {},
    "13月5日": {},
    "2月30号": {"date": NO_DAY},
    "2028-13-01": {},
    "25:99": {},
    "下个月5号": {"date": "2026-12-05"},
    "本月30号": {"date": "2026-11-30"},
    "这个月5号": {"date": "2026-11-05"},
    "本月31号": {"date": NO_DAY},
    "on monday next week": {"date": "2026-12-07"},
    "in two weeks at 2": {"date": "2026-12-14", "start": "14:00"},
    "in a week": {"date": "2026-12-07"},
    "两周后下午3点": {"date": "2026-12-14", "start": "15:00"},
    "Wednesday week": {"date": "2026-12-09"},
    "monday week": {"date": "2026-12-07"},
    "a week on Wednesday": {"date": "2026-12-09"},
    "下午14点": {"start": "14:00"},
    "in 99999999999 days": {},
    "from 3 to 4:30": {"start": "15:00", "minutes": 90},
    "下周三上午十点半到十二点": {"date": "2026-12-09", "start": "10:30", "minutes": 90},
    "明天25点": {"date": "2026-12-01"},
    "明天晚上12点": {"date": "2026-12-02", "start": "00:00", "half": "night"},
    "今晚12点半": {"date": "2026-12-01", "start": "00:30", "half": "night"},
    "tonight at 12": {"date": "2026-12-01", "start": "00:00", "half": "night"},
    "tomorrow at midnight": {"date": "2026-12-02", "start": "00:00", "half": "night"},
    "tomorrow from 10pm to midnight": {"date": "2026-12-01", "start": "22:00", "minutes": 120},
    "明天晚上10点到午夜": {"date": "2026-12-01", "start": "22:00", "minutes": 120},
    "2月30日晚上12点": {"date": NO_DAY, "half": "night"},
    "今晚10点到12点": {"date": "2026-11-30", "start": "22:00", "minutes": 120},
    "tonight from 8 to 12": {"date": "2026-11-30", "start": "20:00", "minutes": 240},
    "晚上12点": {"half": "night"},
    "晚上1点": {"half": "night"},
    "tonight at 8 in the evening": {"date": "2026-11-30", "start": "20:00"},
    "tomorrow at 14h for 8": {"date": "2026-12-01", "start": "14:00", "people": 8},
    "at 14h30": {"start": "14:30"},
    "tomorrow at 9.30": {"date": "2026-12-01", "start": "09:30"},
    "at two thirty": {"start": "14:30"},
    "9 at night": {"start": "21:00"},
    "24 dec 2-3pm 6 pax": {"date": "2026-12-24", "start": "14:00", "minutes": 60, "people": 6},
    "on the 15th": {"date": "2026-12-15"},
    "2月30日上午10点": {"date": NO_DAY, "start": "10:00"},
    "Feb 30 at 10 for 4": {"date": NO_DAY, "start": "10:00", "people": 4},
    "2027-02-29": {"date": NO_DAY},
    "3月40人": {"people": 40},
    "31号": {"date": "2026-12-31"},
    "下个月3号": {"date": "2026-12-03"},
    "Monday the 7th": {"date": "2026-12-07"},
    "monday the 7th of december at 10": {"date": "2026-12-07", "start": "10:00"},
    "Tuesday the 7th": {"date": NO_DAY},
    "the 7th at 10": {"date": "2026-12-07", "start": "10:00"},
    "the 3rd of december at 10": {"date": "2026-12-03", "start": "10:00"},
    "yesterday at 3": {"date": "2026-11-29", "start": "15:00"},
    "昨天下午3点": {"date": "2026-11-29", "start": "15:00"},
    "前天": {"date": "2026-11-28"},
    "上周五": {"date": "2026-11-27"},
    "not tomorrow, friday": {"date": "2026-12-04"},
    "last friday": {"date": "2026-11-27"},
    "上周三": {"date": "2026-11-25"},
    "明儿3点": {"date": "2026-12-01", "start": "15:00"},
    "for 90 minutes": {"minutes": 90},
    "for an hour and 15 minutes": {"minutes": 75},
    "three quarters of an hour": {"minutes": 45},
    "2h30": {"minutes": 150},
    "for 13 hours": {"minutes": 780},
    # More than a day, however much.
    "for 25 hours": {"minutes": 1441},
    "30 hours": {"minutes": 1441},
    "半天": {"minutes": 240},
    "明天全天 4人": {"date": "2026-12-01", "start": "09:00", "minutes": 540, "people": 4},
    "all day tomorrow": {"date": "2026-12-01", "start": "09:00", "minutes": 540},
    "tomorrow from 2pm all day": {"date": "2026-12-01", "start": "14:00", "minutes": 240},
    "tomorrow evening for 4": {"date": "2026-12-01", "half": "pm", "people": 4},
    "明天晚上 4人": {"date": "2026-12-01", "half": "night", "people": 4},
    "good morning, a room tomorrow at 3": {"date": "2026-12-01", "start": "15:00"},
    "早上好，明天3点": {"date": "2026-12-01", "start": "15:00"},
    "from 8 to 10 people": {"people": 10},
    "between 8 and 10 people tomorrow": {"date": "2026-12-01", "people": 10},
    "from 3 to 4 and 5 people": {"start": "15:00", "minutes": 60, "people": 5},
    "two dozen people": {"people": 24},
    "for a dozen": {"people": 12},
    "half a dozen people": {"people": 6},
    "until 5": {},
    "tomorrow 2pm, 4 people, until 4pm": {
        **{"date": "2026-12-01", "start": "14:00", "minutes": 120, "people": 4}
    },
    "until 5pm tomorrow from 2pm": {"date": "2026-12-01", "start": "14:00", "minutes": 180},
    "明天下午2点开会，4个人，到4点": {
        **{"date": "2026-12-01", "start": "14:00", "minutes": 120, "people": 4}
    },
    "tomorrow morning at 9 for 4 till noon": {
        **{"date": "2026-12-01", "start": "09:00", "minutes": 180, "people": 4}
    },
    "上个月3号": {"date": "2026-10-03"},
    "till 6pm": {},
    "in an hour": {"date": "2026-11-30", "start": "16:00"},
    "半小时后 4人": {"date": "2026-11-30", "start": "15:30", "people": 4},
    "in 48 hours": {"date": "2026-12-02", "start": "15:00"},
    "100小时后": {"date": "2026-12-04", "start": "19:00"},
    "in 9000 hours": {},
    "in 99999999 hours": {},
    "half an hour later": {},
    "推迟一小时": {},
    "NaN people": {},
    "0 people": {},
    "零个人": {},
    "-3 people": {},
    "负三个人": {},
    "2-3 people": {"people": 3},
    "1001 people": {"people": 1001},
    "9999999 people": {},
    "twenty-five people": {"people": 25},
    "十来个人": {"people": 10},
    "一千零一人": {"people": 1001},
    "两万五千人": {"people": 25000},
    "not 8 but 10 people": {"people": 10},
    "不是8个人，是10个人": {"people": 10},
    "for 3 days": {},
    "for 2 weeks": {},
    "not tomorrow but friday at 2": {"date": "2026-12-04", "start": "14:00"},
    "why not tomorrow at 2, for 8": {"date": "2026-12-01", "start": "14:00", "people": 8},
    "明天不行，后天下午2点": {"date": "2026-12-02", "start": "14:00"},
    "明天2点行不行": {"date": "2026-12-01", "start": "14:00"},
    "we don't need a projector anymore": {"equipment": []},
    "no need for a projector": {"equipment": []},
    "cancel the projector": {"equipment": []},
    "取消投影": {"equipment": []},
    "don't cancel the projector": {"equipment": ["projector"]},
    "别取消投影": {"equipment": ["projector"]},
    "tomorrow at 2 🙂 for 8 🎉": {"date": "2026-12-01", "start": "14:00", "people": 8},
    "🙂": {},
    "": {},
    # Midnight or noon, who knows.
    "上午12点": {"half": "am"},
    "早上12点半": {"half": "am"},
    "in the morning at 12": {"half": "am"},
    "tomorrow at 12am": {"date": "2026-12-01", "start": "00:00"},
    "明天凌晨12点": {"date": "2026-12-01", "start": "00:00"},
    "12pm": {"start": "12:00"},
    "上午9点到12点": {"start": "09:00", "minutes": 180},
    "at 10 until 2": {"start": "10:00", "minutes": 240},
    "tomorrow at 9 till 11": {"date": "2026-12-01", "start": "09:00", "minutes": 120},
    "from 10am to 2, 5 people": {"start": "10:00", "minutes": 240, "people": 5},
    "at 10am and 2 people": {"start": "10:00", "people": 2},
    "at 10am - 8 people": {"start": "10:00", "people": 8},
    "22:00-02:00": {"start": "22:00", "minutes": 240},
    "from 10pm until 2": {"start": "22:00", "minutes": 240},
    "11pm to 1:30am": {"start": "23:00", "minutes": 150},
    "晚上10点到凌晨2点": {"start": "22:00", "minutes": 240},
    "from 23 to 1": {"start": "23:00", "minutes": 120},
    "from 3pm to 2pm": {"start": "15:00"},
    "14:00-14:00": {"start": "14:00"},
    # Today's nine o'clock is over.
    "on monday at 9": {"date": "2026-12-07", "start": "09:00"},
    "monday at 3pm": {"date": "2026-12-07", "start": "15:00"},
    "monday at 4pm": {"date": "2026-11-30", "start": "16:00"},
    "周一上午9点": {"date": "2026-12-07", "start": "09:00"},
    "周一下午4点": {"date": "2026-11-30", "start": "16:00"},
    "this monday at 9": {"date": "2026-11-30", "start": "09:00"},
    "这周一上午9点": {"date": "2026-11-30", "start": "09:00"},
    "today at 9": {"date": "2026-11-30", "start": "09:00"},
    "今天上午9点": {"date": "2026-11-30", "start": "09:00"},
    "at 9": {"start": "09:00"},
    "上午9点": {"start": "09:00"},
}


@pytest.mark.parametrize("text", WISHES)
def test_a_wish_is_read(text: str) -> None:
    """Day, time, length, people and equipment; nothing that was not said."""
    assert read(text, NOW).slots == WISHES[text]


def test_a_weekday_is_one_on_which_the_hour_is_still_to_come() -> None:
    """Also where the hour was said before."""
    known: Slots = {"start": "09:00"}
    assert read("monday", NOW, known=known).slots == {"date": "2026-12-07"}
    assert read("周一", NOW, known=known).slots == {"date": "2026-12-07"}
    assert read("today", NOW, known=known).slots == {"date": "2026-11-30"}


#: What dateparser makes of whole phrases, and we for that reason do not ask it: "next" is this
#: week's, a day that is none is another, a number is a day, and half of the times are unknown.
ASTRAY = {
    "next wednesday": "2026-12-02 00:00",
    "friday next week": None,
    "2/30": "2030-11-02 00:00",
    "at 2": "2027-02-28 00:00",
    "half past two": None,
    "quarter to three": None,
    "2 o'clock": None,
    "2点": None,
    "下午2点半": None,
    "下周三": None,
    "12月3日": None,
}


@pytest.mark.parametrize("phrase", ASTRAY)
def test_the_parser_goes_astray(phrase: str) -> None:
    """Once it reads one of these, what reads it for us may go."""
    settings = {
        **{"RELATIVE_BASE": datetime(2026, 11, 30), "PREFER_DATES_FROM": "future"},
        "DATE_ORDER": "MDY",
    }
    found = dateparser.parse(phrase, languages=["en", "zh"], settings=settings)
    assert (found and f"{found:%Y-%m-%d %H:%M}") == ASTRAY[phrase]


def test_the_parser_does_not_find_the_day_and_the_time_in_a_message() -> None:
    """It takes the people into the time, and the length for another one; Chinese for nothing."""
    settings = {"RELATIVE_BASE": datetime(2026, 11, 30), "PREFER_DATES_FROM": "future"}
    found = search_dates(
        "a room for 8 tomorrow at 2pm for an hour", languages=["en"], settings=settings
    )
    assert [phrase for phrase, _ in found] == ["8 tomorrow at 2pm", "an hour"]
    assert "14:00" not in [f"{at:%H:%M}" for _, at in found]
    assert search_dates("明天下午2点8人会议室", languages=["zh"], settings=settings) is None


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("half an hour later", {"start": "14:30"}),
        ("晚半个小时", {"start": "14:30"}),
        ("推迟一小时", {"start": "15:00"}),
        ("提前15分钟", {"start": "13:45"}),
        ("20 hours earlier", {}),
        ("30 minutes longer", {"minutes": 120}),
        ("延长半小时", {"minutes": 120}),
        ("缩短半小时", {"minutes": 60}),
        ("2 hours shorter", {}),
        ("延长到两个小时", {"minutes": 120}),
        ("今晚2个小时", {"date": "2026-11-30", "half": "night", "minutes": 120}),
        ("参加2小时", {"minutes": 120}),
        ("再加半小时", {"minutes": 120}),
        ("周五晚两小时", {"date": "2026-12-04", "minutes": 120}),
        ("后天晚2小时", {"date": "2026-12-02", "minutes": 120}),
        ("12月3日晚2小时", {"date": "2026-12-03", "minutes": 120}),
        ("傍晚2小时", {"minutes": 120}),
        ("周五早1小时", {"date": "2026-12-04", "minutes": 60}),
        ("早1小时", {"start": "13:00"}),
        ("for 2 hours later today", {"date": "2026-11-30", "minutes": 120}),
        ("for an hour longer", {"minutes": 150}),
        # More than a day, however much.
        ("23 hours longer", {"minutes": 1441}),
    ],
)
def test_a_shift_is_counted_from_what_is_known(text: str, changed: Slots) -> None:
    """Within the day; a length is one only where nothing is shifted by it."""
    known: Slots = {"date": "2026-12-01", "start": "14:00", "minutes": 90}
    assert read(text, NOW, known=known).slots == changed


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("12 at night please", {"date": "2026-12-02", "start": "00:00", "half": "night"}),
        ("晚上12点半", {"date": "2026-12-02", "start": "00:30", "half": "night"}),
        ("no, at 11 at night", {"date": "2026-12-01", "start": "23:00"}),
        ("on friday", {"date": "2026-12-05", "start": "00:00", "half": "night"}),
        ("friday night", {"date": "2026-12-05", "start": "00:00", "half": "night"}),
        ("friday at 3pm", {"date": "2026-12-04", "start": "15:00"}),
        ("in the morning", {"half": "am"}),
        ("at 1am", {"start": "01:00"}),
        (
            "until 2",
            {"date": "2026-12-02", "start": "00:00", "half": "night", "minutes": 120},
        ),
        ("for 2 hours", {"minutes": 120}),
    ],
)
def test_twelve_at_night_stays_of_the_night_that_was_meant(text: str, changed: Slots) -> None:
    """However often it is said: the calendar has it on the day after that night's."""
    known = read("tomorrow at 12 at night", NOW).slots
    assert known == {"date": "2026-12-02", "start": "00:00", "half": "night"}
    assert read(text, NOW, known=known).slots == changed


@pytest.mark.parametrize(
    ("now", "text", "start"),
    [
        # Berlin's clocks go back at three in October, and forward at two in March.
        ("2026-10-25T00:30:00+02:00", "in 4 hours", "03:30"),
        ("2026-10-25T02:30:00+02:00", "in 2 hours", "03:30"),
        ("2027-03-28T01:30:00+01:00", "半小时后", "03:00"),
    ],
)
def test_from_now_is_as_long_as_was_said(now: str, text: str, start: str) -> None:
    """Also over a change of the clocks."""
    said = datetime.fromisoformat(now).astimezone(ZoneInfo("Europe/Berlin"))
    assert read(text, said).slots == {"date": now[:10], "start": start}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("until 5", {"minutes": 180}),
        ("till 6pm", {"minutes": 240}),
        ("until noon", {}),
        ("till 8am", {}),
        ("until 8", {"minutes": 360}),
        ("ending at 4:30", {"minutes": 150}),
        ("到5点", {"minutes": 180}),
        ("到下午五点半", {"minutes": 210}),
        ("延长到5点", {"minutes": 180}),
        ("改到5点", {"start": "17:00"}),
        ("推迟到5点", {"start": "17:00"}),
        ("move it to 5pm", {"start": "17:00"}),
    ],
)
def test_an_end_changes_the_length_and_not_the_start(text: str, changed: Slots) -> None:
    """It is after the start, or it is none."""
    known: Slots = {"date": "2026-12-01", "start": "14:00"}
    assert read(text, NOW, known=known).slots == {"start": "14:00"} | changed


@pytest.mark.parametrize(
    ("half", "texts"),
    [
        ("pm", {"at 8": "20:00", "8点": "20:00", "8:30": "20:30", "3": None, "at 9am": "09:00"}),
        ("night", {"8点": "20:00", "from 7 to 9": "19:00", "14点": "14:00"}),
        ("am", {"at 5": "05:00", "8点": "08:00"}),
    ],
)
def test_an_hour_is_of_the_half_that_was_said_before(
    half: Half, texts: dict[str, str | None]
) -> None:
    """Where it does not say another, and no start is known."""
    known: Slots = {"date": "2026-12-01", "half": half}
    found = {text: read(text, NOW, known=known).slots.get("start") for text in texts}
    assert found == texts
    assert read("at 8", NOW, known={**known, "start": "14:00"}).slots == {"start": "08:00"}


@pytest.mark.parametrize("text", ["9" * 5000 + w for w in ("", " people", " hours", "天后", "点")])
def test_a_number_without_end_is_none(text: str) -> None:
    """Also behind other words."""
    for before in ("", "in ", "at "):
        assert read(before + text, NOW).slots == {}


@given(
    st.dates(date(2026, 1, 1), date(2032, 12, 31)),
    st.integers(0, 364),
)
def test_a_day_without_a_year_is_the_next_one(day: date, ahead: int) -> None:
    """From today on; a weekday within a week."""
    today = day - timedelta(days=ahead)
    assert day_of_date(f"{day.month}/{day.day}", today) == day
    since = day - timedelta(days=ahead % 7)
    assert day_of_week(f"{day:%A}"[:3].lower(), since) == day


def test_a_message_is_read_in_no_time() -> None:
    """Half of them within 20 ms of this process's own time; the first loads the parser's
    language."""
    read("tomorrow at 2pm", NOW)
    took = []
    for text in WISHES:
        begun = time.process_time()
        read(text, NOW)
        took.append(time.process_time() - begun)
    assert median(took) < 0.02


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        *(
            ("选1", 1),
            ("选第二个", 2),
            ("第二个", 2),
            ("第三间", 3),
            ("要第一个", 1),
            ("最后一个", -1),
        ),
        *(("the second one", 2), ("second", 2), ("The 2nd, please", 2), ("the 2nd please", 2)),
        *(("number two", 2), ("2)", None), ("no, the second", 2), ("I'd like the last", -1)),
        *(("I'll take 3", 3), ("option 2", 2), ("#2", 2), ("the last one", -1), ("room 2", 2)),
        *(("not the first one but the third one", 3), ("第一个不行，第二个", 2)),
        *(("actually 10 people", None), ("改成10人", None), ("选10人的", None)),
    ],
)
def test_a_choice_is_read(text: str, choice: int | None) -> None:
    """By number or order, where rooms are offered."""
    assert read(text, NOW, "AWAITING_SELECTION").choice == choice


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("约十个", 10), ("not 8 but 10", 10), ("不是8个,是10个", 10), ("not 8", None)],
)
def test_a_mere_number_is_read(text: str, number: int | None) -> None:
    """Also where another one is denied first."""
    assert read(text, NOW).number == number


@pytest.mark.parametrize(
    ("verdict", "texts"),
    [
        (
            "yes",
            "yes|yes 👍|👍🏽|Yes, please|ok book it|sure|go ahead"
            "|好|好的|确认|可以，谢谢|是的，预订吧|就这个|没问题",
        ),
        (
            "no",
            "the other one|另一个|换另外一个|no need, thanks|not needed|no want"
            "|no|No thanks|not that one|不|不要|不行|换一个|another room|都不行",
        ),
        (
            "cancel",
            "forget about it|I don't want it anymore|我不想订了|退出"
            "|cancel|Cancel it, please|never mind|取消|不要了，取消|不，取消"
            "|要不取消吧|还是取消吧|算了|不订了|cancel the booking|取消吧"
            "|never mind cancel it|don't forget to cancel it|I don't need it cancel please"
            "|not needed anymore cancel|why not cancel it|why don't you cancel it"
            "|no longer needed|not needed anymore|no need, cancel it"
            "|no longer needed, cancel|I want to cancel|could you cancel my booking?"
            "|为什么不取消|怎么没取消|还没取消吗|不得不取消了|别忘了取消",
        ),
        (
            "keep",
            "不要取消|别取消|先别取消，让我想想|不取消|先不要取消预订|don't cancel"
            "|please do not cancel it|I don't want to cancel|I didn't mean to cancel"
            "|no need to cancel|dont cancel|还是别取消了|没取消",
        ),
        (None, "hm, cancelling the projector?"),
        (
            None,
            "maybe|8|明天|yesterday|不好意思，改成10人|canceled projector lamp|notably|取消投影",
        ),
    ],
)
def test_a_verdict_is_read(verdict: str | None, texts: str) -> None:
    """Of the text as a whole: a word in it is none."""
    assert {t: read(t, NOW, "CONFIRMING").verdict for t in texts.split("|")} == dict.fromkeys(
        texts.split("|"), verdict
    )


@pytest.mark.parametrize(
    ("text", "language"),
    [("明天2点", "zh"), ("tomorrow", "en"), ("明天 for 8", "zh"), ("8", None), ("2pm", None)],
)
def test_the_language_is_told(text: str, language: str | None) -> None:
    """None where the text says too little, so that the one before goes on."""
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("text", "number"),
    [("十二个", "12个"), ("一百二十人", "120人"), ("二十", "20"), ("两点", "2点"), ("８人", "8人")],
)
def test_chinese_numerals_become_digits(text: str, number: str) -> None:
    """Also in full width."""
    assert normalised(text) == number


@given(
    st.text(
        alphabet=st.sampled_from(
            "明天下午周三一二十两点半刻到人个小时for8atpm:-/ the第选取消不好1月日"
        )
    )
)
def test_no_text_is_too_much(text: str) -> None:
    """Whatever is written is read, or is not."""
    for phase in ("COLLECTING_SLOTS", "AWAITING_SELECTION", "CONFIRMING"):
        found = read(text, NOW, phase)  # type: ignore[arg-type]
        assert found.slots.get("people", 1) > 0 and 0 < found.slots.get("minutes", 1) <= 1441


@pytest.mark.parametrize(
    "word", ["this one ", "that ", "好的", "1", "第", "at 1 ", "周", "取消了吧", "no "]
)
def test_a_long_text_takes_no_time(word: str) -> None:
    """No pattern goes through all the ways to read it."""
    begun = time.process_time()
    read(word * 20_000 + "!x", NOW, "AWAITING_SELECTION")
    assert time.process_time() - begun < 2
