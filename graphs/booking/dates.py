"""The day that a normalised text names, in Chinese or English.

Where a day is named is found here, and Chinese is turned into what dateparser reads. Weeks are
counted here: "下周三" and "next Wednesday" are the one of the next week, which begins on Monday.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from graphs.booking.parser import day_from, day_of_date, day_of_week

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HAN_DAYS = {"日": 6, "天": 6, "末": 5, **{str(n): n - 1 for n in range(1, 8)}}
_MONTHS = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_MONTH = "(?:1[0-2]|0?[1-9])"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"


@dataclass(frozen=True, slots=True)
class Named:
    """``day``: None for one that the calendar has not. ``weekly``: a weekday of no week in
    particular, so that a week later would do as well."""

    day: date | None
    weekly: bool = False


Reader = Callable[["re.Match[str]", date], date | None]


def find_date(text: str, today: date) -> tuple[Named | None, str]:
    """(the day, the text without it). None: it names none."""
    for pattern, reader in _FORMS:
        if found := pattern.search(text):
            day = reader(found, today)
            left = f"{text[: found.start()]} {text[found.end() :]}"
            if day is not None:
                return Named(day, reader is _weekday and _week(found) is None), left
            if reader in (_date, _numbered, _weekday_of_month) and _NAMES_A_DAY.search(found[0]):
                return Named(None), left
    return None, text


def _date(found: "re.Match[str]", today: date) -> date | None:
    return day_of_date(re.sub(r"\bof\b", "", found[0]), today)


def _in_days(found: "re.Match[str]", today: date) -> date | None:
    return day_from(f"in {found[1]} days", today)


def _in_weeks(found: "re.Match[str]", today: date) -> date:
    return today + timedelta(weeks=1 if found[1] == "a" else int(found[1]))


def _week_after(found: "re.Match[str]", today: date) -> date | None:
    """ "Wednesday week": a week after the next one."""
    day = day_of_week(found["day"][:3], today)
    return None if day is None else day + timedelta(weeks=1)


def _after(days: int) -> Reader:
    return lambda _, today: today + timedelta(days=days)


def _numbered(found: "re.Match[str]", today: date) -> date | None:
    given = found.groupdict()
    year, month, day = given.get("year"), given.get("month"), given["day"]
    which = given.get("which")
    if which == "下":
        month = today.month % 12 + 1
    elif which == "上":
        before = today.replace(day=1) - timedelta(days=1)
        year, month = before.year, before.month
    elif which is not None:
        year, month = today.year, today.month
    elif month is None:
        return _next_of_month(int(day), today)
    return day_of_date(f"{month}/{day}" + (f"/{year}" if year else ""), today)


def _next_of_month(number: int, today: date) -> date | None:
    """The next day with this number: not every month has a 31st."""
    days = (today + timedelta(days=n) for n in range(62))
    return next((day for day in days if day.day == number), None)


def _weekday_of_month(found: "re.Match[str]", today: date) -> date | None:
    """ "Monday the 7th", where the next 7th is a Monday."""
    day = _next_of_month(int(found["number"]), today)
    named = _WEEKDAYS.index(found["day"][:3])
    return day if day is not None and day.weekday() == named else None


def _weekday(found: "re.Match[str]", today: date) -> date | None:
    said = found["day"]
    name = _WEEKDAYS[_HAN_DAYS[said]] if said in _HAN_DAYS else said[:3]
    weeks = _week(found)
    if weeks is None:
        return day_of_week(name, today)
    return day_of_week(name, today - timedelta(days=today.weekday()) + timedelta(weeks=weeks))


def _week(found: "re.Match[str]") -> int | None:
    """Weeks from this one; None: of no week in particular."""
    given = found.groupdict()
    return _WEEKS.get((given.get("week") or given.get("which") or "").split(" ")[0])


_WEEKS = {"last": -1, "this": 0, "next": 1, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
#: What can't be read as anything but a day: "3月40" may go on as "人".
_NAMES_A_DAY = re.compile(r"[日号]$|[a-z]|\d[-/.]\d")
_NAMES = r"(?P<day>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)(?:day|nesday|urday|sday)?"
_FORMS: list[tuple["re.Pattern[str]", Reader]] = [
    (re.compile(pattern), reader)
    for pattern, reader in (
        (rf"\b\d{{4}}[-/.]{_MONTH}[-/.]\d{{1,2}}\b", _date),
        (
            rf"(?:(?P<year>\d{{4}})\s*年\s*)?(?<!\d)(?P<month>{_MONTH})\s*月"
            r"\s*(?P<day>\d{1,2})\s*[日号]?",
            _numbered,
        ),
        ("大前天", _after(-3)),
        ("前天", _after(-2)),
        ("昨[天日儿早晚]", _after(-1)),
        ("大后天", _after(3)),
        ("后天", _after(2)),
        ("明[天日儿早晚]|明(?=[上下中]午)", _after(1)),
        ("今[天日儿早晚]|今(?=[上下中]午)", _after(0)),
        (r"(\d+)\s*天(?:之|以)?后", _in_days),
        (
            r"(?P<which>下下|下|这|本|上)?\s*个?\s*(?:周|星期|礼拜)\s*(?P<day>[1-7日天末])",
            _weekday,
        ),
        (r"(?P<which>上|下|这|本)\s*个?\s*月\s*(?P<day>\d{1,2})\s*[号日]?", _numbered),
        (r"(?<![\d:])(?<!\d月)(?<!\d月 )(?P<day>\d{1,2})\s*[号日](?![房会楼间])", _numbered),
        (r"\bday after tomorrow\b", _after(2)),
        (r"\bday before yesterday\b", _after(-2)),
        (r"\byesterday\b|\blast night\b", _after(-1)),
        (r"\btomorrow\b|\btmrw?\b|\btmr\b", _after(1)),
        (r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b", _after(0)),
        (r"\bin (\d+) days?\b", _in_days),
        (r"(?<!day )\bin (a|\d{1,2}) weeks?\b", _in_weeks),
        (r"(\d{1,2})\s*个?\s*(?:周|星期|礼拜)(?:之|以)?后", _in_weeks),
        (rf"\b(?:a|1) week (?:on|from) {_NAMES}\b", _week_after),
        (rf"\b{_NAMES} week\b", _week_after),
        (rf"\b{_MONTHS}\.? {_DAY}(?:,? \d{{4}})?\b(?!\s*(?:[:-]\d|[ap]\.?m\b))", _date),
        (r"\bon the (?P<day>\d{1,2})(?:st|nd|rd|th)\b", _numbered),
        (rf"\b{_DAY}(?: of)? {_MONTHS}(?:,? \d{{4}})?\b", _date),
        (rf"\b{_NAMES},? the (?P<number>\d{{1,2}})(?:st|nd|rd|th)\b", _weekday_of_month),
        (r"\bthe (?P<day>\d{1,2})(?:st|nd|rd|th)(?= (?:at|from|between)\b)", _numbered),
        (r"(?<![\d/:-])\d{1,2}/\d{1,2}(?:/\d{4})?(?![\d/:-])", _date),
        (
            rf"\b(?:(?P<which>last|next|this|on)\s+)?{_NAMES}\b"
            r"(?:\s+(?P<week>next week|this week))?",
            _weekday,
        ),
    )
]
