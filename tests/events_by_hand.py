"""A thread's events as a worker would write them, and readers that note what they get."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

from graphs.chat_messages import folded
from infra.event_stream import channel, database_of, stream
from infra.settings import Settings
from producers.live import Event, EventId, Hub, Lagging, Snapshot
from tests.harness import Broker, Database

AT = "2026-01-01T00:00:00+00:00"


class Writer:
    """Writes one thread's events: to Postgres, to the stream, or to both."""

    def __init__(
        self, database: Database, broker: Broker, thread_id: str, kept: int = 2000
    ) -> None:
        self.thread_id = thread_id
        self._kept = kept
        self._conn = database.session()
        self._broker = broker.client
        self._number = database_of(broker.url)
        self.epoch = 0
        self.n = 0
        self._before: str | None = None
        #: The conversation, as the newest checkpoint has it.
        self.state: list[dict[str, Any]] = []
        self._version = 0

    def create(self, status: str = "running") -> None:
        """The thread's row."""
        graph, _, key = self.thread_id.partition(":")
        self._conn.execute(
            """INSERT INTO fleet.threads (thread_id, graph, key, status, created_at, updated_at)
            VALUES (%s, %s, %s, %s, fleet.now(), fleet.now())""",
            (self.thread_id, graph, key, status),
        )

    def claim(self, message_id: str = "m1", attempt: int = 1, *, stream: bool = True) -> None:
        """A turn begins: a new epoch."""
        row = self._conn.execute(
            """UPDATE fleet.threads SET epoch = nextval('fleet.epochs'), status = 'running'
            WHERE thread_id = %s RETURNING epoch""",
            (self.thread_id,),
        ).fetchone()
        assert row is not None
        self.epoch, self.n, self._before = row[0], 0, None
        turn = self._made("turn", {"message_id": message_id, "attempt": attempt}, n=0)
        if stream:
            self.publish(turn)

    def made(self, type: str, **data: Any) -> dict[str, Any]:
        """The next event of the epoch."""
        self.n += 1
        return self._made(type, data, self.n)

    def token(self, text: str, message: str = "t1") -> dict[str, Any]:
        return self.made("token", message_id=message, node="say", ns="", text=text)

    def message(self, text: str, message: str = "t1", **more: Any) -> dict[str, Any]:
        more = {"role": "assistant", "node": "say", "ns": ""} | more
        return self.made("message", message_id=message, text=text, **more)

    def ended(self, outcome: str = "done", status: str = "done") -> dict[str, Any]:
        return self.made("ended", outcome=outcome, status=status, message_id="m1")

    def settle(self, status: str) -> None:
        """The thread's status, as the end of a turn has it."""
        self._conn.execute(
            "UPDATE fleet.threads SET status = %s WHERE thread_id = %s", (status, self.thread_id)
        )

    def keep(self, *events: dict[str, Any], stateful: bool = False) -> None:
        """Make them durable, in one commit; stateful: with a checkpoint that has the messages."""
        with self._conn.transaction():
            if stateful:
                self.state = folded(
                    self.state, (e["data"] for e in events if e["type"] == "message")
                )
                self._checkpoint()
            for event in events:
                self._conn.execute(
                    """INSERT INTO fleet.events (thread_id, epoch, n, type, payload, at)
                    VALUES (%s, %s, %s, %s, %s, fleet.now())""",
                    (
                        self.thread_id,
                        *EventId.parse(event["id"]),
                        event["type"],
                        json.dumps(event["data"]),
                    ),
                )

    def _checkpoint(self) -> None:
        self._version += 1
        made = empty_checkpoint()
        said = [
            AIMessage(one["text"], id=one["message_id"], tool_calls=one.get("tool_calls") or [])
            for one in self.state
        ]
        made["channel_values"] = {"messages": said, "count": self._version}
        made["channel_versions"] = {
            "messages": f"{self._version:032}",
            "count": f"{self._version:032}",
        }
        config: Any = {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}
        PostgresSaver(self._conn).put(config, made, {}, made["channel_versions"])

    def lose(self, *events: dict[str, Any]) -> None:
        """The broker never gets them; what comes later says so."""
        self._before = events[-1]["id"]

    def publish(self, *events: dict[str, Any]) -> None:
        """One batch in the stream and on the channel."""
        batch = [dict(event) for event in events]
        if self._before is not None:
            batch[0]["after"] = self._before
        name = stream(self.thread_id)
        text = json.dumps(batch)
        with self._broker.pipeline() as pipe:
            pipe.xadd(name, {"e": text}, id=events[-1]["id"], maxlen=self._kept, approximate=False)
            pipe.publish(channel(self.thread_id, self._number), text)
            pipe.execute()
        self._before = events[-1]["id"]

    def both(self, *events: dict[str, Any]) -> None:
        self.keep(*events)
        self.publish(*events)

    def close(self) -> None:
        self._conn.close()

    def _made(self, type: str, data: dict[str, Any], n: int) -> dict[str, Any]:
        return {"id": f"{self.epoch}-{n}", "type": type, "at": AT, "data": data}


