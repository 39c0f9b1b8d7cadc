"""A person's text in one form: half width, small letters, numbers as digits."""

import re
import unicodedata

_HAN = {c: n for n, c in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_RUN = re.compile("[〇零一二两三四五六七八九十百][〇零一二两三四五六七八九十百千万]*")
# "a bit": no one o'clock.
_A_BIT = re.compile(
    "(?<=[大小多少早快慢近远高低有])一?点(?![0-9半〇一二三四五六七八九十])|(?<![今明])晚一?点(?=吧|$|\\s|[,。])"
)
_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen", "twenty"),
)
_ENGLISH = {word: n for n, word in enumerate(_SMALL)}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50}
_ENGLISH_WORD = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[ -](?P<ones>{'|'.join(_SMALL[1:10])}))?"
    rf"|(?P<small>{'|'.join(_SMALL)}))\b"
)
#: "two thirty", "two forty-five".
_TOLD = re.compile(
    rf"\b(?P<hour>{'|'.join(_SMALL[1:13])}) (?P<minute>(?:fifteen|thirty|forty[ -]five))\b"
    r"(?! (?:people|persons|minutes|mins))"
)
_DOZEN = re.compile(r"\b(?:(?P<n>\d{1,4}) |(?P<half>half an? )|an? )?dozen\b")
_OK = re.compile("[👍👌✅]")
#: Symbols, their colours, and what joins them.
_PICTURES = ("So", "Sk", "Cf", "Mn")
_DASHES = re.compile("[‐‑‒–—―−~～〜]+")


def normalised(text: str) -> str:
    """NFKC, small letters, Chinese numerals as digits, single spaces, one kind of dash."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = "".join(c for c in _OK.sub(" ok ", text) if unicodedata.category(c) not in _PICTURES)
    text = _DASHES.sub("-", text.replace("’", "'"))
    text = _A_BIT.sub(" ", text)
    text = _RUN.sub(lambda found: _han_number(found[0]), text)
    return " ".join(text.split())


def with_digits(text: str) -> str:
    """English number words of a normalised text as digits."""
    text = _TOLD.sub(lambda found: f"{found['hour']}:{_number(found['minute'])}", text)
    text = _ENGLISH_WORD.sub(lambda found: _number(found[0]), text)
    return _DOZEN.sub(lambda found: str(_dozens(found) * 12 // 2), text)


def _dozens(found: "re.Match[str]") -> int:
    """How many halves."""
    return 1 if found["half"] else 2 * int(found["n"] or 1)


def _number(words: str) -> str:
    return str(sum({**_ENGLISH, **_TENS}[word] for word in re.split("[ -]", words)))


def _han_number(run: str) -> str:
    """三 → 3, 十二 → 12, 三十 → 30, 一百二十 → 120, 两万五千 → 25000, 二〇二六 → 2026."""
    if not {*run} & {*_UNITS, "万"}:
        return "".join(str(_HAN[c]) for c in run)
    total, below, digit, seen = 0, 0, 0, False
    for c in run:
        if c == "万":
            total, below, digit, seen = (total + below + digit) * 10_000, 0, 0, False
        elif c in _UNITS:
            below += (digit if seen else 1) * _UNITS[c]
            digit, seen = 0, False
        else:
            digit, seen = _HAN[c], True
    return str(total + below + digit)
