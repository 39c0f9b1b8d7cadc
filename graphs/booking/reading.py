"""What a person's text says of a room: the rules' whole understanding, as data."""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import cast

from graphs.booking import times, words
from graphs.booking.dates import Named, find_date
from graphs.booking.plaintext import normalised, with_digits
from graphs.booking.shifts import find_shift
from graphs.booking.state import LONGEST, MOST_PEOPLE, NO_DAY, Phase, Slots

_NUMBER = re.compile(r"(?:about |around |大概|大约|约)?\(?(\d+)\s*(?:个|,?\s*please|吧)?[.)!。]*")
_ALL_DAY = re.compile(r"\ball[ -]day\b|\b(?:whole|entire|full) day\b|[全整]天")
#: All day, where rooms are for work.
_WORK = ("09:00", "18:00")
_DAY = 24 * 60
#: Characters that are read; whoever writes more has said it by then.
_LONGEST = 1000
#: A number of nothing here.
_TOO_LONG = re.compile(r"\d{10,}")


@dataclass(frozen=True, slots=True)
class Reading:
    """``slots``: what was said of the request. ``choice``: which of the rooms offered, from 1,
    -1 the last. ``number``: the text is nothing but one."""

    slots: Slots
    choice: int | None = None
    verdict: words.Verdict | None = None
    number: int | None = None


def read(
    text: str,
    now: datetime,
    phase: Phase = "COLLECTING_SLOTS",
    known: Slots | None = None,
) -> Reading:
    """Read a text said at ``now``, in the time zone of the rooms; ``known``: what was said
    before."""
    text = _plain(text)
    verdict = words.verdict_of(text)
    if verdict == "cancel":
        return Reading({}, verdict=verdict)
    choice = None
    text = words.without_denials(with_digits(text)).strip()
    if phase != "COLLECTING_SLOTS":
        choice, text = words.find_choice(text)
    number = _NUMBER.fullmatch(text.strip())
    if number:
        return Reading({}, choice, verdict, int(number[1]))
    return Reading(_slots(text, now, known or {}), choice, verdict)


def names_any_week(text: str, now: datetime) -> bool | None:
    """Whether the day that a text names is a weekday of no week in particular; None: it names
    none."""
    named, _ = find_date(words.without_denials(with_digits(_plain(text))), now.date())
    return None if named is None else named.weekly


def _plain(text: str) -> str:
    return _TOO_LONG.sub(" ", normalised(text[:_LONGEST]))


def _slots(text: str, now: datetime, known: Slots) -> Slots:
    slots, text = find_shift(text, known, now)
    minutes, text = times.find_minutes(text)
    begin, half = known.get("start"), times.half_of_day(text)
    night = _night(known)
    meant = night[1] if night else begin
    day, text = find_date(text, now.date())
    hint = half if half or begin else known.get("half")
    start, end, text = times.find_span(text, hint, meant)
    people, text = words.find_people(text)
    if _ALL_DAY.search(text):
        start = start or _WORK[0]
        end = _WORK[1] if start < _WORK[1] else end
    if day is not None:
        slots["date"] = still_to_come(day, start or meant, now)
    if start is not None:
        slots["start"] = start
    elif half and "start" not in slots and not (meant and times.in_half(meant, half)):
        slots["half"] = half
    if start is not None and end is not None:
        minutes = (times.minute_at(end) - times.minute_at(start)) % LONGEST
    if minutes:
        slots["minutes"] = min(minutes, LONGEST + 1)
    if people is not None and 0 < people <= MOST_PEOPLE:
        slots["people"] = people
    equipment = words.find_equipment(text)
    if equipment is not None:
        slots["equipment"] = equipment
    return by_the_calendar(slots, known)


def by_the_calendar(slots: Slots, known: Slots) -> Slots:
    """Twelve at night is the next day's 00:00; of no day, only the night is known. What is known
    of such a night stays what was meant: "on Friday" is its night, and "at 11 at night" of the
    day before."""
    start, day, night = slots.get("start", ""), slots.get("date"), _night(known)
    if night is not None and day is not None and "half" not in slots:
        start = start or night[1]
    if night is not None and day is None and times.in_half(start, "night"):
        day = night[0]
        slots = {**slots, "date": day} if day else slots
    if start < "24:00":
        return slots
    left = cast(Slots, {name: value for name, value in slots.items() if name != "start"})
    after = _days_on(day or known.get("date"), 1)
    if after is None:
        return {**left, "half": "night"}
    clock = times.clock_text(times.minute_at(start) - _DAY)
    return {**left, "date": after, "start": clock, "half": "night"}


def _night(known: Slots) -> tuple[str | None, str] | None:
    """(the day, the hour from 24:00 on) that were meant, where the calendar has another day."""
    start = known.get("start", "none")
    if known.get("half") != "night" or start >= "01:00":
        return None
    return _days_on(known.get("date"), -1), times.clock_text(times.minute_at(start) + _DAY)


def _days_on(day: str | None, days: int) -> str | None:
    """None: the calendar has none."""
    try:
        return (date.fromisoformat(day or NO_DAY) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return None


def still_to_come(named: Named, start: str | None, now: datetime) -> str:
    """ "Monday at 9", said on a Monday at noon, is the next one."""
    if named.day is None:
        return NO_DAY
    over = named.day == now.date() and start is not None and start <= f"{now:%H:%M}"
    weeks = 1 if named.weekly and over else 0
    return (named.day + timedelta(weeks=weeks)).isoformat()
