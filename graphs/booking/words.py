"""What else a normalised text says: people, equipment, choices, yes, no, cancel; its language."""

import re
from typing import Literal

#: "keep": to go on, as in "don't cancel".
Verdict = Literal["yes", "no", "cancel", "keep"]

_CJK = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[a-zA-Z]{2,}")

#: "-3 people" are none, while "2-3 people" may be three.
_NO_SIGN = r"(?<!^-)(?<!\s-)(?<!负)(?<![\d.])"
_PEOPLE = [
    re.compile(pattern)
    for pattern in (
        rf"{_NO_SIGN}(\d+)\s*(?:多|来)?(?:个人|人|位|名)",
        rf"{_NO_SIGN}(\d+)\s*(?:or so\s+)?(?:people|persons?|ppl|pax|attendees|participants"
        r"|guests|folks|colleagues|of us|seats|heads)\b",
        r"\b(?:party|group|team) of (\d+)\b",
        r"\b(?:we are|we're|there are|there will be)\s+(?:about\s+)?(\d+)\b",
        r"人数?(?:是|为|改成|改为|变成|:)?\s*(\d+)",
        r"(?:改成|改为|换成|变成|加到|减到)\s*(\d+)\s*(?:个|$)",
        r"\bfor\s+(?:about\s+)?(\d+)\b(?!\s*(?:[:/]|hours?|h\b|min|days?\b|weeks?\b|am\b|pm\b|[ap]\.m))",
        r"\b(?:actually|make (?:it|that)|change (?:it|that )?to)\s+(\d+)\b(?!\s*[:/]|\s*[ap]\.?m)",
    )
]
_EQUIPMENT = {
    "projector": re.compile(r"projector|beamer|投影"),
    "whiteboard": re.compile(r"white ?board|白板"),
    "video": re.compile(r"\bvideo\b|视频"),
    "tv": re.compile(r"\btv\b|\bscreen\b|电视|屏幕|显示屏"),
}
_WITHOUT = re.compile(
    r"(?:\b(?:no|without|remove|drop|(?:not?|don't|no longer) (?:need|want)(?: for)?)"
    r"(?: (?:a|the|any))?|不要|不用|不需要|去掉)\s*$"
)
#: And with no "don't" before it.
_CALLED_OFF = re.compile(r"(?:\bcancel(?: (?:a|the|any))?|取消)\s*$")
_ORDINALS = {
    "first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4,
    "fifth": 5, "5th": 5, "last": -1,
}  # fmt: skip
_ORDINAL = "|".join(_ORDINALS)
_CHOICES = [
    re.compile(pattern)
    for pattern in (
        r"(?:选择?|要|订|就)\s*第?\s*(?P<n>\d+)\s*(?:个|间|号|项|吧|$)(?!\s*(?:人|小时|钟头|半))",
        r"选择?\s*(?P<n>\d++)(?!\s*(?:个人|人|位|点|:|小时|分))",
        r"第\s*(?P<n>\d+)\s*(?:个|间|号|项|种)?",
        r"(?P<last>最后)\s*1?\s*(?:个|间)?",
        r"#\s*(?P<n>\d+)",
        r"\b(?:option|number|no\.|choice|room)\s*#?(?P<n>\d+)\b",
        r"\b(?:take|pick|choose|select)\s+(?P<n>\d+)\b",
        rf"\b(?P<o>{_ORDINAL})\s+(?:one|1|room|option|choice)\b",
        rf"^(?:the\s+)?(?P<o>{_ORDINAL})(?:,?\s*please)?[.!]?$",
        rf"(?:\b(?:take|pick|choose|want|book|like)|,)\s+the\s+(?P<o>{_ORDINAL})\b",
    )
]
_FILLER = (
    r"(?:\s|[,.!,。!、~]|please|thanks?(?: you)?|then|that|it|this|the (?:booking|room|meeting)|one"
    r"|any ?more|谢谢|请|吧|的|了|啊|呀|就|那|哦|嗯)*"
)
_YES = (
    r"(?:this|that) one|yes|yeah|yep|yup|y|ok(?:ay)?|sure|confirm(?:ed)?|correct|right|perfect"
    r"|great|fine|good|true"
    r"|sounds good|looks good|book|go ahead|do it|approved?|accept(?:ed)?"
    r"|(?:就|要)?(?:这|那)1?[个间]|就它|好|可以|确认|确定|是|行|对|没问题|同意|预[订定]|订|定下来"
)
#: Alone it may be said of what was offered.
_NOT_NEEDED = r"not? (?:need|want)(?:ed)?"
_NO = (
    r"no|nope|n|not|don't|reject(?:ed)?|false|none(?: of (?:them|these))?|neither"
    rf"|{_NOT_NEEDED}|不|不行|不是|不对|不要|不用|不好|不可以|都不(?:行|要|好)|否"
)
_OTHER = (
    r"(?:an|the )?other(?: room)?|something else|different(?: room)?|change(?: room)?"
    r"|(?:换1?个?)?另(?:外)?(?:1?[个间])?(?:会议室|房间)?|换(?:1)?个?(?:会议室|房间|间)?|别的"
)
_STOP = (
    r"cancel(?:led)?|never ?mind|forget(?: about)?|stop|exit|quit|abort"
    r"|(?:i (?:don't|do not)|not? longer) (?:need|want)(?:ed)?|not? (?:need|want)ed any ?more"
    r"|取消|算了|不订|不定|不预订|不需要|放弃|退出"
)
#: Before a stop: a wish or a complaint, and no "don't".
_PRESSING = (
    r"(?:just|let's|don'?t forget to|why (?:not|(?:don't|didn't|haven't) (?:you|we))"
    r"|(?:can|could|would) (?:you|we|i)|i(?:'d like| would like| want| have) to)"
)
#: No yes, no or stop is longer; and the patterns take their time over what is.
_LONGEST = 60
_KEEP = re.compile(
    # "为什么不取消", "还没取消吗" and "不得不取消" are for it.
    r"(?<!为什么)(?<!为啥)(?<!怎么)(?<!还)(?<!要)(?<!不[得能可])"
    r"(?:别|没有?|无需|不(?:是|要|用|想|必|需要|应该|打算)?)(?:先|再|急着)?取消(?!不)"
    r"|\b(?:don'?t|do not|didn'?t|no need to)(?: (?:want|mean|wish)(?: to)?)?"
    r" (?:cancel|stop|quit)"
)
_VERDICTS: list[tuple[Verdict, "re.Pattern[str]"]] = [
    ("keep", _KEEP),
    (
        "cancel",
        re.compile(
            rf"^{_FILLER}(?:{_NOT_NEEDED}{_FILLER})?(?:(?:{_PRESSING}\s+)?(?:{_STOP})"
            r"(?:\s*(?:everything|all|my(?: (?:booking|room|meeting))?|会议室|预[订定]))?"
            rf"{_FILLER})+\??$"
        ),
    ),
    (
        "cancel",
        re.compile(
            r"取消(?!.*(?:投影|白板|视频|电视))|算了|不想?[订定]了|不想要了"
            r"|\bnever ?mind\b|\bforget it\b"
        ),
    ),
    ("no", re.compile(rf"^{_FILLER}(?:(?:{_NO}|{_OTHER}){_FILLER})+$")),
    ("yes", re.compile(rf"^{_FILLER}(?:(?:{_YES}){_FILLER})+$")),
]


