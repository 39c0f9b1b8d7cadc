"""The events of one claim: numbered, held until they are durable, and handed on.

Only a claim's holder tells, so ``epoch-n`` is unique and rises. What a task tells goes out
at once; it becomes durable with that task's writes, in the same commit, so that the next
attempt has both or neither. The end and its questions are durable with the turn's end and
go out after it has committed. A claim that is closed or lost tells nothing more.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson

from graphs.values import plain
from infra.failpoints import failpoint
from infra.sql import query
from workers.claim import Claim
from workers.feed import Feed
from workers.places import Place
from workers.publisher import Publisher
from workers.received import Received

log = logging.getLogger("fleet.events")

#: The type of an event, and its data.
_Told: TypeAlias = tuple[str, dict[str, Any]]
#: Bytes of values, as JSON, beyond which an event goes without them.
LARGEST = 64 * 1024
#: Bytes, about, of what nodes write that is held until their tasks end; more is live only.
MOST_HELD = 32 << 20
#: Of these, what each costs beside its value.
_ROW = 512
#: Of graphs with events: steps these stay in Postgres.
_WITHHELD = ("payload", "response_schema", "error")
_NOT_SENT = frozenset({"question", "ended"})


@dataclass(slots=True)
class _Held:
    tasks: tuple[str, ...]
    row: list[Any]
    size: int = 0


class Events:
    """What one turn tells. ``full``: of texts and values too. Thread safe; never raises what a
    node would see."""

    def __init__(
        self, claim: Claim, publisher: Publisher, full: bool, channel: str = "messages"
    ) -> None:
        """``channel``: in which a conversation is given."""
        c = claim.claimed
        self.received = Received.of(c, channel)
        self.full = full
        self._claim = claim
        self._publisher = publisher
        self._feed = Feed(c.thread_id, c.epoch, c.place)
        # Taken after the claim's own, never before.
        self._lock = threading.Lock()
        self._n = -1
        self._held: list[_Held] = []
        self._held_size, self._over = 0, False
        self._closed = False
        self._clock, self._begun = c.clock, time.monotonic()

    # The turn

    def begin(self) -> None:
        """Say that this claim works on its message now, and what that is."""
        c = self._claim.claimed
        kind = c.kind.partition("@")[0]
        known: dict[str, Any] = {"message_id": c.message_id, "kind": kind}
        if c.generation > 1:
            known["generation"] = c.generation
        self._tell("turn", known | {"seq": c.seq, "attempt": c.attempt})
        if c.received:
            return
        # With the next commit, whenever that comes: events alone are no reason for one.
        self._hold((), "received", known | (self._said() if self.full else {}))

    def told_before(self) -> list[str]:
        """Ids of messages that stand as told, durably, by earlier claims of this message.
        Raises ClaimLost."""
        c = self._claim.claimed
        if c.attempt == 1:
            return []
        args = {"thread_id": c.thread_id, "message_id": c.message_id}
        told: dict[str, None] = {}
        with self._claim.asking():
            found = self._claim.conn.execute(query("told_before"), args).fetchall()
        for (message,) in found:
            if "removed" in message:
                told.pop(message["removed"], None)
            else:
                told.setdefault(message["message_id"])
        return [*told]

    def closing(
        self, end: dict[str, Any], outcome: str, more: Callable[[], Iterable[_Told]]
    ) -> list[list[Any]]:
        """The last events, for ``fleet.finish`` to write: ``more``, what is asked, and the end.

        Nothing else is told after it; :meth:`publish` sends them. Called again where the end
        has to be written in another way.
        """
        with self._lock:
            self._closed = True
            self._held.clear()
        told = [(kind, _cut(data)) for kind, data in more()]
        with self._lock:
            told += [("question", self._asked(q)) for q in end.get("questions", ())]
            ended = {"outcome": outcome, "status": end["thread"]}
            ended["message_id"] = self._claim.claimed.message_id
            if end.get("error"):
                ended["error"] = plain(end["error"])
            return [self._row(kind, data) for kind, data in [*told, ("ended", ended)]]

    def publish(self, rows: Iterable[list[Any]]) -> None:
        """Send what :meth:`closing` gave: its commit has been made."""
        failpoint("events.after_commit", self._feed.place)
        for row in rows:
            self._publisher.tell(self._feed, self._sent(row), at_once=True)

    # Its tasks

    def custom(self, place: Place, value: Any) -> None:
        """A node has given its stream writer something."""
        data: dict[str, Any] = place.data()
        size = 0
        try:
            given = plain(value)
            as_json = len(orjson.dumps(given))
            if as_json <= LARGEST:
                data["data"], size = given, as_json
            else:
                data["truncated"] = True
        except Exception as exc:
            log.warning("node %s wrote what JSON can't hold: %s", place.node, exc)
            data["truncated"] = True
        self._hold(place.tasks, "custom", data, _ROW + size)

    def token(self, place: Place, message_id: str, text: str) -> None:
        """Some more of a text that is being written."""
        with self._lock:
            if not self._open() or self._publisher.join(self._feed, message_id, text):
                return
            data = {"message_id": message_id, **place.data(), "text": text}
            self._send(self._row("token", data))

    def message(self, place: Place, data: dict[str, Any]) -> None:
        """A message is complete."""
        self._hold(place.tasks, "message", _cut(data) | place.data())

    def order(self, data: dict[str, Any]) -> None:
        """Messages that were told follow each other otherwise."""
        self._hold((), "order", data)

    def step(self, place: Place, keys: list[str], values: dict[str, Any] | None) -> None:
        """A task has finished. The caller holds the claim's lock, and has put its writes into
        the buffer: it and what it told are durable together."""
        data: dict[str, Any] = {**place.data(), "keys": keys}
        if values is not None:
            if _fits(values):
                data["values"] = values
            else:
                data["truncated"] = True
        self._hold(place.tasks, "step", data)
        self.keep(place.tasks[-1])

    def keep(self, task: str) -> None:
        """What the task has told is durable with the next commit. The caller holds the
        claim's lock."""
        with self._lock:
            kept = [h for h in self._held if task in h.tasks]
            if not kept or not self._open():
                return
            self._let_go(task)
        self._claim.buffer.events += [h.row for h in kept]

    def forget(self, task: str) -> list[str]:
        """The task has failed: what it has told never becomes durable, and messages of it are
        taken back at once. Gives their ids."""
        with self._lock:
            void = [h for h in self._held if task in h.tasks]
            self._let_go(task)
            told = [h.row[2] for h in void if h.row[1] == "message"]
            ids = list(dict.fromkeys(d["message_id"] for d in told if "message_id" in d))
            for name in ids if self._open() else ():
                self._send(self._row("message", {"removed": name}))
        return ids

    # Inside

    def _said(self) -> dict[str, Any]:
        """What a person has said with this message, as far as it can be shown."""
        c, received = self._claim.claimed, self.received
        if c.kind == "answer":
            given = plain(c.payload.get("value"))
            return {"content": given} if given is not None and _fits(given) else {}
        if received.text is None:
            return {}
        named = {} if received.said_as == c.message_id else {"said_as": received.said_as}
        return {"content": received.text, **named}

    def _let_go(self, task: str) -> None:
        self._held = [h for h in self._held if task not in h.tasks]
        self._held_size = sum(h.size for h in self._held)

    def _hold(self, tasks: tuple[str, ...], kind: str, data: dict[str, Any], size: int = 0) -> None:
        if not tasks:
            # Nobody's, or of a checkpoint that is in the buffer by now.
            with self._claim.lock:
                if (row := self._tell(kind, data)) is not None:
                    self._claim.buffer.events.append(row)
            return
        with self._lock:
            if self._open():
                row = self._row(kind, data)
                if self._held_size + size <= MOST_HELD:
                    self._held.append(_Held(tasks, row, size))
                    self._held_size += size
                elif not self._over:
                    self._over = True
                    log.warning(
                        "%s has written %s MiB in tasks that go on: more of it is live only",
                        self._feed.thread_id,
                        MOST_HELD >> 20,
                    )
                self._send(row)

    def _tell(self, kind: str, data: dict[str, Any]) -> list[Any] | None:
        with self._lock:
            if not self._open():
                return None
            row = self._row(kind, data)
            self._send(row)
            return row

    def _open(self) -> bool:
        return not self._closed and self._claim.open

    def _row(self, kind: str, data: dict[str, Any]) -> list[Any]:
        """As fleet.write_rows takes it; the lock is held."""
        self._n += 1
        return [self._n, kind, data, self._clock + time.monotonic() - self._begun]

    def _send(self, row: list[Any]) -> None:
        self._publisher.tell(self._feed, self._sent(row))

    def _sent(self, row: list[Any]) -> dict[str, Any]:
        n, kind, data, at = row
        event: dict[str, Any] = {"id": f"{self._feed.epoch}-{n}", "type": kind, "at": _time(at)}
        if not self.full and kind in _NOT_SENT and any(k in data for k in _WITHHELD):
            data = {k: v for k, v in data.items() if k not in _WITHHELD}
            event["short"] = True
        event["data"] = data
        return event

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        """A row of fleet.ask as its event."""
        data = {k: question[k] for k in ("question_id", "kind", "payload")}
        if question["response_schema"] is not None:
            data["response_schema"] = question["response_schema"]
        if question["expires_in"] is not None:
            now = self._clock + time.monotonic() - self._begun
            data["expires_at"] = _time(now + question["expires_in"])
        return data


@functools.lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def _time(seconds: float) -> str:
    """In ISO 8601, to the millisecond."""
    whole, rest = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_to_the_second(whole)}.{rest // 1000:03}+00:00"


def _fits(value: Any) -> bool:
    return len(orjson.dumps(value)) <= LARGEST


def _cut(data: dict[str, Any]) -> dict[str, Any]:
    """A message's data without a content that is too large."""
    if "content" not in data or _fits(data["content"]):
        return data
    return {k: v for k, v in data.items() if k != "content"} | {"truncated": True}
