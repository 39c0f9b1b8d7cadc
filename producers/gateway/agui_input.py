"""What a RunAgentInput asks of the fleet, and handing it over.

The last message, when it is a person's, goes to the thread under its own id: a start where the
thread is new, input where it is not, and nothing at all where it went there before (the run
joins what became of it). `resume` answers questions; all of it is looked at before any of it
is accepted. Without either the run joins what is under way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import ResumeEntry, RunAgentInput, UserMessage

from ..client import Fleet
from ..errors import InvalidPayload, MessageConflict
from ..names import check_graph, check_key, check_message_id, check_text_name, split_thread_id
from ..names import thread_id as thread_id_of
from ..refusals import unknown_thread
from .agui_answers import Answers
from .agui_messages import blocks
from .database import Database


@dataclass(frozen=True, slots=True)
class Given:
    """A run as it was asked for. graph: where the threadId may be a key alone; input: of the
    graph, beside the message."""

    run_id: str
    graph: str | None
    message: UserMessage | None
    resume: Sequence[ResumeEntry] = ()
    input: Mapping[str, Any] = field(default_factory=dict)
    context: Sequence[Mapping[str, str]] = ()


def given(asked: RunAgentInput) -> Given:
    """Raises InvalidPayload, InvalidKey."""
    props = asked.forwarded_props if isinstance(asked.forwarded_props, Mapping) else {}
    extra, graph = props.get("input", {}), props.get("graph")
    if not isinstance(extra, Mapping):
        raise InvalidPayload("forwardedProps.input is no object.", "Give the graph's input as one.")
    if graph is not None and not isinstance(graph, str):
        raise InvalidPayload("forwardedProps.graph is no text.", "Give the graph's name.")
    last = asked.messages[-1] if asked.messages else None
    said = last if isinstance(last, UserMessage) else None
    if said is not None:
        check_message_id(said.id)
    ids = [check_text_name(entry.interrupt_id, "interruptId") for entry in asked.resume or ()]
    if len(set(ids)) < len(ids):
        raise InvalidPayload("resume names a question twice.", "Give one entry per interruptId.")
    return Given(
        check_text_name(asked.run_id, "runId"),
        graph,
        said,
        tuple(asked.resume or ()),
        extra,
        [{"description": c.description, "value": c.value} for c in asked.context or ()],
    )


def place(tenant: str, thread: str, graph: str | None) -> str:
    """The fleet's thread_id of AG-UI's threadId, which is `graph:key`, or the key alone where
    the graph is named beside it. Raises InvalidKey, UnknownThread."""
    if graph and not thread.startswith((f"{graph}:", f"{tenant}/{graph}:")):
        return thread_id_of(check_graph(graph), check_key(thread), tenant)
    owner, graph, key = split_thread_id(thread)
    if owner not in ("", tenant):
        raise unknown_thread(thread)
    return thread_id_of(graph, key, tenant)


@dataclass(frozen=True, slots=True)
class Handed:
    """ours: the message_ids that the run is about; None for whatever is under way. fresh:
    whether some of it was accepted only now, so that events of it are still to come."""

    ours: frozenset[str] | None
    fresh: bool


class Door:
    """Hands runs over to one tenant's fleet. Blocks: called from a thread."""

    def __init__(self, fleet: Fleet, database: Database, by: str) -> None:
        self._fleet = fleet
        self._database = database
        self._answers = Answers(fleet, database, by)

    def says(self, thread: str, run: Given) -> bool:
        """Whether the run has something to say, beside answers."""
        if run.message is None:
            # What starts a graph that takes no messages; clients send it with every run.
            new = bool(run.input) and not run.resume
            return new and not self._standing(thread, run.run_id)["known"]
        # A conversation may end with a message that was said long ago.
        return not run.resume or self._standing(thread, run.message.id)["said"] is None

    def hand_over(self, thread: str, run: Given, *, says: bool) -> Handed:
        """Raises ProducerErrors; then nothing was accepted."""
        receipts: dict[str, bool] = {}
        if run.resume:
            receipts |= self._answers.accept(thread, run.run_id, run.resume)
        if says:
            receipts |= self._say(thread, run)
        if not receipts:
            self._fleet.status(thread)  # raises UnknownThread
        return Handed(frozenset(receipts) or None, any(receipts.values()))

    def _say(self, thread: str, run: Given) -> dict[str, bool]:
        """{message_id: whether it was accepted now}."""
        message_id = run.message.id if run.message else run.run_id
        content, payload = None, dict(run.input)
        if run.message is not None:
            content = blocks(run.message.content)
            payload["messages"] = [{"role": "user", "content": content, "id": message_id}]
        standing = self._standing(thread, message_id)
        if standing["said"]:
            _require_same(thread, message_id, content, standing["said"]["payload"])
            return {message_id: False}
        more: dict[str, Any] = {"message_id": message_id}
        if run.context:
            more["config"] = {"configurable": {"agui_context": list(run.context)}}
        if not standing["known"]:
            _, graph, key = split_thread_id(thread)
            receipt = self._fleet.submit(graph, key, payload, **more)
            if receipt.outcome != "existing":
                return {message_id: receipt.outcome == "accepted"}
            # Somebody else has begun it meanwhile.
        receipt = self._fleet.send(thread, payload, **more)
        return {message_id: receipt.outcome == "accepted"}

    def _standing(self, thread: str, message_id: str) -> dict[str, Any]:
        """``{"known", "said": {"kind", "payload"} | None, …}`` of the thread and the message."""
        rows = self._database.rows_now(
            "session_message", reads=True, thread_id=thread, message_id=message_id
        )
        found: dict[str, Any] = rows[0]["standing"]
        return found


def _require_same(thread: str, message_id: str, content: Any, said: Mapping[str, Any]) -> None:
    """Refuse another message under an id that is taken."""
    messages = said.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else {}
    if content is not None and (not isinstance(last, Mapping) or last.get("content") != content):
        raise MessageConflict(
            f"{thread} has a message '{message_id}' with another payload.",
            thread_id=thread,
            message_id=message_id,
        )
