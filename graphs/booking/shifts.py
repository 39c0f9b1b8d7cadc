"""Wishes that are counted from something: "in 2 hours", "half an hour later", "延长半小时"."""

import re
from datetime import datetime, timedelta

from graphs.booking.state import LENGTH, Slots
from graphs.booking.times import clock_text, find_length, minute_at

#: What stands right before a length, or right behind it.
_KINDS: list[tuple[str, "re.Pattern[str]", "re.Pattern[str]"]] = [
    (
        kind,
        re.compile(rf"(?:{before})\s*(?:about|大概|大约|约)?\s*$"),
        re.compile(rf"\s*(?:{after})"),
    )
    for kind, before, after in (
        ("from_now", r"\bin", r"(?:之|以)?后(?!天)|from now\b"),
        ("later", r"推迟|延后|延迟|往后[推挪]?|(?<![今明])晚", r"later\b"),
        ("earlier", r"提前|往前[推挪]?|(?<![今明])早", r"earlier\b"),
        ("longer", r"延长|增加|加", r"(?:longer|more)\b"),
        ("shorter", r"缩短|减少?", r"(?:shorter|less)\b"),
    )
]


def find_shift(text: str, known: Slots, now: datetime) -> tuple[Slots, str]:
    """(what comes of it, the text without it). What is known decides: half an hour later than
    nothing is nothing."""
    found = find_length(text)
    if found is None:
        return {}, text
    minutes, begin, end = found
    for kind, before, after in _KINDS:
        first, last = before.search(text[:begin]), after.match(text[end:])
        if first or last:
            begin, end = first.start() if first else begin, end + (last.end() if last else 0)
            return _shifted(kind, minutes, known, now), f"{text[:begin]} {text[end:]}"
    return {}, text


def _shifted(kind: str, minutes: int, known: Slots, now: datetime) -> Slots:
    if kind == "from_now":
        # Nobody means five seconds past.
        at = now.replace(second=0, microsecond=0) + timedelta(minutes=min(minutes, 24 * 60))
        return {"date": at.date().isoformat(), "start": f"{at:%H:%M}"}
    if kind in ("longer", "shorter"):
        length = known.get("minutes", LENGTH) + (minutes if kind == "longer" else -minutes)
        return {"minutes": length} if 0 < length <= 24 * 60 else {}
    if "start" not in known:
        return {}
    start = minute_at(known["start"]) + (minutes if kind == "later" else -minutes)
    return {"start": clock_text(start)} if 0 <= start < 24 * 60 else {}
