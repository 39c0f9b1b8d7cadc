"""Wishes that are counted from something: "in 2 hours", "half an hour later", "延长半小时"."""

import re
from datetime import UTC, datetime, timedelta

from graphs.booking.state import LENGTH, LONGEST, Slots
from graphs.booking.times import clock_text, find_length, minute_at

#: "周五晚2小时" is the evening of a day, "晚2小时" is later.
_OF_NO_DAY = r"(?<![今明昨当傍清大天日末号\d])"
#: What stands right before a length, or right behind it.
_KINDS: list[tuple[str, "re.Pattern[str]", "re.Pattern[str]"]] = [
    (
        kind,
        re.compile(rf"(?:{before})\s*(?:about|大概|大约|约)?\s*$"),
        re.compile(rf"\s*(?:{after})"),
    )
    for kind, before, after in (
        ("from_now", r"\bin", r"(?:之|以)?后(?!天)|from now\b"),
        ("later", rf"推迟|延后|延迟|往后[推挪]?|{_OF_NO_DAY}晚", r"later\b"),
        ("earlier", rf"提前|往前[推挪]?|{_OF_NO_DAY}早", r"earlier\b"),
        ("longer", r"延长|增加|(?<!参)加", r"(?:longer|more)\b"),
        ("shorter", r"缩短|减少?", r"(?:shorter|less)\b"),
    )
]
#: "For 2 hours later today" is a length.
_FOR = re.compile(r"\bfor\s+(?:about\s+)?$")
_NOT_BEHIND_FOR = ("from_now", "later", "earlier")
#: Minutes from now in which rooms are looked for.
_AHEAD = 365 * 24 * 60


def find_shift(text: str, known: Slots, now: datetime) -> tuple[Slots, str]:
    """(what comes of it, the text without it). What is known decides: half an hour later than
    nothing is nothing."""
    found = find_length(text)
    if found is None:
        return {}, text
    minutes, begin, end = found
    told = _FOR.search(text[:begin])
    for kind, before, after in _KINDS:
        if told and kind in _NOT_BEHIND_FOR:
            continue
        first, last = before.search(text[:begin]), after.match(text[end:])
        if first or last:
            begin, end = first.start() if first else begin, end + (last.end() if last else 0)
            return _shifted(kind, minutes, known, now), f"{text[:begin]} {text[end:]}"
    return {}, text


def _shifted(kind: str, minutes: int, known: Slots, now: datetime) -> Slots:
    if kind == "from_now":
        return _from_now(minutes, now)
    if kind in ("longer", "shorter"):
        length = known.get("minutes", LENGTH) + (minutes if kind == "longer" else -minutes)
        return {"minutes": min(length, LONGEST + 1)} if length > 0 else {}
    if "start" not in known:
        return {}
    start = minute_at(known["start"]) + (minutes if kind == "later" else -minutes)
    return {"start": clock_text(start)} if 0 <= start < LONGEST else {}


def _from_now(minutes: int, now: datetime) -> Slots:
    """As long as was said, also where the clocks are changed; nothing for what is too far off."""
    if minutes > _AHEAD:
        return {}
    # Nobody means five seconds past.
    begin = now.astimezone(UTC).replace(second=0, microsecond=0)
    at = (begin + timedelta(minutes=minutes)).astimezone(now.tzinfo)
    return {"date": at.date().isoformat(), "start": f"{at:%H:%M}"}
