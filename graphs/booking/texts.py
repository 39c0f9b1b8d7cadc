"""What the assistant says, in the user's language."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from graphs.booking.state import Booking, Candidate, Language, Slot

_WEEKDAYS = {"zh": "一二三四五六日", "en": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")}
_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_EQUIPMENT = {"projector": "投影", "whiteboard": "白板", "video": "视频会议", "tv": "电视"}
_ABBREVIATIONS = {"tv": "TV"}

_TEXTS: dict[str, dict[Language, str]] = {
    "hello": {"zh": "您好！我来帮您订会议室。", "en": "Hello! I can book a meeting room for you."},
    "unclear": {"zh": "抱歉，我没有听懂。", "en": "Sorry, I did not understand that."},
    "kept": {"zh": "好的，我们继续。", "en": "All right, we go on."},
    "date": {"zh": "哪一天", "en": "which day"},
    "start": {"zh": "几点开始", "en": "what time it starts"},
    "people": {"zh": "多少人", "en": "how many people"},
    "ask": {"zh": "请告诉我{what}？", "en": "Please tell me {what}."},
    "past": {
        "zh": "{when}已经过去了，请换一个时间。",
        "en": "{when} has passed already. Which time would suit you?",
    },
    "past_day": {
        "zh": "那一天已经过去了，请换一天。",
        "en": "That day has passed already. Which day would suit you?",
    },
    "bad_date": {
        "zh": "没有这一天，请再说一次日期。",
        "en": "There is no such day. Which day is it?",
    },
    "too_long": {
        "zh": "最长可以订24小时。要订多久？",
        "en": "A room can be booked for 24 hours at most. For how long?",
    },
    "bad_time": {
        "zh": "那一天没有这个时间：时钟会拨快。请换一个时间。",
        "en": "There is no such time on that day: the clocks go forward. "
        "What time should it start?",
    },
    "unanswerable": {
        "zh": "抱歉，这样的要求我查不了。请改一下时间、人数或设备。",
        "en": "Sorry, I can't look for that. Another time, another number of people, "
        "or other equipment?",
    },
    "full": {
        "zh": "{when}没有能容纳{people}人的空闲会议室{with_}。请换个时间，或改一下要求。",
        "en": "No room for {people}{with_} is free on {when}. Another time, or other wishes?",
    },
    "too_large": {
        "zh": "没有能容纳{people}人的会议室{with_}，最大的可容纳{largest}人。请改一下人数或要求。",
        "en": "No room{with_} holds {people} people; the largest holds {largest}. "
        "How many people, or which other wishes?",
    },
    "change": {
        "zh": "您想改什么？时间、人数，还是设备？",
        "en": "What would you like to change: the time, the people, the equipment?",
    },
    "offer": {
        "zh": "{when}，{people}人，有{count}间空闲会议室：\n{rooms}\n请选择一间。",
        "en": "For {people} on {when}, {count} free:\n{rooms}\nWhich one would you like?",
    },
    "taken": {"zh": "抱歉，{room}刚刚被别人订走了。", "en": "Sorry, {room} has just been taken."},
    "refused": {
        "zh": "抱歉，{room}没能订上：这样的要求无法预订。",
        "en": "Sorry, {room} could not be booked: such a request is not possible.",
    },
    "confirm": {
        "zh": "确认预订{room}（可容纳{capacity}人），{when}，{people}人？",
        "en": "Shall I book {room} (holds {capacity}) on {when}, for {people}?",
    },
    "booked": {
        "zh": "已预订：{room}，{when}，{people}人。预订号：{booking_id}",
        "en": "Booked: {room}, {when}, for {people}. Booking id: {booking_id}",
    },
    "cancelled": {
        "zh": "好的，已取消，没有预订任何会议室。",
        "en": "All right, cancelled. Nothing was booked.",
    },
    "stands": {
        "zh": "好的，没有再预订会议室。之前的预订仍然有效：{room}，{when}，{people}人，"
        "预订号{booking_id}。我这里不能取消已完成的预订，请联系会议室管理员。",
        "en": "All right, nothing more was booked. Your booking stands: {room}, {when}, for "
        "{people}, booking id {booking_id}. A finished booking can't be cancelled here: please "
        "ask whoever looks after the rooms.",
    },
    "looking": {"zh": "正在查找空闲的会议室…", "en": "Looking for free rooms…"},
    "booking": {"zh": "正在预订…", "en": "Booking…"},
    "cancelling": {"zh": "正在取消…", "en": "Cancelling…"},
    "found": {"zh": "空闲：{names}", "en": "Free: {names}"},
    "missing": {"zh": "还缺：{what}", "en": "Still missing: {what}"},
    "answered": {"zh": "用户已回复。", "en": "The user has replied."},
    "not_done": {
        "zh": "没有执行：用户先说了别的。",
        "en": "Not done: the user has said something first.",
    },
    "not_booked": {
        "zh": "会议室已被订走，没有预订。",
        "en": "The room is taken; nothing was booked.",
    },
    "not_possible": {
        "zh": "数据库拒绝了这些值，没有预订。",
        "en": "The database refused these values; nothing was booked.",
    },
    "yes": {"zh": "好的，确认", "en": "Yes, please"},
    "no": {"zh": "不要", "en": "No"},
    "cancel": {"zh": "取消", "en": "Cancel"},
    "stuck": {
        "zh": "抱歉，我没能完成这个请求。请换个说法再试一次。",
        "en": "Sorry, I could not get this done. Please say it again in other words.",
    },
}


def say(name: str, language: Language, **fields: Any) -> str:
    """One of our texts."""
    return _TEXTS[name][language].format(**fields)


def listed(items: Iterable[str], language: Language) -> str:
    """ "a, b and c"."""
    *first, last = items
    if language == "zh":
        return "、".join([*first, last])
    return f"{', '.join(first)} and {last}" if first else last


def when(slot: Slot, language: Language, now: datetime) -> str:
    """A slot as people write it, with the year where it is not this one."""
    start, end = datetime.fromisoformat(slot["start"]), datetime.fromisoformat(slot["end"])
    day = _WEEKDAYS[language][start.weekday()]
    ends = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
    other_year = start.year != now.year
    if language == "zh":
        year = f"{start.year}年" if other_year else ""
        return f"{year}{start.month}月{start.day}日（周{day}）{start:%H:%M}–{ends}"
    year = f" {start.year}" if other_year else ""
    return f"{day} {start.day} {_MONTHS[start.month - 1]}{year}, {start:%H:%M}–{ends}"


def equipped(equipment: Iterable[str], language: Language) -> str:
    """Equipment in the user's language."""
    names = _EQUIPMENT if language == "zh" else _ABBREVIATIONS
    return listed((names.get(e, e) for e in equipment), language)


