"""How LangGraph is heard: what its nodes say goes to the turn's events, in the node's own thread.

Its stream is not consumed: that would cost a queue and a waiting thread, and what came out of
it could not be held until the commit of the task it came from. Instead

- what nodes give their stream writer comes by a writer of ours: a runtime that a parent graph
  seems to have lent (``__pregel_stream`` and ``__pregel_runtime`` in the config);
- texts that models write, only for graphs with ``events: full`` (it costs some milliseconds a
  run), by LangGraph's own handler of ``stream_mode="messages"``, given as a callback;
- finished tasks, and the messages in their writes, by the saver (workers.saver).

A contract test pins what is used; where LangGraph has changed, :func:`hearable` warns and a
turn runs as it is, unheard.
"""

import functools
import inspect
import logging
from typing import Any, TypeAlias
from uuid import UUID

from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langgraph.config import get_config
from langgraph.pregel import Pregel, _loop, _messages
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import Runtime

from graphs.chats import text_of
from graphs.registry import RegisteredGraph
from infra.errors import FleetError
from workers.claim import Claim
from workers.events import Events
from workers.hearing import Hearing
from workers.places import Place
from workers.slot import Slot
from workers.transcript import Transcript

log = logging.getLogger("fleet.streaming")

_Meta: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]
#: Pregel.stream's own words.
_LENT = (
    "elif CONFIG_KEY_STREAM in config[CONF]:",
    "stream_writer = config[CONF][CONFIG_KEY_RUNTIME].stream_writer",
    "runtime = parent_runtime.merge(runtime)",
)


class Telling:
    """What one turn tells, and who hears it for that."""

    def __init__(self, slot: Slot, claim: Claim) -> None:
        try:
            graph = slot.registry.get(claim.graph)
            full, channel = graph.events == "full", graph.messages
        except FleetError:
            full, channel = False, None
        self.events = Events(claim, slot.publisher, full, channel or "messages")
        self._transcript = Transcript(self.events, channel) if full else None
        self.hearing = Hearing(claim.thread_id, self.events, self._transcript)

    def heard(self, config: dict[str, Any], graph: RegisteredGraph) -> dict[str, Any]:
        """The config with what makes a run of the graph heard."""
        if not hearable():
            return config
        writer = functools.partial(_write, self.events)
        runtime = Runtime(store=graph.graph.store, stream_writer=writer)
        lent = {"__pregel_stream": StreamProtocol(_ignore, set()), "__pregel_runtime": runtime}
        heard = {**config, "configurable": {**config["configurable"], **lent}}
        if self._transcript is not None:
            heard["callbacks"] = [Texts(self.events, self._transcript)]
        return heard


@functools.cache
def hearable() -> bool:
    """Whether the installed LangGraph has the shape that this relies on."""
    known = (
        all(
            line in inspect.getsource(run)
            for run in (Pregel.stream, Pregel.astream)
            for line in _LENT
        )
        and "if mode not in self.stream.modes and" in inspect.getsource(_loop.PregelLoop._emit)
        and {"on_chat_model_start", "on_llm_new_token", "on_llm_end", "on_llm_error", "_emit"}
        <= vars(StreamMessagesHandler).keys()
        and hasattr(_messages, "graph_namespace")
    )
    if not known:
        log.warning(
            "this LangGraph's streams are not those known: events lack texts as they are "
            "written, and what nodes give their stream writer"
        )
    return known


def _ignore(_: Any) -> None:
    """The stream itself: nothing is asked of it."""


def _write(events: Events, value: Any) -> None:
    """The stream writer of every node."""
    try:
        namespace = get_config()["configurable"]["checkpoint_ns"]
    except (RuntimeError, KeyError):
        # A thread of the node's own, without its context.
        namespace = ""
    events.custom(Place.of(namespace), value)


class Texts(StreamMessagesHandler):
    """Hears models: deltas as they come, then the whole message. Models stream because this
    handler is there; those tagged ``nostream`` are not heard."""

    #: Nodes' own returns are heard in their writes.
    ignore_chain = True

    def __init__(self, events: Events, transcript: Transcript) -> None:
        super().__init__(_ignore, subgraphs=True)
        self._events = events
        self._transcript = transcript
        #: Under which id the deltas of a run go out: chunks may change theirs half-way.
        self._ids: dict[UUID, str] = {}

    def on_llm_new_token(
        self,
        token: Any,
        *,
        chunk: Any = None,
        run_id: UUID,
        **kwargs: Any,
    ) -> Any:
        meta = self.metadata.get(run_id)
        if meta is None or not isinstance(chunk, ChatGenerationChunk):
            return
        streamed = self._ids.get(run_id)
        if streamed is None:
            streamed = self._ids[run_id] = chunk.message.id or f"lc_run--{run_id}"
            self._transcript.writing(streamed)
        if text := text_of(chunk.message.content):
            self._events.token(_place(meta), streamed, text)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> Any:
        streamed = self._ids.pop(run_id, None)
        meta = self.metadata.pop(run_id, None)
        message = _said(response)
        if meta is None or message is None:
            return
        if message.id is None:
            message.id = streamed or f"lc_run--{run_id}"
        more = {} if streamed in (None, message.id) else {"streamed_as": streamed}
        self._transcript.say(_place(meta), message, **more)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> Any:
        streamed = self._ids.pop(run_id, None)
        meta = self.metadata.pop(run_id, None)
        if meta is not None and streamed is not None:
            self._events.message(_place(meta), {"removed": streamed})
            self._transcript.forget([streamed])

    def _emit(self, meta: _Meta, message: BaseMessage, *, dedupe: bool = False) -> None:
        """A message that a node pushes (``push_message``)."""
        if not isinstance(message, RemoveMessage):
            self._transcript.say(_place(meta), message)


def _said(response: LLMResult) -> BaseMessage | None:
    first = response.generations[0][:1] if response.generations else []
    found = getattr(first[0], "message", None) if first else None
    return found if isinstance(found, BaseMessage) else None


def _place(meta: _Meta) -> Place:
    return Place.of(str(meta[1].get("langgraph_checkpoint_ns", "")))
