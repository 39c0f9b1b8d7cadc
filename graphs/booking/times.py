"""Times of day, spans and durations in a normalised text, in Chinese or English.

Where a time stands is found here and written as dateparser reads it: "下午2点半" as "2:30pm".
An hour from 1 to 6 that says neither morning nor afternoon is one of the afternoon: rooms
are for work. "02:30" and "14:30" are what they say.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from graphs.booking.parser import minute_of
from graphs.booking.state import Half

_HALVES = {
    "凌晨": "a.m.", "早上": "am", "早晨": "am", "上午": "am", "早": "am", "中午": "noon",
    "下午": "pm", "傍晚": "pm", "晚上": "night", "晚": "night",
}  # fmt: skip
_HALF = rf"(?:(?P<half>{'|'.join(_HALVES)})\s*)?"
_HAN_CLOCK = re.compile(
    _HALF + r"(?P<hour>\d{1,2})\s*(?:点钟?|时(?!间))"
    r"(?:\s*(?:(?P<part>半|[13]刻)|(?P<minute>\d{1,2})\s*分?(?!\d|\s*[个人位点])|整))?"
)
_HAN_COLON = re.compile(_HALF + r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?!\d)")
_AMPM = r"(?P<ampm>[ap]\.?m\b\.?)"
_ENGLISH_CLOCK = re.compile(
    rf"\b(?P<hour>\d{{1,2}})(?::(?P<minute>\d{{2}}))?\s*(?:{_AMPM}|(?P<oclock>o'?clock))"
)
_COLON = re.compile(r"(?<!\d)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?!\d)")
_SPOKEN = re.compile(
    r"\b(?P<part>half past|quarter past|quarter to)\s+(?P<hour>\d{1,2})(?:\s*" + _AMPM + ")?"
)
_NOON = re.compile(r"\b(?:noon|midday)\b|中午(?!\s*\d{1,2}\s*[点时:])|正午")
_MIDNIGHT = re.compile(r"(?P<midnight>\bmidnight\b|午夜(?!\s*\d))")
#: "from 8 to 10 people" is no time.
_COUNTED = (
    r"\s*(?:个?人|位|名|(?:people|persons?|ppl|pax|attendees|participants|guests|folks"
    r"|colleagues|of us)\b)"
)
_BARE = re.compile(
    r"\b(?:at|from|around|about|starting|start|until|till?)\s+"
    r"(?P<hour>\d{1,2})(?:[.h](?P<minute>\d{2})|h)?\b(?!\s*[:/%人]|\.\d)"
    rf"(?!(?:\s*(?:-|to|or)\s*\d+)?{_COUNTED})"
    r"|\b(?P<told>\d{1,2})(?=\s+(?:in the (?:morning|afternoon|evening)|at night)\b)"
)
#: What makes a time the end: "until 5", "用到5点", but not "改到5点", which moves the start.
_ENDS = re.compile(
    r"(?:\b(?:until|till?|(?:end|finish)(?:s|ing)?(?: at)?)"
    r"|(?<![改换挪移调推延迟提前后早晚])到|延长到)\s*$"
)
#: "2-4pm", "from 2 to 4", "between 2 and 4": an hour that only the other end makes one.
_HOURS = re.compile(
    r"(?:(?P<from>from|between)\s+)?(?<![\d:/-])(?P<hour>\d{1,2})(?P<minutes>:\d{2})?\s*"
    r"(?P<to>-|to|until|till|and|到|至)\s*(?P<end>\d{1,2})(?P<end_minutes>:\d{2})?"
    r"(?:\s*(?P<ampm>[ap]\.?m\b)|(?![\d:/-]|\s*[点时]))"
    rf"(?!{_COUNTED})"
)
#: Where the half of the day stands apart from the hour: "tomorrow afternoon at 2", "今晚".
_HINTS: tuple[tuple[Half, "re.Pattern[str]"], ...] = (
    ("am", re.compile(r"\bmorning\b|[今明]早|上午|早上")),
    ("night", re.compile(r"\b(?:to)?night\b|[今明]晚|晚上")),
    ("pm", re.compile(r"\b(?:afternoon|evening)\b|下午")),
)
#: No half of any day.
_GREETING = re.compile(r"\bgood (?:morning|afternoon|evening|night)\b|[早晚]上好|[上下]午好")
_LINK = re.compile(r"\s*(?:-|to|until|till|and|到|至)\s*")

_DURATIONS: list[tuple["re.Pattern[str]", Callable[["re.Match[str]"], int]]] = [
    (re.compile(pattern), minutes)
    for pattern, minutes in (
        (r"(?P<h>\d+)\s*个\s*半\s*(?:小时|钟头)", lambda m: int(m["h"]) * 60 + 30),
        (r"(?P<h>\d+)\s*(?:个)?\s*(?:小时|钟头)\s*半", lambda m: int(m["h"]) * 60 + 30),
        (r"半\s*个?\s*(?:小时|钟头)", lambda m: 30),
        (
            r"(?P<h>\d+(?:\.\d+)?)\s*个?\s*(?:小时|钟头)(?:\s*(?P<m>\d+)\s*分钟?)?",
            lambda m: round(float(m["h"]) * 60) + int(m["m"] or 0),
        ),
        (r"半天|\bhalf(?: a|-)? ?day\b", lambda m: 240),
        (r"(?P<m>\d+)\s*分钟", lambda m: int(m["m"])),
        (r"(?P<q>[13])\s*刻钟", lambda m: int(m["q"]) * 15),
        (r"\b(?P<q>a|3) quarters? of an hour\b", lambda m: 45 if m["q"] == "3" else 15),
        (r"\b(?:an|1) hour and a half\b", lambda m: 90),
        (r"\b(?P<h>\d+) and a half hours?\b", lambda m: int(m["h"]) * 60 + 30),
        (r"\b(?P<h>\d+) hours? and a half\b", lambda m: int(m["h"]) * 60 + 30),
        (r"\bhalf an? hour\b|\bhalf-hour\b", lambda m: 30),
        (r"(?<!at )\b(?P<h>\d{1,2})h(?P<m>\d{2})\b", lambda m: int(m["h"]) * 60 + int(m["m"])),
        (
            r"(?<!at )\b(?P<h>an|a full|\d+(?:\.\d+)?)[\s-]*(?:hours?|hrs?|h)\b"
            r"(?:\s*(?:and\s*)?(?P<m>\d+)\s*(?:minutes?|mins?|m)\b)?",
            lambda m: round(float(m["h"] if m["h"][0] != "a" else 1) * 60) + int(m["m"] or 0),
        ),
        (r"\b(?P<m>\d+)[\s-]*(?:minutes?|mins?)\b", lambda m: int(m["m"])),
    )
]
_FOR = re.compile(r"(?:\bfor\s+(?:about\s+)?)$")


_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day; ``sure``: it said which half of the day. Twelve at night is 24:00."""

    minute: int
    sure: bool

    def text(self) -> str:
        return clock_text(self.minute)


