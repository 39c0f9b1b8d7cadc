"""The doors of the fleet: what hands work over, answers questions and looks on.

`from producers import Fleet`. The same modules, without the CLI and the gateway,
are built by pyproject.toml beside this file into the wheel `threadfleet-client`
(package `threadfleet_client`), hence their relative imports only. All but the
errors is loaded on first use: `fleet --version` needs neither psycopg nor redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AnswerRefused,
    FleetUnavailable,
    InvalidInput,
    InvalidKey,
    InvalidPayload,
    MessageConflict,
    NotConfigured,
    NotInDoubt,
    NotMigrated,
    OutcomeUnknown,
    ProducerError,
    QuestionOpen,
    ThreadExists,
    UnknownGraph,
    UnknownThread,
    WaitTimeout,
)

if TYPE_CHECKING:
    from .client import Fleet
    from .messages import Start
    from .status import Receipt, ThreadStatus

__all__ = [
    "AnswerRefused",
    "Fleet",
    "FleetUnavailable",
    "InvalidInput",
    "InvalidKey",
    "InvalidPayload",
    "MessageConflict",
    "NotConfigured",
    "NotInDoubt",
    "NotMigrated",
    "OutcomeUnknown",
    "ProducerError",
    "QuestionOpen",
    "Receipt",
    "Start",
    "ThreadExists",
    "ThreadStatus",
    "UnknownGraph",
    "UnknownThread",
    "WaitTimeout",
]

_LAZY = {
    "Fleet": ".client",
    "Start": ".messages",
    "Receipt": ".status",
    "ThreadStatus": ".status",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)
