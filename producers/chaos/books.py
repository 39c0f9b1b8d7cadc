"""What a chaos run knows from outside of the fleet: what was sent, what is to come of it, and
what the provider of the effects has in its own books.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: In an expected state: any value, but there must be one.
ANY = ...


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, from the log of who sent it. ``accepted``: the fleet said so; else it may be
    there or not. ``end``: the status in which it is to end."""

    thread_id: str
    message_id: str
    accepted: bool = True
    end: str = "done"


@dataclass(frozen=True, slots=True)
class Expected:
    """What is to become of a thread. ``state``: its values, as a run without faults leaves
    them (see :func:`like`); None: not compared."""

    status: str = "done"
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """One effect in the provider's books. ``key``: what it is to be done once for, "refund of
    A1001"."""

    key: str
    request_id: str


def shop_acts(books: Mapping[str, Any]) -> list[Act]:
    """The acts of the dev shop, from what its ``GET /admin/books`` says."""
    refunds = [Act(f"refund of {r['order_id']}", r["request_id"]) for r in books["refunds"]]
    notices = [
        Act(f"notice about {_order(n['text'])}", n["request_id"]) for n in books["notifications"]
    ]
    return [*refunds, *notices]


def about(acts: Iterable[Act], orders: Collection[str]) -> list[Act]:
    """Those of these orders: a shop may have more customers than this run."""
    wanted = set(orders)
    return [act for act in acts if act.key.rpartition(" ")[2] in wanted]


def like(
    state: Mapping[str, Any], replace: Mapping[str, str], volatile: Collection[str] = ()
) -> dict[str, Any]:
    """The state of a run without faults as that of another thread: in its texts one id
    stands for the other, and ``volatile`` keys hold any value."""

    def other(value: Any) -> Any:
        if isinstance(value, str):
            for old, new in replace.items():
                value = value.replace(old, new)
            return value
        if isinstance(value, Mapping):
            return {key: ANY if key in volatile else other(v) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return [other(v) for v in value]
        return value

    found: dict[str, Any] = other(state)
    return found


def differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """Where a state is not as expected, in words; lists and tuples are alike."""
    if expected is ANY:
        return []
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        missing = [f"{where}{key} is missing" for key in expected.keys() - found.keys()]
        more = [f"{where}{key} is there too" for key in found.keys() - expected.keys()]
        both = [
            said
            for key in expected.keys() & found.keys()
            for said in differences(expected[key], found[key], f"{where}{key}.")
        ]
        return sorted([*missing, *more, *both])
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(expected) == len(found):
            pairs = enumerate(zip(expected, found, strict=True))
            return [said for n, (e, f) in pairs for said in differences(e, f, f"{where}{n}.")]
    elif expected == found:
        return []
    return [f"{where.rstrip('.')} is {found!r}, not {expected!r}"]


_ORDER = re.compile(r" order (\S+?)(?: |\.?$)")


def _order(text: str) -> str:
    """The order that a notification is about."""
    match = _ORDER.search(text)
    return match[1] if match else "no order"
