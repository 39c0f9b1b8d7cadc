"""A person's text in one form: half width, small letters, numbers as digits."""

import re
import unicodedata

_HAN = {c: n for n, c in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2}
_RUN = re.compile("[〇零一二两三四五六七八九十百]+")
# "a bit": no one o'clock.
_A_BIT = re.compile(
    "(?<=[大小多少早快慢近远高低有])一?点(?![0-9半〇一二三四五六七八九十])|(?<![今明])晚一?点(?=吧|$|\\s|[,。])"
)
_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen", "twenty"),
)
_ENGLISH = {word: str(n) for n, word in enumerate(_SMALL)}
_ENGLISH |= {"thirty": "30", "forty": "40", "fifty": "50"}
_ENGLISH_WORD = re.compile(rf"\b({'|'.join(_ENGLISH)})\b")
_DASHES = re.compile("[‐‑‒–—―−~～〜]+")


def normalised(text: str) -> str:
    """NFKC, small letters, Chinese numerals as digits, single spaces, one kind of dash."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _DASHES.sub("-", text.replace("’", "'"))
    text = _A_BIT.sub(" ", text)
    text = _RUN.sub(lambda found: _han_number(found[0]), text)
    return " ".join(text.split())


def with_digits(text: str) -> str:
    """English number words of a normalised text as digits."""
    return _ENGLISH_WORD.sub(lambda found: _ENGLISH[found[1]], text)


def _han_number(run: str) -> str:
    """三 → 3, 十二 → 12, 三十 → 30, 一百二十 → 120, 二〇二六 → 2026."""
    if "十" not in run and "百" not in run:
        return "".join(str(_HAN[c]) for c in run)
    total, digit, seen = 0, 0, False
    for c in run:
        if c in "十百":
            total += (digit if seen else 1) * (10 if c == "十" else 100)
            digit, seen = 0, False
        else:
            digit, seen = _HAN[c], True
    return str(total + digit)
