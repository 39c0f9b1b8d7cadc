"""The messages that a thread's mailbox takes.

One model per kind. Building one checks all that can be checked without asking the
fleet; `accept_args()` is what the SQL function fleet.accept takes. The names that they go
by are `producers.names`' and can be imported from here too.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from .errors import InvalidPayload
from .names import (
    Graph,
    Key,
    MessageId,
    Tenant,
    check_graph,
    check_text_name,
    checkpoint_thread_id,
    message_id_of,
    new_message_id,
    run_id,
    split_thread_id,
    thread_id,
)
from .payloads import canonical_hash, canonical_json, checked, checked_object
from .runs import RunConfig, RunContext, RunInput, joined

__all__ = [
    "KINDS",
    "WIRE",
    "Amend",
    "Answer",
    "Input",
    "Message",
    "OnExisting",
    "Resolve",
    "Start",
    "built",
    "canonical_hash",
    "canonical_json",
    "check_graph",
    "checkpoint_thread_id",
    "json_schema",
    "message_id_of",
    "new_message_id",
    "run_id",
    "split_thread_id",
    "thread_id",
]

OnExisting = Literal["use_existing", "reject", "restart"]

#: Of the kinds below. A payload that comes to mean something else gets another kind, with the
#: new number ("answer@2"): a worker that does not know it leaves such mail to newer ones.
WIRE = 1
KINDS = frozenset({"start", "input", "answer", "amend", "resolve"})


def _as(check: Callable[[Any, str], Any], name: str) -> Any:
    return BeforeValidator(lambda value: check(value, name))


class Message(BaseModel):
    """What every kind has: whose mailbox it goes to, and its identity there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    tenant: Tenant = ""
    graph: Graph
    key: Key
    message_id: MessageId = Field(default_factory=new_message_id)
    priority: int = Field(0, ge=-100, le=100, strict=True, description="Higher is sooner.")
    # Strict, like all numbers of a message: `true` is no number of seconds.
    delay: float | None = Field(
        None,
        ge=0,
        le=365 * 86400,
        strict=True,
        allow_inf_nan=False,
        description="Seconds until it is due.",
    )

    @property
    def thread_id(self) -> str:
        return thread_id(self.graph, self.key, self.tenant)

    @property
    def payload(self) -> dict[str, Any]:
        raise NotImplementedError

    def accept_args(self, *, notify: bool = False) -> dict[str, Any]:
        """The argument of fleet.accept; `notify` inside a caller's own transaction."""
        args: dict[str, Any] = {
            "tenant": self.tenant,
            "graph": self.graph,
            "key": self.key,
            "message_id": self.message_id,
            "kind": self.kind,
            "payload": self.payload,
            "payload_hash": canonical_hash(self.payload),
            "priority": self.priority,
            "notify": notify,
        }
        return args if self.delay is None else {**args, "delay": self.delay}


class Start(Message):
    """Begin the thread of a key, or meet it (`on_existing`)."""

    kind: Literal["start"] = "start"
    input: RunInput
    context: RunContext = None
    config: RunConfig = None
    on_existing: OnExisting = "use_existing"
    force: bool = Field(
        False,
        strict=True,
        description="Restart also where an effect is in doubt or a node was done by hand.",
    )

    @property
    def payload(self) -> dict[str, Any]:
        return joined(self.input, self.context, self.config)

    def accept_args(self, *, notify: bool = False) -> dict[str, Any]:
        args = {**super().accept_args(notify=notify), "on_existing": self.on_existing}
        return {**args, "force": True} if self.force else args


class Input(Message):
    """More input for a thread that exists, such as the next chat message."""

    kind: Literal["input"] = "input"
    input: RunInput
    context: RunContext = None
    config: RunConfig = None

    @property
    def payload(self) -> dict[str, Any]:
        return joined(self.input, self.context, self.config)


class Answer(Message):
    """The reply to one question, by its id."""

    kind: Literal["answer"] = "answer"
    question_id: Annotated[str, _as(check_text_name, "question_id")]
    value: Annotated[Any, _as(checked, "answer")]
    answered_by: Annotated[str, _as(check_text_name, "answered_by")] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        return {"question_id": self.question_id, "value": self.value}

    def accept_args(self, *, notify: bool = False) -> dict[str, Any]:
        return {
            **super().accept_args(notify=notify),
            "question_id": self.question_id,
            "answered_by": self.answered_by,
        }


class Resolve(Message):
    """A person's word on an effect in doubt: it happened, with this result, or it did not."""

    kind: Literal["resolve"] = "resolve"
    request_id: Annotated[str, _as(check_text_name, "request_id")]
    happened: bool = Field(strict=True)
    result: Annotated[Any, _as(checked, "result")] = None

    def model_post_init(self, context: Any) -> None:
        if not self.happened and self.result is not None:
            raise InvalidPayload(
                "A result was given for an effect that did not happen.", "Leave the result out."
            )

    @property
    def payload(self) -> dict[str, Any]:
        return {"request_id": self.request_id, "happened": self.happened, "result": self.result}


class Amend(Message):
    """A correction of the thread's state by a person, as if node `as_node` had written it."""

    kind: Literal["amend"] = "amend"
    as_node: Annotated[str, _as(check_text_name, "as_node")]
    values: Annotated[dict[str, Any], _as(checked_object, "values")]
    by: Annotated[str, _as(check_text_name, "by")] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        return {"as_node": self.as_node, "values": self.values, "by": self.by}


M = TypeVar("M", bound=Message)


def built(model: type[M], **fields: Any) -> M:
    """The message; what pydantic has against a field comes out as InvalidPayload."""
    try:
        return model(**fields)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in error["loc"]) or "message"
        raise InvalidPayload(
            f"The {where} of the {model.__name__.lower()} message is wrong: {error['msg']}.",
            "Correct it and send again.",
        ) from None


def json_schema() -> dict[str, Any]:
    """JSON Schema of all kinds, told apart by `kind`: the contract for other languages."""
    kinds: TypeAdapter[Any] = TypeAdapter(
        Annotated[Start | Input | Answer | Resolve | Amend, Field(discriminator="kind")]
    )
    return kinds.json_schema()
