"""The doors of the fleet: what hands work over, answers questions and looks on.

`from producers import Fleet`. The same modules, without the CLI and the gateway,
are built by pyproject.toml beside this file into the wheel `threadfleet-client`
(package `threadfleet_client`), hence their relative imports only. All but the
errors is loaded on first use: `fleet --version` needs neither psycopg nor redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AmendmentRefused,
    AnswerRefused,
    EffectInDoubt,
    FleetUnavailable,
    InvalidInput,
    InvalidKey,
    InvalidPayload,
    MessageConflict,
    NotConfigured,
    NothingToDo,
    NotInDoubt,
    NotMigrated,
    OutcomeUnknown,
    ProducerError,
    QuestionOpen,
    ThreadBusy,
    ThreadExists,
    UnknownCheckpoint,
    UnknownGraph,
    UnknownThread,
    UnknownWorker,
    WaitTimeout,
)

if TYPE_CHECKING:
    from .client import Fleet
    from .messages import Start
    from .status import Receipt, ThreadStatus

__all__ = [
    "AmendmentRefused",
    "AnswerRefused",
    "EffectInDoubt",
    "Fleet",
    "FleetUnavailable",
    "InvalidInput",
    "InvalidKey",
    "InvalidPayload",
    "MessageConflict",
    "NotConfigured",
    "NotInDoubt",
    "NotMigrated",
    "NothingToDo",
    "OutcomeUnknown",
    "ProducerError",
    "QuestionOpen",
    "Receipt",
    "Start",
    "ThreadBusy",
    "ThreadExists",
    "ThreadStatus",
    "UnknownCheckpoint",
    "UnknownGraph",
    "UnknownThread",
    "UnknownWorker",
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
