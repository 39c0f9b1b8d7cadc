"""What a chat page shows, folded from the frames that it gets as docs/websocket.md says. Pure."""

from collections import Counter, deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from producers.live.ids import EventId

#: Frames that are remembered, and characters of each.
_TRAIL, _WIDTH = 30, 300


class Transcript:
    """`take` each frame in turn.

    said: what people and the agent have said, (role, text) by message. partial: texts that are
    being written. faults: what must never be, in words.
    """

    def __init__(self) -> None:
        self.said: dict[str, tuple[str, str]] = {}
        self.partial: dict[str, str] = {}
        self.last: EventId | None = None
        self.faults: list[str] = []
        #: Messages whose turn has ended well.
        self.completed: set[str] = set()
        #: Why what was shown was replaced by a snapshot.
        self.rebuilt: Counter[str] = Counter()
        #: What came last, for whoever looks into a fault.
        self.trail: deque[str] = deque(maxlen=_TRAIL)

    @property
    def seq(self) -> str | None:
        """What the page comes back with."""
        return None if self.last is None else str(self.last)

    def take(self, frame: Mapping[str, Any]) -> None:
        kind = frame["type"]
        self.trail.append(str(frame)[:_WIDTH])
        if kind == "recovery_start":
            self.rebuilt[frame["reason"]] += 1
        elif kind == "history_batch" and frame.get("snapshot"):
            self._rebuild(frame)
        elif kind == "history_batch":
            for missed in frame["events"]:
                self.take(missed)
        elif "seq" in frame:
            self._next(EventId.parse(frame["seq"]), frame)
            self._event(frame)

    def texts(self) -> list[tuple[str, str]]:
        """All that was said, in its order."""
        return list(self.said.values())

    def _rebuild(self, frame: Mapping[str, Any]) -> None:
        self.said = {m["message_id"]: (m["role"], m["text"]) for m in frame["messages"]}
        self.partial = {p["message_id"]: p["text"] for p in frame["partial"]}
        self.last = EventId.parse(frame["last_seq"])
        if frame["status"] != "running":
            self.completed |= self.said.keys()
            self._at_rest(f"a snapshot at {self.last}")
        self._in_order()

    def _next(self, seq: EventId, frame: Mapping[str, Any]) -> None:
        if self.last is not None and seq <= self.last:
            self.faults.append(f"{frame['type']} {seq} came after {self.last}")
        self.last = seq

    def _event(self, frame: Mapping[str, Any]) -> None:
        kind = frame["type"]
        if kind == "token":
            name = frame["message_id"]
            self.partial[name] = self.partial.get(name, "") + frame["text"]
            self._in_order(name)
        elif kind == "message":
            self._message(frame)
        elif kind == "complete":
            self.completed.add(frame["data"]["message_id"])
            self._at_rest(f"a turn's end at {self.last}")
        elif kind == "error":
            self.faults.append(f"a turn ended with {frame['code']}: {frame.get('detail')}")
        elif kind == "event" and frame["event"]["type"] == "received":
            data = frame["event"]["data"]
            self.said.setdefault(data["message_id"], ("user", str(data.get("content"))))

    def _message(self, frame: Mapping[str, Any]) -> None:
        for name in (frame.get("removed"), frame.get("streamed_as"), frame.get("message_id")):
            self.partial.pop(str(name), None)
        if "removed" in frame:
            self.said.pop(frame["removed"], None)
        elif (role := frame["role"]) in ("user", "assistant"):
            self.said[frame["message_id"]] = (role, frame["text"])

    def _at_rest(self, where: str) -> None:
        if self.partial:
            self.faults.append(f"left standing after {where}: {self.partial}")

    def _in_order(self, *names: str) -> None:
        """Words `NAME.N` are shown once and in order; some may be missing for now. Stamps are
        no words."""
        for name in names or tuple(self.partial):
            words = [w.rpartition(".") for w in self.partial[name].split() if w[0].isalpha()]
            numbers = [int(number) for _, _, number in words]
            if any(b <= a for a, b in pairwise(numbers)):
                self.faults.append(f"shown twice or out of order: {self.partial[name]!r}")
