"""Masking: what personal data and secrets look like once they are logged, shown or kept.

Two rules, used together: a field's name says what it holds (``phone``, ``customerEmail``,
``api_key``), and a pattern finds phone numbers, e-mail addresses, card and id numbers and
tokens in running text. What is masked keeps its shape where that helps a person:
``138****1234``, ``l***@example.com``, ``**** **** **** 1111``. Masking twice changes nothing.

Pure, and imports nothing of ours: logs, errors, Flower, events and a graph's state use it.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

HIDDEN = "***"
_DEEPEST = 12

# By name. The last words of a name decide, so `max_tokens`, `token_count` and `phone_verified`
# are left alone.
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_SECRET = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)?|pwd|secret(?:_key)?|(?:access_|refresh_|id_)?token"
    r"|api_?key|access_key|private_key|signing_key|authorization|cookies?|credentials?"
    r"|otp|pin|cvv|cvc)$"
)
_PERSONAL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:^|_)(?:phone|mobile|telephone|tel|fax)(?:_(?:number|no|num))?$"), "phone"),
    (re.compile(r"(?:^|_)e?_?mail(?:_(?:address|addr))?$"), "email"),
    (
        re.compile(
            r"(?:^|_)(?:id_(?:card|number|no)|identity_(?:card|number)|national_id|ssn"
            r"|passport)(?:_(?:number|no))?$"
        ),
        "id",
    ),
    (
        re.compile(r"(?:^|_)(?:(?:bank|credit|debit)_card|card|pan|iban)(?:_(?:number|no))?$"),
        "card",
    ),
)


@lru_cache(maxsize=4096)
def _normal(name: str) -> str:
    return "_".join(word.lower() for word in _WORDS.findall(name))


@lru_cache(maxsize=4096)
def field_kind(name: str) -> str | None:
    """What a field of that name holds: secret, phone, email, card or id; None: nothing known."""
    normal = _normal(name)
    if _SECRET.search(normal):
        return "secret"
    return next((kind for pattern, kind in _PERSONAL if pattern.search(normal)), None)


# By pattern

# Word boundaries of ASCII words: Chinese text has no spaces.
_ALONE, _AFTER = r"(?<![A-Za-z0-9_.-])", r"(?![A-Za-z0-9_-])"
_MAIL = re.compile(
    r"(?<![A-Za-z0-9_.+-])([A-Za-z0-9_.+-]{1,64})@((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})"
)
_CN_PHONE = re.compile(
    rf"(?<![A-Za-z0-9_.+-])(\+?86[ -]?)?(1[3-9]\d)[ -]?\d{{4}}[ -]?(\d{{4}}){_AFTER}"
)
_PHONE = re.compile(rf"(?<![A-Za-z0-9_+])\+\d{{1,3}}(?:[ .-]?\(?\d{{1,4}}\)?){{2,5}}{_AFTER}")
_US_PHONE = re.compile(rf"{_ALONE}(?:\(\d{{3}}\) ?|\d{{3}}[-.])\d{{3}}[-.](\d{{4}}){_AFTER}")
_CN_ID = re.compile(rf"{_ALONE}[1-9]\d{{16}}[\dXx]{_AFTER}")
_SSN = re.compile(rf"{_ALONE}(?!000|666|9)\d{{3}}-(?!00)\d{{2}}-(?!0000)(\d{{4}}){_AFTER}")
_CARD = re.compile(rf"{_ALONE}(?:2[2-7]|[3-6]\d)\d{{2}}(?:[ -]?\d){{9,15}}{_AFTER}")
_URL_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")
_BEARER = re.compile(r"\b((?i:Bearer|Basic))\s+(?=[\w.~+/-]*[A-Z0-9=])[\w.~+/=-]{8,}")
_NAMED_SECRET = re.compile(
    r"""(?ix)\b((?:[a-z0-9]+[_-])*(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key
    |authorization)["']?\s*[=:]\s*["']?)(?!\*\*\*)(?!(?:bearer|basic)\s)[^\s"',;&)}\]]+"""
)
_TOKEN = re.compile(
    r"\b(?:eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*|(?:sk|pk|rk|lsv2)[-_][\w-]{16,}|gh[oprsu]_\w{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{30,})"
)
# Looks that tell most texts apart from those that need the patterns above.
_MAYBE_SECRET = re.compile(
    r"eyJ|://|(?:sk|pk|rk|lsv2|gh\w|pat|xox\w)[-_]|AKIA|AIza|(?i:bearer|basic|pass|pwd|secret|token|key|auth)"
)
_MAYBE_NUMBER = re.compile(r"\d(?:[ ().-]{0,2}\d){7}")


def mask_text(text: str) -> str:
    """The text with what looks like personal data or a secret masked; the same object if none."""
    if _MAYBE_SECRET.search(text):
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        text = _URL_PASSWORD.sub(rf"\1{HIDDEN}@", text)
        text = _NAMED_SECRET.sub(rf"\1{HIDDEN}", text)
        text = _TOKEN.sub(HIDDEN, text)
    if "@" in text:
        text = _MAIL.sub(lambda m: f"{m[1][0]}***@{m[2]}", text)
    if not _MAYBE_NUMBER.search(text):
        return text
    masked = _mask_numbers(text)
    return text if masked == text else masked


def _mask_numbers(text: str) -> str:
    text = _CN_ID.sub(lambda m: _masked_id(m[0]) if _is_cn_id(m[0]) else m[0], text)
    text = _CARD.sub(lambda m: _masked_card(m[0]) if _is_card(m[0]) else m[0], text)
    text = _SSN.sub(r"***-**-\1", text)
    text = _CN_PHONE.sub(lambda m: f"{m[1] or ''}{m[2]}****{m[3]}", text)
    text = _PHONE.sub(lambda m: _masked_phone(m[0]) if _digits(m[0]) >= 8 else m[0], text)
    return _US_PHONE.sub(r"***-***-\1", text)


def _is_cn_id(text: str) -> bool:
    """GB 11643: the birth date is one, and the last character checks the others."""
    try:
        date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    except ValueError:
        return False
    total = sum(int(c) * pow(2, 17 - n, 11) for n, c in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def _is_card(text: str) -> bool:
    """Luhn's check (ISO/IEC 7812)."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = (d * 2 - 9 * (d > 4) if n % 2 else d for n, d in enumerate(reversed(digits)))
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def _digits(text: str) -> int:
    return sum(c.isdigit() for c in text)


