"""The day that a normalised text names, in Chinese or English.

Chinese is turned into what dateparser reads; weekdays are counted here, since "下周三" and
"next Wednesday" both mean the one of the next week, which begins on Monday.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta

import dateparser

_DAYS = {"日": 6, "天": 6, "末": 5, **{str(n): n - 1 for n in range(1, 8)}}
_ENGLISH_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"

Reader = Callable[["re.Match[str]", date], date | None]


def find_date(text: str, today: date) -> tuple[date | None, str]:
    """(the day, the text without it). None: it names none, or one that is not."""
    for pattern, reader in _FORMS:
        if found := pattern.search(text):
            day = reader(found, today)
            if day is not None:
                return day, f"{text[: found.start()]} {text[found.end() :]}"
    return None, text


def _parsed(phrase: str, today: date) -> date | None:
    """By dateparser; a day without a year is the next one."""
    settings = {
        "RELATIVE_BASE": datetime.combine(today, time()),
        "PREFER_DATES_FROM": "future",
        "DATE_ORDER": "MDY",
    }
    found = dateparser.parse(phrase, languages=["en"], settings=settings)
    if found is None:
        return None
    # It takes today's own date for next year's.
    if (found.month, found.day) == (today.month, today.day) and str(found.year) not in phrase:
        return today
    day: date = found.date()
    return day


def _phrase(found: "re.Match[str]", today: date) -> date | None:
    return _parsed(re.sub(r"\bof\b", "", found[0]), today)


def _in_days(found: "re.Match[str]", today: date) -> date | None:
    return _parsed(f"in {found[1]} days", today)


def _after(days: int) -> Reader:
    phrase = ("today", "tomorrow")[days] if days < 2 else f"in {days} days"
    return lambda _, today: _parsed(phrase, today)


def _chinese_date(found: "re.Match[str]", today: date) -> date | None:
    year, month, day = found["year"], found["month"], found["day"]
    if month is None:
        month = today.month if int(day) >= today.day else today.month % 12 + 1
        year = today.year + (int(day) < today.day and today.month == 12)
    text = f"{year or today.year}-{int(month):02}-{int(day):02}"
    parsed = _parsed(text, today)
    if parsed is not None and year is None and parsed < today:
        parsed = _parsed(f"{today.year + 1}{text[4:]}", today)
    return parsed


def _chinese_weekday(found: "re.Match[str]", today: date) -> date | None:
    weeks = {"": None, "这": 0, "本": 0, "下": 1, "下下": 2}[found["which"] or ""]
    return _weekday(_DAYS[found["day"]], weeks, today)


def _english_weekday(found: "re.Match[str]", today: date) -> date | None:
    weeks = {"next": 1, "this": 0}.get((found["which"] or found["week"] or "").split(" ")[0])
    return _weekday(_ENGLISH_DAYS.index(found["day"][:3]), weeks, today)


def _weekday(day: int, weeks: int | None, today: date) -> date:
    """That day of the n-th week from this one; None: the next such day, or today."""
    if weeks is None:
        return today + timedelta(days=(day - today.weekday()) % 7)
    return today - timedelta(days=today.weekday()) + timedelta(days=day, weeks=weeks)


_NAMES = r"(?P<day>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)(?:day|nesday|urday|sday)?"
_FORMS: list[tuple["re.Pattern[str]", Reader]] = [
    (re.compile(pattern), reader)
    for pattern, reader in (
        (r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b", _phrase),
        (
            r"(?:(?P<year>\d{4})\s*年\s*)?(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]?",
            _chinese_date,
        ),
        ("大后天", _after(3)),
        ("后天", _after(2)),
        ("明[天日早晚]|明(?=[上下中]午)", _after(1)),
        ("今[天日早晚]|今(?=[上下中]午)", _after(0)),
        (r"(\d+)\s*天(?:之|以)?后", _in_days),
        (
            r"(?P<which>下下|下|这|本)?\s*个?\s*(?:周|星期|礼拜)\s*(?P<day>[1-7日天末])",
            _chinese_weekday,
        ),
        (
            r"(?<![\d:])(?P<year>)?(?P<month>(?!))?(?P<day>\d{1,2})\s*[号日](?![房会楼间])",
            _chinese_date,
        ),
        (r"\bday after tomorrow\b", _after(2)),
        (r"\btomorrow\b|\btmrw?\b|\btmr\b", _after(1)),
        (r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b", _after(0)),
        (r"\bin (\d+) days?\b", _in_days),
        (rf"\b{_MONTHS}\.? {_DAY}(?:,? \d{{4}})?\b", _phrase),
        (rf"\b{_DAY}(?: of)? {_MONTHS}(?:,? \d{{4}})?\b", _phrase),
        (r"(?<![\d/:-])\d{1,2}/\d{1,2}(?:/\d{4})?(?![\d/:-])", _phrase),
        (
            rf"\b(?:(?P<which>next|this|on)\s+)?{_NAMES}\b(?:\s+(?P<week>next week|this week))?",
            _english_weekday,
        ),
    )
]