def clock_text(minute: int) -> str:
    """Minutes since midnight as ``"14:00"``."""
    return f"{minute // 60:02}:{minute % 60:02}"


def minute_at(clock: str) -> int:
    """``"14:00"`` as minutes since midnight."""
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)


def find_length(text: str) -> tuple[int, int, int] | None:
    """(a duration in minutes, where it begins, where it ends)."""
    for pattern, minutes in _DURATIONS:
        if found := pattern.search(text):
            return minutes(found), found.start(), found.end()
    return None


def find_minutes(text: str) -> tuple[int | None, str]:
    """(a duration in minutes, the text without it)."""
    found = find_length(text)
    if found is None:
        return None, text
    minutes, begin, end = found
    return minutes, f"{_FOR.sub('', text[:begin])} {text[end:]}"


def half_of_day(text: str) -> Half | None:
    """``"am"``, ``"pm"`` or ``"night"`` where a text names one of them and not the others."""
    text = _GREETING.sub(" ", text)
    halves = {half for half, pattern in _HINTS if pattern.search(text)}
    if "night" in halves:
        halves.discard("pm")
    return halves.pop() if len(halves) == 1 else None


def in_half(clock: str, half: str) -> bool:
    """Whether a time is one of that half of the day; the night begins at five."""
    return (clock < "12:00") if half == "am" else clock >= {"pm": "12:00", "night": "17:00"}[half]


def find_span(
    text: str, half: str | None = None, known: str | None = None
) -> tuple[str | None, str | None, str]:
    """(start, end, the text without them): ``"14:00"`` each, or None. ``half``: of the day,
    where the hour does not say it. ``known``: the start, where the text names an end only."""
    text = _HOURS.sub(_with_ends, text)
    first = _first_clock(text, half)
    if first is None:
        return None, None, text
    start, at, end_at = first
    rest = text[end_at:]
    if _ends(text, at, end_at):
        return _from_elsewhere(start, f"{_ENDS.sub('', text[:at])} {rest}", half, known)
    second = _linked_clock(rest)
    if second is None:
        return _until_elsewhere(start.text(), f"{text[:at]} {rest}")
    return start.text(), _end(start.text(), second[0]), f"{text[:at]} {rest[second[1] :]}"


def _linked_clock(rest: str) -> tuple[Clock, int] | None:
    """The time that stands right behind a first one's "to", with where it ends."""
    link = _LINK.match(rest)
    if link is None:
        return None
    second = _first_clock(rest[link.end() :], None)
    if second is not None and second[1] == 0:
        return second[0], link.end() + second[2]
    # "10pm until 2": a bare hour, but no "10pm and 2".
    bare = None if "and" in link[0] else _BARE.match(f"at {rest[link.end() :]}")
    clock = _clock(bare, None) if bare else None
    return None if bare is None or clock is None else (clock, link.end() + bare.end() - 3)


