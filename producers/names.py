"""The names that threads and messages go by: every door and every worker needs them.

A name is checked where it comes in, and then safe in a log's line, a URL and a thread_id.
"""

import re
import unicodedata
import uuid
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from .errors import InvalidKey
from .payloads import shown

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


def message_id_of(given: str | None) -> str:
    """The caller's, or a new one. An empty one is kept, and refused with the message: a
    variable that is not set must not become an identity of its own at each call."""
    return new_message_id() if given is None else given


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
    # Printable text has none of them, and other text may have none either.
    for at, char in enumerate("" if value.isprintable() else value):
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