class Reader:
    """One watch, which goes on in the background; what it got, in order."""

    def __init__(self, hub: Hub, thread_id: str, after: EventId | None = None, **how: Any) -> None:
        self.items: list[Event | Snapshot | Lagging] = []
        self.error: BaseException | None = None
        self.ended = False
        self._watch = hub.watch(thread_id, after, **how)
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async for item in self._watch:
                self.items.append(item)
        except Exception as exc:
            self.error = exc
        finally:
            self.ended = True
            await self._watch.aclose()

    async def leave(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def events(self) -> list[Event]:
        """Those after the last snapshot."""
        self._check()
        at = [n for n, item in enumerate(self.items) if isinstance(item, Snapshot)]
        tail = self.items[at[-1] + 1 :] if at else self.items
        return [item for item in tail if isinstance(item, Event)]

    @property
    def ids(self) -> list[str]:
        return [str(event.id) for event in self.events]

    @property
    def snapshots(self) -> list[Snapshot]:
        self._check()
        return [item for item in self.items if isinstance(item, Snapshot)]

    @property
    def texts(self) -> dict[str, str]:
        """The conversation as a page shows it: whole messages, and those under way."""
        shown: dict[str, str] = {}
        for item in self.items:
            if isinstance(item, Snapshot):
                shown = {m["message_id"]: m["text"] for m in item.messages}
                shown |= {m["message_id"]: m["text"] for m in item.partial}
            elif isinstance(item, Event) and item.type == "message":
                if "removed" in item.data:
                    shown.pop(item.data["removed"], None)
                else:
                    shown[item.data["message_id"]] = item.data["text"]
            elif isinstance(item, Event) and item.type == "token":
                name = item.data["message_id"]
                shown[name] = shown.get(name, "") + item.data["text"]
        return shown

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    @property
    def last(self) -> EventId | None:
        if not self.items:
            return None
        item = self.items[-1]
        return (
            item.head
            if isinstance(item, Snapshot)
            else item.id
            if isinstance(item, Event)
            else item.last
        )


@asynccontextmanager
async def hub_of(settings: Settings, look_every: float = 0.2) -> AsyncIterator[Hub]:
    hub = Hub(settings, look_every=look_every)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.aclose()


@asynccontextmanager
async def reader_of(
    writer: Writer, settings: Settings, status: str = "running"
) -> AsyncIterator[Reader]:
    """Who watches the writer's thread, new and of this status, and has its first snapshot."""
    writer.create(status)
    async with hub_of(settings) as hub:
        reader = Reader(hub, writer.thread_id)
        await soon(lambda: reader.snapshots)
        yield reader


async def soon(fn: Callable[[], Any], timeout: float = 10.0) -> Any:
    """The first truthy result of `fn`, without holding up the loop."""
    deadline = time.monotonic() + timeout
    while True:
        problem: AssertionError | None = None
        result = None
        try:
            if result := fn():
                return result
        except AssertionError as exc:
            problem = exc
        if time.monotonic() > deadline:
            raise problem or AssertionError(f"still {result!r} after {timeout} s")
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(bounded())