def _masked_phone(text: str) -> str:
    digits = "".join(c for c in text if c.isdigit())
    plus = "+" if text.startswith("+") else ""
    if len(digits) < 8:
        return HIDDEN
    return f"{plus}{digits[: len(digits) - 8] if plus else digits[:3]}****{digits[-4:]}"


def _masked_email(text: str) -> str:
    name, at, host = text.partition("@")
    return f"{name[:1]}***@{host}" if at else HIDDEN


def _masked_card(text: str) -> str:
    digits = "".join(c for c in text if c.isalnum())
    return f"**** **** **** {digits[-4:]}" if len(digits) >= 12 else HIDDEN


def _masked_id(text: str) -> str:
    return f"{text[:3]}{'*' * (len(text) - 7)}{text[-4:]}" if len(text) >= 12 else HIDDEN


_MASKS: dict[str, Callable[[str], str]] = {
    "phone": _masked_phone,
    "email": _masked_email,
    "card": _masked_card,
    "id": _masked_id,
    "secret": lambda _: HIDDEN,
}


# Structures


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What is masked. ``names``: fields masked besides the known ones (as normalized names).
    ``known``: by the known names and by pattern, too."""

    names: frozenset[str] = frozenset()
    known: bool = True

    @classmethod
    def of(cls, given: Any) -> "Rule | None":
        """The rule that a graphs file or a setting gives: True, False or a list of field names.

        A list masks these fields alone. Raises ValueError for anything else.
        """
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if isinstance(given, list | tuple) and all(isinstance(n, str) and n for n in given):
            return cls(frozenset(map(_normal, given)), known=False)
        raise ValueError("it is true or a list of field names")

    @classmethod
    def besides(cls, names: Iterable[str]) -> "Rule":
        """All that is known, and fields of these names."""
        return cls(frozenset(map(_normal, names)))

    def kind(self, name: str) -> str | None:
        """How the field of that name is masked; None: it is not."""
        known = field_kind(name)
        if self.names and _normal(name) in self.names:
            return known or "secret"
        return known if self.known else None


DEFAULT = Rule()


def mask(value: Any, rule: Rule = DEFAULT) -> Any:
    """The value with its personal data and secrets masked, at any depth.

    Mappings, lists, tuples, sets, dataclasses and pydantic models keep their type where they
    can; the same object comes back where nothing was masked. Never raises.
    """
    try:
        return _mask(value, rule, 0)
    except Exception:
        # An object that breaks when it is looked at must not break who logs it.
        return HIDDEN


def _mask(value: Any, rule: Rule, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return mask_text(value) if rule.known else value
    if isinstance(value, bytes | bytearray):
        return value
    if depth >= _DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        pairs = [(k, v, _field(k, v, rule, depth)) for k, v in value.items()]
        if all(v is new for _, v, new in pairs):
            return value
        return {k: new for k, _, new in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return _items(value, rule, depth)
    return _object(value, rule, depth)


def _field(name: Any, value: Any, rule: Rule, depth: int) -> Any:
    kind = rule.kind(name) if isinstance(name, str) else None
    if kind is None:
        return _mask(value, rule, depth + 1)
    return _all(value, kind, depth)


def _all(value: Any, kind: str, depth: int) -> Any:
    """Everything in a field that is to be masked."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    if isinstance(value, str):
        return value if HIDDEN in value or "****" in value else _MASKS[kind](value)
    if isinstance(value, int | float):
        # `otp: 3` may be a secret as well as a count: numbers are hidden as text.
        return _MASKS[kind](str(value))
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {k: _all(v, kind, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        return _like(value, [_all(item, kind, depth + 1) for item in value])
    return HIDDEN


def _items(value: Any, rule: Rule, depth: int) -> Any:
    pairs = [(item, _mask(item, rule, depth + 1)) for item in value]
    if all(item is new for item, new in pairs):
        return value
    return _like(value, [new for _, new in pairs])


def _like(value: Any, items: Iterable[Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)


def _object(value: Any, rule: Rule, depth: int) -> Any:
    """A copy of a pydantic model or dataclass with its fields masked."""
    if hasattr(value, "model_copy") and hasattr(type(value), "model_fields"):
        fields = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    else:
        return value
    changed = {
        name: new
        for name, old in fields.items()
        if (new := _field(name, old, rule, depth)) is not old
    }
    if not changed:
        return value
    if hasattr(value, "model_copy"):
        return value.model_copy(update=changed)
    copied = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(copied, name, new)
    return copied
