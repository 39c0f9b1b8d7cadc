"""Control errors: how a turn is stopped from the inside.

They derive from BaseException, so that no ``except Exception`` in a node, in
LangGraph's retry policies or in tenacity takes one for an ordinary failure and
goes on with a thread that it may no longer write.

    Control
    ├── ClaimLost      the thread belongs to somebody else: nothing more is sent or written
    ├── Cancelled      the thread was cancelled: stop before the next effect
    ├── InDoubt        an effect may have happened; a person has to say
    └── RetryLater     not now: give the slot back and come again
"""


class Control(BaseException):
    """Root of the control errors."""


class ClaimLost(Control):
    """The claim is gone, or the turn that a left-over call belongs to has ended."""

    def __init__(self, reason: str = "the claim on this thread is gone") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(Control):
    """The thread's cancel flag is set."""

    def __init__(self, reason: str = "the thread was cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


class InDoubt(Control):
    """An effect was begun, has no result, and its policy leaves the answer to a person."""

    def __init__(self, request_id: str, name: str, reason: str) -> None:
        super().__init__(request_id, name, reason)
        self.request_id = request_id
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"effect {self.name} ({self.request_id}) is in doubt: {self.reason}"


class RetryLater(Control):
    """The turn can't go on now.

    delay
        Seconds until it may (a lower bound); None leaves it to the worker's backoff.
    counted
        True for a transient failure (it counts towards giving up), False for a wait
        that is nobody's failure: a keyed effect held elsewhere, or ``settle``.
    """

    def __init__(self, delay: float | None, reason: str, counted: bool) -> None:
        super().__init__(delay, reason, counted)
        self.delay = delay
        self.reason = reason
        self.counted = counted

    def __str__(self) -> str:
        return self.reason


def control_of(error: BaseException) -> BaseException:
    """The control error in a group of errors, as asyncio.TaskGroup makes one; without any,
    the group's first error; an error that is no group, itself."""
    if isinstance(error, BaseExceptionGroup):
        controls, _ = error.split(Control)
        error = controls or error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    return error
