"""A thread as it is at one moment: what a reader gets in place of events that are gone.

All of it is of one moment in Postgres, so it holds exactly what the durable events up to its
head tell. What the present turn has streamed by then is added from the broker.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from graphs.chat_messages import conversation, folded, messages_data, unanswered
from graphs.stored import SERDE
from infra.sql import query

from ..names import checkpoint_thread_id
from ..past.values import Graphs, Values
from ..refusals import unknown_thread
from ..status import ThreadStatus, thread_status
from .durable import texts
from .events import Event, texts_begun
from .ids import FIRST, EventId
from .log import Log
from .merge import merge
from .streams import BrokerAway

Reason = Literal["first", "gone", "retracted"]
#: Seconds within which what Postgres has comes by the stream too.
ON_ITS_WAY = 0.5
_OVER = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Live goes on after `head`.

    reason: "first" as none was given to go on from, "gone" where that is not known any more,
    "retracted" where what was seen has been undone.
    thread: with its open questions and the mail that is not done, without effects.
    messages: as the data of `message` events; chat: whether the state has a place for them, so
    that none means that there are none; values: the other channels of the newest
    checkpoint; partial: {message_id, node, text}; running_tools: {id, name, args}.
    """

    head: EventId
    reason: Reason
    thread: ThreadStatus
    messages: list[dict[str, Any]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    partial: list[dict[str, Any]] = field(default_factory=list)
    running_tools: list[dict[str, Any]] = field(default_factory=list)
    chat: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "head": str(self.head),
            "reason": self.reason,
            "thread": self.thread.model_dump(mode="json"),
            "messages": self.messages,
            "values": self.values,
            "partial": self.partial,
            "running_tools": self.running_tools,
            "chat": self.chat,
        }


@dataclass(frozen=True, slots=True)
class Taken:
    """hole: the turn has streamed something that is neither known nor durable yet.

    unsure: the snapshot shows what is not durable yet.
    """

    snapshot: Snapshot
    hole: bool
    unsure: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one moment in Postgres holds."""

    thread: ThreadStatus
    head: EventId
    fresh: bool
    told: Mapping[int, Collection[str]]
    messages: list[dict[str, Any]]
    values: dict[str, Any]
    chat: bool


class Snapshots:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._graphs: dict[str, Graphs] = {}

    async def take(self, thread_id: str, reason: Reason) -> Taken:
        """Raises UnknownThread, FleetUnavailable."""
        seen = await self._log.durable.run(lambda conn: self._seen(conn, thread_id))
        streamed: list[Event] = []
        if seen.thread.status == "running":
            streamed = await self._streamed(thread_id, seen)
        loose = [e for e in streamed if e.type == "message" and e.id.n not in seen.told]
        whole = {name for names in seen.told.values() for name in names}
        messages = folded(seen.messages, (dict(e.data) for e in loose))
        # The broker may lack the message that ended a text.
        begun = texts_begun(streamed).values()
        partial = [text for text in begun if text["message_id"] not in whole]
        snapshot = Snapshot(
            head=seen.head,
            reason=reason,
            thread=seen.thread,
            messages=messages,
            values=seen.values,
            partial=partial,
            running_tools=[] if seen.thread.status in _OVER else unanswered(messages),
            chat=seen.chat,
        )
        hole = merge(EventId(seen.head.epoch, 0), streamed, []).hole
        return Taken(snapshot, hole, bool(partial or loose))

    async def _streamed(self, thread_id: str, seen: _Seen) -> list[Event]:
        """What the present turn has streamed up to the head: all of it, if it comes in time."""
        try:
            start = EventId(seen.head.epoch, 0)
            if seen.fresh:
                await self._log.arrived(thread_id, seen.head, ON_ITS_WAY)
            found = await self._log.streams.after(thread_id, start)
        except BrokerAway:
            return []
        return [e for e in found if start < e.id <= seen.head]

    def _seen(self, conn: psycopg.Connection[Any], thread_id: str) -> _Seen:
        with conn.transaction():
            conn.execute(query("one_moment"))
            found = texts(conn, "watched_thread", thread_id=thread_id)
            if not found:
                raise unknown_thread(thread_id)
            row = json.loads(found[0])
            thread = thread_status(row["thread"])
            messages, values, chat = self._state(conn, thread)
        newest = EventId(*row["head"]) if row["head"][0] is not None else FIRST
        return _Seen(
            thread,
            # What an earlier claim gave is durable by now or void.
            max(newest, EventId(thread.epoch, 0)),
            newest.epoch == thread.epoch and float(row["head_age"]) < 2,
            {n: names for n, *names in row["told"]},
            messages,
            values,
            chat,
        )

    def _state(
        self, conn: psycopg.Connection[Any], thread: ThreadStatus
    ) -> tuple[list[dict[str, Any]], dict[str, Any], bool]:
        """(messages, the other values, whether there is a channel of messages): with the
        messages of tasks that have finished in a step which goes on, as their events are
        durable."""
        saver = PostgresSaver(conn, serde=SERDE)
        name = checkpoint_thread_id(thread.thread_id, thread.generation)
        try:
            with conn.transaction():
                found = saver.get_tuple({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
        except psycopg.errors.UndefinedTable:
            return [], {}, False
        if found is None:
            return [], {}, False
        values, _ = Values(saver, thread.graph, self._graphs).read(found)
        channel = conversation(values)
        written: dict[str, list[Any]] = {}
        for task, name, value in found.pending_writes or ():
            if name == channel:
                written.setdefault(task, []).extend(value if isinstance(value, list) else [value])
        more = [data for task, listed in written.items() for data in messages_data(listed, task)]
        chat = channel in values
        kept = values.pop(channel, [])
        return folded(messages_data(kept, channel), more), values, chat