#: "not 8 but 10", "不是8个,是10个": what is denied is not wanted.
_DENIED = re.compile(
    r"(?<!why )\bnot (?!need|want)(?:(?!\bbut\b)[^,.;])+(?:[,.;]\s*(?:but\b)?|\bbut\b)"
    r"|不是[^,。是]+[,。]?\s*而?是|[^,。]+(?<!行)不行(?:[,。]|$)"
)


def without_denials(text: str) -> str:
    """The text without what it says no to."""
    return _DENIED.sub(" ", text)


def language_of(text: str) -> Literal["zh", "en"] | None:
    """The language of a text; None where it says too little ("8", "2pm")."""
    if _CJK.search(text):
        return "zh"
    return "en" if _LATIN.search(re.sub(r"(?i)\d\s*[ap]m\b", "", text)) else None


def find_people(text: str) -> tuple[int | None, str]:
    """(how many, the text without it)."""
    for pattern in _PEOPLE:
        if found := pattern.search(text):
            return int(found[1]), f"{text[: found.start()]} {text[found.end() :]}"
    return None, text


def find_equipment(text: str) -> list[str] | None:
    """What the room is to have, in our words; [] where only something is not wanted."""
    named = [(name, found) for name, p in _EQUIPMENT.items() if (found := p.search(text))]
    wanted = [name for name, found in named if not _is_refused(text[: found.start()])]
    return wanted if named else None


def _is_refused(before: str) -> bool:
    """Whether the words that end there say no to what comes next."""
    if _WITHOUT.search(before):
        return True
    return bool(_CALLED_OFF.search(before)) and not _KEEP.search(before)


def find_choice(text: str) -> tuple[int | None, str]:
    """(which of those offered, from 1, or -1 for the last; the text without it)."""
    for pattern in _CHOICES:
        if found := pattern.search(text):
            given = found.groupdict()
            left = f"{text[: found.start()]} {text[found.end() :]}"
            if given.get("n"):
                return int(given["n"]), left
            return (-1 if given.get("last") else _ORDINALS[given["o"]]), left
    return None, text


def verdict_of(text: str) -> Verdict | None:
    """Whether the text as a whole says yes, no, or to stop."""
    if len(text) > _LONGEST:
        return None
    return next((verdict for verdict, pattern in _VERDICTS if pattern.search(text)), None)
