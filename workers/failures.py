"""What an exception out of a graph means: whether another attempt is worth it.

Effects classify their own failures (graphs.effects); this is for everything else a node
raises. What the outside answered is judged as in an effect (graphs.faults), the rest by
LangGraph's own default rule for node retries, with the mistakes of code that it lacks.
"""

import gc
import signal
import threading
import traceback

import psycopg
from billiard.common import terminate_handler_fired
from langgraph._internal._retry import default_retry_on
from langgraph.errors import (
    EmptyChannelError,
    EmptyInputError,
    InvalidUpdateError,
    ParentCommand,
    TaskNotFound,
    UnknownInterruptError,
)

from graphs import faults, own_code
from graphs.errors import EffectError
from infra.settings import get_settings
from workers.outcomes import Kind, Outcome

#: A mistake in the graph's code, or in what it was given: the same again tomorrow.
_MISTAKES = (
    EffectError,
    AssertionError,
    AttributeError,
    # Of LangGraph's own, those that are plain Exceptions.
    EmptyChannelError,
    EmptyInputError,
    InvalidUpdateError,
    ParentCommand,
    TaskNotFound,
    UnknownInterruptError,
)
#: The same of database clients, by the names that PEP 249 gives (sqlalchemy's are so too).
_MISTAKES_IN_SQL = frozenset(
    {"ProgrammingError", "DataError", "IntegrityError", "NotSupportedError"}
)
#: Nothing was sent, nor ever will be: a URL without its scheme, say.
_UNSENDABLE = frozenset({"UnsupportedProtocol", "LocalProtocolError", "InvalidURL"})
_LONGEST = 2000


def transient(exc: BaseException) -> bool:
    """Whether the same turn may succeed later without a change of code or input."""
    if isinstance(exc, _MISTAKES) or not isinstance(exc, Exception):
        return False
    names = {kind.__name__ for kind in type(exc).__mro__}
    if names & _UNSENDABLE or names & _MISTAKES_IN_SQL:
        return False
    if isinstance(exc, psycopg.OperationalError):
        return True
    # As for an outside that knows no request ids: a conflict stays one.
    verdict = faults.classify(exc, "park")
    if verdict == "unknown":
        return default_retry_on(exc)
    return verdict != "permanent"


def judged(exc: BaseException, crashes: int, most: int) -> Outcome:
    """The outcome of a turn that ended in ``exc``; crashes: this attempt counted as one.

    Out of memory counts as a crash: the next attempt may take the process, and the others in
    it, so it runs alone, and after ``most`` of both the message is quarantined.
    """
    error = describe(exc)
    if not isinstance(exc, MemoryError):
        return Outcome(Kind.RETRY if transient(exc) else Kind.DEAD, error)
    if crashes < most:
        return Outcome(Kind.RETRY, error, crashed=True)
    said = f"quarantined: {crashes} attempts at it ran out of memory or lost their process"
    return Outcome(Kind.DEAD, f"{said}; last: {error}")


def give_back(exc: BaseException) -> None:
    """Of a turn that ran out of memory: let go of what the frames behind it hold. The rest
    of the turn needs some, and so does the next one in this process."""
    if isinstance(exc, MemoryError):
        traceback.clear_frames(exc.__traceback__)
        gc.collect()


def ends(exc: BaseException) -> bool:
    """Whether its process was told to end, which is none of the message's doing."""
    return isinstance(exc, SystemExit) and terminate_handler_fired()


def interrupts(exc: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C: raised by Python itself, in the main thread only. A
    node that raises it where that can't be has failed like any other."""
    return (
        isinstance(exc, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def describe(exc: BaseException) -> str:
    """One line for people: type, message and the line of the user's that it came from, of 2000
    characters at most, no NUL."""
    text = f"{type(exc).__name__}: {exc}".replace("\x00", "\ufffd").strip().removesuffix(":")
    place = _place(exc)
    text = text.encode("utf-8", "replace").decode()[: _LONGEST - len(place)]
    return text + place


def _place(exc: BaseException) -> str:
    """In brackets, `agent.py:16, in pay`. Where memory has run out, none is taken to say so."""
    if isinstance(exc, MemoryError):
        return ""
    place = own_code.place_of(exc, get_settings().graphs_path.resolve().parent)
    return f" ({place})" if place else ""
