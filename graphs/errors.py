"""Errors that an effect gives to the node that called it.

    EffectError
    ├── EffectFailed            refused for good; recorded, so a replay raises it again
    │   └── ResultUnstorable    it happened, but its result can't be kept
    ├── EffectOutsideTurn       called where no turn can record it
    ├── AmbiguousEffect         two calls that a replay could not tell apart
    └── EffectArgumentsChanged  a known request id came back with other arguments

They are RuntimeErrors: neither LangGraph's default retry policy nor the worker takes a
RuntimeError for something that goes away by itself. What stops a whole turn is not here
but in graphs.control.
"""

from typing import Any


class EffectError(RuntimeError):
    """Root: an effect that will not succeed by trying again."""


class EffectFailed(EffectError):
    """The outside refused for good. ``status``: its HTTP status, if it had one."""

    def __init__(self, name: str, request_id: str, status: int | None, detail: str) -> None:
        self.name = name
        self.request_id = request_id
        self.status = status
        self.detail = detail
        said = f" with status {status}" if status is not None else ""
        super().__init__(f"effect {name} ({request_id}) failed{said}: {detail}")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.name, self.request_id, self.status, self.detail)


class ResultUnstorable(EffectFailed):
    """The effect happened, but its result can't be stored or read back."""


class EffectOutsideTurn(EffectError):
    """Nothing was sent: no turn would have recorded it."""


class AmbiguousEffect(EffectError):
    """Nothing was sent by this call: a replay could not tell it from another one."""


class EffectArgumentsChanged(EffectError):
    """Nothing was sent: the ledger knows this request id with other arguments."""
