"""The id of an event: epoch and number, compared as a pair of integers."""

import re
from typing import NamedTuple, Self

from ..errors import ProducerError
from ..payloads import shown

_FORM = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,9})", re.ASCII)
#: What Postgres holds: bigint and integer.
_LARGEST = (2**63 - 1, 2**31 - 1)


class InvalidEventId(ProducerError):
    code = "invalid_event_id"
    exit_code = 2
    default_hint = "Give the id of an event as it came, for example 41-3; or none, to start anew."


class EventId(NamedTuple):
    """`str()` gives "41-3"."""

    epoch: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidEventId."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        made = cls(int(found[1]), int(found[2])) if found else None
        if made is None or made.epoch > _LARGEST[0] or made.n > _LARGEST[1]:
            raise InvalidEventId(f"'{shown(str(text))}' is no id of an event.")
        return made

    def __str__(self) -> str:
        return f"{self.epoch}-{self.n}"


#: Before every event.
FIRST = EventId(0, 0)