def _from_elsewhere(
    end: Clock, text: str, half: str | None, known: str | None
) -> tuple[str | None, str | None, str]:
    """A span whose end was found first: "until 5, from 2"."""
    second = _first_clock(text, half)
    if second is None or _ends(text, second[1], second[2]):
        return known, _end(known, end), text
    start = second[0].text()
    return start, _end(start, end), f"{text[: second[1]]} {text[second[2] :]}"


def _until_elsewhere(start: str, text: str) -> tuple[str, str | None, str]:
    """A span whose end stands apart: "at 2, 4 people, until 5"."""
    second = _first_clock(text, None)
    if second is None or not _ends(text, second[1], second[2]):
        return start, None, text
    left = f"{_ENDS.sub('', text[: second[1]])} {text[second[2] :]}"
    return start, _end(start, second[0]), left


def _ends(text: str, at: int, end_at: int) -> bool:
    """Whether the time that stands there is an end: the word may be part of it."""
    hour = re.search(r"\d", text[at:end_at])
    return any(_ENDS.search(text[:n]) for n in (at, at + (hour.start() if hour else 0)))


def _end(start: str | None, clock: Clock) -> str | None:
    """The end of a span, or of the next day where that is less than half a day away; else
    None."""
    if start is None:
        return None
    begin, end = minute_at(start), clock.minute
    if end > begin:
        return clock_text(end)
    ends = [end] if clock.sure else [end, (end + 720) % _DAY]
    away = min((at - begin) % _DAY or _DAY for at in ends)
    return clock_text((begin + away) % _DAY) if away < 720 else None


def bare_hour(number: int, half: str | None = None) -> str | None:
    """What a mere number says as an answer to "when?"; twelve at night is "24:00"."""
    if half == "night" and number == 12:
        return clock_text(_DAY)
    at = minute_of(_phrase(str(number), "00", half)) if number > 0 else None
    return None if at is None else clock_text(at)


def _with_ends(found: "re.Match[str]") -> str:
    """ "2-4pm" as "2:00pm - 4:00pm": both ends get the shape of a time."""
    hour, end = int(found["hour"]), int(found["end"])
    told = found["from"] or found["ampm"] or found["minutes"] or found["end_minutes"]
    tells = told or found["to"] in ("until", "till")
    if not tells or hour > 24 or end > 24 or (found["to"] == "and" and not found["from"]):
        return found[0]
    ending = found["ampm"] or ""
    # "11-1pm" begins in the morning.
    half = "am" if ending.startswith("p") and hour > end and hour != 12 else ending
    return f"{hour}{found['minutes'] or ':00'}{half} - {end}{found['end_minutes'] or ':00'}{ending}"


def _first_clock(text: str, hint: str | None) -> tuple[Clock, int, int] | None:
    """The first time of day, with where it begins and ends."""
    best: tuple[Clock, int, int] | None = None
    for form in (_HAN_CLOCK, _HAN_COLON, _SPOKEN, _ENGLISH_CLOCK, _COLON, _BARE, _NOON, _MIDNIGHT):
        for found in form.finditer(text):
            clock = _clock(found, hint)
            # The longer reading of one place wins: "下午2:30" over "2:30".
            if clock is not None and (
                best is None or (found.start(), -found.end()) < (best[1], -best[2])
            ):
                best = (clock, found.start(), found.end())
            break
    return best


def _clock(found: "re.Match[str]", hint: str | None) -> Clock | None:
    given = found.groupdict()
    said, part = given.get("half"), given.get("part") or ""
    half = _HALVES[said] if said else hint
    if ampm := given.get("ampm"):
        half = f"{ampm[0]}.m."
    hour = given.get("hour") or given.get("told")
    minute = given.get("minute") or _PARTS.get(part, "00")
    if given.get("midnight"):
        return Clock(_DAY, True)
    if half == "night" and hour == "12" and part != "quarter to" and int(minute) < 60:
        # The parser knows no hour of the next day.
        return Clock(_DAY + int(minute), True)
    at = minute_of("noon" if hour is None else _phrase(hour, minute, half))
    early = 15 if part == "quarter to" else 0
    if at is None or at < early:
        return None
    return Clock(at - early, hour is None or half is not None or int(hour) > 12)


_PARTS = {"半": "30", "1刻": "15", "3刻": "45", "half past": "30", "quarter past": "15"}


def _phrase(hour: str, minute: str, half: str | None) -> str:
    """The time as dateparser reads it. "02" is of the morning, "2" of the afternoon; "12am" is
    midnight, and twelve in the morning nobody knows."""
    if half == "am" and int(hour) == 12:
        hour, half = "24", ""
    elif half == "noon":
        half = "pm" if int(hour) in (12, 1, 2) else ""
    elif half == "night":
        # Two at night is of no day for certain: the parser knows no 24:00.
        hour, half = ("24", "") if int(hour) in (12, 1, 2, 3, 4) else (hour, "pm")
    elif half is None:
        half = "pm" if 1 <= int(hour) <= 6 and not hour.startswith("0") else ""
    return f"{hour}:{minute}{half.replace('.', '')}"
