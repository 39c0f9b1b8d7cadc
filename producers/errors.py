"""What a producer can be told, as a short tree named for what happened.

    ProducerError
    ├── NotConfigured        no address of the fleet's Postgres
    ├── FleetUnavailable     Postgres can't be reached, or could not do it now
    │   └── OutcomeUnknown   it went silent: whether it did it is not known
    ├── NotMigrated          the database lacks the fleet's tables or functions
    ├── InvalidKey           a key, tenant, graph name or message_id that can't name anything
    ├── InvalidPayload       not JSON as the fleet stores it
    ├── InvalidInput         JSON, but not what the graph's schema asks for
    ├── UnknownGraph         no such graph is registered
    ├── UnknownThread        no such thread
    ├── ThreadExists         a second start under on_existing="reject"
    ├── MessageConflict      the message_id is known with another payload
    ├── QuestionOpen         input while a question waits for its answer
    ├── AnswerRefused        the answer does not fit the question (see `reason`)
    ├── NotInDoubt           nothing to resolve under that request_id
    ├── ThreadBusy           a turn runs: what was asked for has to wait for its end
    ├── NothingToDo          the thread has nothing of the kind that was to be changed
    ├── EffectInDoubt        an effect may have happened: a person has to look or say first
    ├── UnknownWorker        no such worker has announced itself
    ├── UnknownCheckpoint    the thread has no such checkpoint
    ├── AmendmentRefused     a worker could not apply the amendment
    └── WaitTimeout          the thread had not settled in time

Each carries its data as attributes, says in `message` what happened to what, and
in `hint` what to do next. Nothing was accepted when one of them is raised, except
where its text says otherwise.
"""

from typing import Any, ClassVar, Literal

Reason = Literal[
    "no_question", "stale_question", "already_answered", "finished", "wrong_shape", "expired"
]


class ProducerError(Exception):
    """Root of the tree. `exit_code` is 2 for what was given and can't be right: a name that is
    none or that nothing has been registered under, a payload that is no JSON object."""

    code: ClassVar[str] = "producer_error"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, hint: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.data = data
        self.index: int | None = None  # of the item of a `submit_many`

    def __getattr__(self, name: str) -> Any:
        if name != "data" and name in self.__dict__.get("data", ()):
            return self.data[name]
        raise AttributeError(name)

    def __str__(self) -> str:
        where = "" if self.index is None else f"Item {self.index}: "
        return f"{where}{self.message} {self.hint}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """What a machine reads: code, message, hint and the error's own data."""
        found = {"code": self.code, "message": self.message, "hint": self.hint, **self.data}
        return found if self.index is None else {**found, "index": self.index}


class NotConfigured(ProducerError):
    code = "not_configured"


class FleetUnavailable(ProducerError):
    code = "fleet_unavailable"
    default_hint = "Nothing was accepted; try again when Postgres answers."


class OutcomeUnknown(FleetUnavailable):
    """Data: message_id, where a message was sent that can be sent again under it."""

    code = "outcome_unknown"
    default_hint = (
        "It is not known whether it was done: look with `fleet show`, `workers` or `graphs`, and "
        "do it again where it was not."
    )

    def name_message(self, message_id: str) -> None:
        """It was a message that was sent, under this id."""
        self.data["message_id"] = message_id
        self.hint = (
            "It is not known whether the message was accepted; send it again with the same "
            f"message_id, {message_id}, which is safe."
        )


class NotMigrated(ProducerError):
    code = "not_migrated"
    default_hint = "Run `fleet migrate` against this database."


class InvalidKey(ProducerError):
    code = "invalid_key"
    exit_code = 2


class InvalidPayload(ProducerError):
    code = "invalid_payload"
    exit_code = 2


class InvalidInput(ProducerError):
    """Data: graph, path (of the value that does not fit)."""

    code = "invalid_input"


class UnknownGraph(ProducerError):
    """Data: graph, known."""

    code = "unknown_graph"
    exit_code = 2


class UnknownThread(ProducerError):
    """Data: thread_id."""

    code = "unknown_thread"
    default_hint = "Submit it first, or look for it with `fleet threads`."


class ThreadExists(ProducerError):
    """Data: thread_id, status."""

    code = "thread_exists"
    default_hint = 'Use on_existing="use_existing" to get its receipt, or "restart" to start anew.'


class MessageConflict(ProducerError):
    """Data: thread_id, message_id."""

    code = "message_conflict"
    default_hint = "Send the same payload again, or another message_id for another message."


class QuestionOpen(ProducerError):
    """Data: thread_id, open (question ids)."""

    code = "question_open"
    default_hint = "Answer the question first."


class AnswerRefused(ProducerError):
    """Data: thread_id, and question_id, open, answered_by, answered_at where they apply."""

    code = "answer_refused"

    def __init__(
        self, message: str, hint: str | None = None, *, reason: Reason, **data: Any
    ) -> None:
        super().__init__(message, hint, reason=reason, **data)
        self.reason: Reason = reason


class NotInDoubt(ProducerError):
    """Data: thread_id, request_id."""

    code = "not_in_doubt"
    default_hint = (
        "It is unknown or settled, or its message was dropped or cancelled: then nothing waits for "
        "it any more, and nothing needs to be recorded. `fleet show` lists the effects of a thread "
        "and their states."
    )


class ThreadBusy(ProducerError):
    """Data: thread_id."""

    code = "thread_busy"
    default_hint = "Try again when its turn has ended; `fleet cancel` stops it."


class NothingToDo(ProducerError):
    """Data: thread_id, status."""

    code = "nothing_to_do"
    default_hint = "Look at it with `fleet show`."


class EffectInDoubt(ProducerError):
    """Data: thread_id, in_doubt (request ids), and amended (nodes) where a start is refused."""

    code = "effect_in_doubt"


class UnknownWorker(ProducerError):
    """Data: worker, known."""

    code = "unknown_worker"
    exit_code = 2


class UnknownCheckpoint(ProducerError):
    """Data: thread_id, checkpoint_id."""

    code = "unknown_checkpoint"
    default_hint = "`fleet history` lists the checkpoints of a thread."


class AmendmentRefused(ProducerError):
    """Data: thread_id, message_id."""

    code = "amendment_refused"
    default_hint = "Nothing of the thread was changed."


class WaitTimeout(ProducerError, TimeoutError):
    """Data: thread_id, status, timeout (seconds)."""

    code = "wait_timeout"
    default_hint = "It goes on; look at it with `fleet show`."