def with_equipment(equipment: list[str], language: Language) -> str:
    """ " with a projector", or nothing."""
    if not equipment:
        return ""
    named = equipped(equipment, language)
    return f"（要有{named}）" if language == "zh" else f" with {named}"


def room_lines(candidates: list[Candidate], language: Language) -> str:
    """The rooms, numbered from 1, one a line."""
    lines = []
    for number, room in enumerate(candidates, 1):
        has = equipped(room["equipment"], language) if room["equipment"] else ""
        holds = f"{room['capacity']}人" if language == "zh" else f"holds {room['capacity']}"
        parts = [holds, *([has] if has else [])]
        lines.append(f"{number}. {room['name']} ({', '.join(parts)})")
    return "\n".join(lines)


def booked(booking: Booking, language: Language, now: datetime) -> str:
    """That it is done."""
    return _of_booking("booked", booking, language, now)


def given_up(earlier: Booking | None, language: Language, now: datetime) -> str:
    """That the request is over, and what that means for the booking made before it, until its
    time is over."""
    if earlier is None or datetime.fromisoformat(earlier["slot"]["end"]) <= now:
        return say("cancelled", language)
    return _of_booking("stands", earlier, language, now)


def _of_booking(name: str, booking: Booking, language: Language, now: datetime) -> str:
    return say(
        name,
        language,
        room=booking["room"],
        when=when(booking["slot"], language, now),
        people=booking["people"],
        booking_id=booking["booking_id"],
    )
