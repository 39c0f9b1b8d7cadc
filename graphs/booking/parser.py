"""What dateparser is asked, and how: the day of a date or a weekday, the minute of a clock.

It would rather take what is no date for some day than for none ("2/30" for one of 2030), so a
date has to name a day and a month; which words are a date or a time, `dates` and `times` tell.
"""

from datetime import date, datetime, time, timedelta
from typing import Any

import dateparser


def day_of_date(phrase: str, today: date) -> date | None:
    """ "Dec 3", "12/3", "2026-12-03": without a year the first such day from today on."""
    return _day(phrase, today - timedelta(days=1), REQUIRE_PARTS=["day", "month"])


def day_of_week(name: str, since: date) -> date | None:
    """ "wed": the first one from ``since`` on."""
    return _day(name, since - timedelta(days=1))


def day_from(phrase: str, today: date) -> date | None:
    """ "tomorrow", "in 3 days"."""
    return _day(phrase, today)


def minute_of(clock: str) -> int | None:
    """Minutes since midnight at "2:30pm", "14:30", "noon"; None: no such time."""
    found = _parsed(clock, PARSERS=["absolute-time"])
    return None if found is None else found.hour * 60 + found.minute


def _day(phrase: str, base: date, **settings: Any) -> date | None:
    # What has no year comes after the base, never on it.
    settings |= {"RELATIVE_BASE": datetime.combine(base, time()), "PREFER_DATES_FROM": "future"}
    found = _parsed(phrase, DATE_ORDER="MDY", **settings)
    return None if found is None else found.date()


def _parsed(phrase: str, **settings: Any) -> datetime | None:
    found: datetime | None = dateparser.parse(phrase, languages=["en"], settings=settings)
    return found
