"""The messages that a thread's mailbox takes, and the names that they go by.

One model per kind. Building one checks all that can be checked without asking the
fleet; `accept_args()` is what the SQL function fleet.accept takes. The names
(`thread_id` and its parts) are here because every door and every worker needs them.
"""

import re
import unicodedata
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from .errors import InvalidKey, InvalidPayload
from .payloads import canonical_hash, canonical_json, checked, checked_object, shown
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
    "checkpoint_thread_id",
    "json_schema",
    "new_message_id",
    "run_id",
    "split_thread_id",
    "thread_id",
]

OnExisting = Literal["use_existing", "reject", "restart"]

#: Of the kinds below. A payload that comes to mean something else gets another kind, with the
#: new number ("answer@2"): a worker that does not know it leaves such mail to newer ones.
WIRE = 1
KINDS = frozenset({"start", "input", "answer", "amend", "resolve", "timer"})

MAX_NAME = 255
MAX_SHORT_NAME = 64
# LangGraph's thread_id of generation 2 is "refund:A1001#2"; a key of that form
# would share its checkpoints.
_GENERATION_SUFFIX = re.compile(r"#[0-9]+\Z")
# Cc, Cs, Zl, Zp: what breaks a line of a log or can't be stored.
_FORBIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})


def new_message_id() -> str:
    """A message_id for a message that is sent once; to send again, name your own."""
    return str(uuid.uuid4())


def thread_id(graph: str, key: str, tenant: str = "") -> str:
    """`refund:A1001`, or `acme/refund:A1001` for another than the default tenant."""
    return f"{tenant}/{graph}:{key}" if tenant else f"{graph}:{key}"


def split_thread_id(thread: str) -> tuple[str, str, str]:
    """(tenant, graph, key) of a thread_id, checked; InvalidKey when it is none."""
    head, colon, key = check_text_name(thread, "thread_id", MAX_NAME + 200).partition(":")
    tenant, _, graph = head.rpartition("/")
    if not colon or not graph:
        raise InvalidKey(
            f"'{shown(thread)}' is not a thread_id.", "It is graph:key, for example refund:A1001."
        )
    return check_tenant(tenant), check_graph(graph), check_key(key)


def checkpoint_thread_id(thread: str, generation: int) -> str:
    """LangGraph's thread_id: each generation starts from a clean state."""
    return f"{thread}#{generation}" if generation > 1 else thread


def run_id(message_id: str, thread_id: str) -> str:
    """LangGraph's run of a message: the same at each attempt, so that a begun turn goes on."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{thread_id}\n{message_id}"))


def check_text_name(value: Any, name: str, longest: int = MAX_NAME) -> str:
    """The name as plain text: not empty or blank, not too long, one line."""
    if not isinstance(value, str):
        raise InvalidKey(f"The {name} is of type {type(value).__name__}, not text.", "Give text.")
    if not value.strip():
        raise InvalidKey(f"The {name} is empty.", f"Give 1 to {longest} characters.")
    if len(value) > longest:
        raise InvalidKey(
            f"The {name} has {len(value)} characters; {longest} are allowed.",
            "Shorten it (a hash of it, for example).",
        )
    for at, char in enumerate(value):
        if unicodedata.category(char) in _FORBIDDEN:
            raise InvalidKey(
                f"The {name} '{shown(value)}' holds a control character at position {at}.",
                "Remove it.",
            )
    return str.__str__(value)


def check_key(value: Any) -> str:
    """The business id."""
    key = check_text_name(value, "key")
    if _GENERATION_SUFFIX.search(key):
        raise InvalidKey(
            f"The key '{shown(key)}' ends in '#' and a number, which names a thread's generation.",
            "Use another separator than '#'.",
        )
    return key


def check_message_id(value: Any) -> str:
    """The idempotency key."""
    return check_text_name(value, "message_id")


def check_graph(value: Any) -> str:
    """A name that can stand before the colon of a thread_id."""
    return _short(value, "graph")


def check_tenant(value: Any) -> str:
    """Empty for the default tenant."""
    return "" if value == "" else _short(value, "tenant")


def _short(value: Any, name: str) -> str:
    text = check_text_name(value, f"{name} name", MAX_SHORT_NAME)
    if "/" in text or ":" in text:
        raise InvalidKey(f"The {name} name '{shown(text)}' holds '/' or ':'.", "Use a plain name.")
    return text


def _as(check: Callable[[Any, str], Any], name: str) -> Any:
    return BeforeValidator(lambda value: check(value, name))


Key: TypeAlias = Annotated[str, BeforeValidator(check_key), Field(min_length=1, max_length=255)]
MessageId: TypeAlias = Annotated[
    str, BeforeValidator(check_message_id), Field(min_length=1, max_length=255)
]
Graph: TypeAlias = Annotated[
    str, BeforeValidator(check_graph), Field(max_length=MAX_SHORT_NAME, pattern="^[^/:]+$")
]
Tenant: TypeAlias = Annotated[
    str, BeforeValidator(check_tenant), Field(max_length=MAX_SHORT_NAME, pattern="^[^/:]*$")
]


class Message(BaseModel):
    """What every kind has: whose mailbox it goes to, and its identity there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    tenant: Tenant = ""
    graph: Graph
    key: Key
    message_id: MessageId = Field(default_factory=new_message_id)
    priority: int = Field(0, ge=-100, le=100, description="Higher is sooner.")
    delay: float | None = Field(
        None, ge=0, le=365 * 86400, allow_inf_nan=False, description="Seconds until it is due."
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

    @property
    def payload(self) -> dict[str, Any]:
        return joined(self.input, self.context, self.config)

    def accept_args(self, *, notify: bool = False) -> dict[str, Any]:
        return {**super().accept_args(notify=notify), "on_existing": self.on_existing}


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
