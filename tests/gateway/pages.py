"""A chat page as the tests have it: a WebSocket, and what has come over it."""

import json
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from producers.live.ids import EventId
from tests.gateway.serving import Gateway

#: Seconds for a frame to come.
PATIENCE = 40.0


class Page:
    """Says init when it is made. `frames`: all that has come, `seq`: the last event's."""

    def __init__(
        self, gateway: Gateway, graph: str | None = "talk", *, origin: Any = None, **init: Any
    ) -> None:
        self._open = ExitStack()
        self.socket: ClientConnection = self._open.enter_context(
            connect(gateway.ws_url, origin=origin, max_size=None, open_timeout=PATIENCE)
        )
        self.frames: list[dict[str, Any]] = []
        self.seq: str | None = init.get("last_seq")
        self.session_id: str = init.get("session_id", "")
        if graph is not None:
            init["graph"] = graph
        self.send("init", **init)

    def send(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def say(self, content: str, message_id: str | None = None) -> str:
        """Says it and waits for the ack; gives the message_id."""
        name = message_id or str(uuid.uuid4())
        self.send("message", content=content, message_id=name)
        assert self.until("ack", "error")["type"] == "ack", self.frames[-1]
        return name

    def next(self) -> dict[str, Any]:
        """The next frame."""
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=PATIENCE))
        self.frames.append(frame)
        if frame["type"] == "welcome":
            self.session_id = frame["session_id"]
        for one in (frame, *frame.get("events", ())):
            self._seen(one)
        if frame["type"] == "history_batch":
            self.seq = frame["last_seq"]
        return frame

    def _seen(self, frame: dict[str, Any]) -> None:
        if "seq" in frame:
            new = EventId.parse(frame["seq"])
            assert self.seq is None or new > EventId.parse(self.seq), (self.seq, frame)
            self.seq = frame["seq"]

    def until(self, *types: str) -> dict[str, Any]:
        """The next frame of one of these types; those before it are in `frames`."""
        while (frame := self.next())["type"] not in types:
            pass
        return frame

    def closed(self) -> tuple[int | None, str]:
        """Code and reason of the end, after what still comes before it."""
        try:
            while True:
                self.next()
        except ConnectionClosed as exc:
            return (exc.rcvd.code, exc.rcvd.reason) if exc.rcvd else (None, "")

    def again(self, gateway: Gateway, **init: Any) -> "Page":
        """The same page, back after its connection was lost."""
        self.close()
        found = {"session_id": self.session_id, "last_seq": self.seq} | init
        return Page(gateway, None, **{k: v for k, v in found.items() if v is not None})

    def shown(self, *words: str) -> None:
        """Waits until the agent's words, in this order and no others, are what the page shows:
        by what has come at once, what was missed and what stands in their place."""
        texts: list[str] = []
        while texts != [*words]:
            frame = self.next()
            for one in frame.get("events", [frame]):
                if one["type"] == "message" and one.get("role") == "assistant":
                    texts.append(one["text"])
            if frame.get("snapshot"):
                said = [m for m in frame["messages"] if m["role"] == "assistant"]
                texts = [m["text"] for m in said]

    def asked(self) -> str:
        """Waits for the one open question, which what was missed and a snapshot may show too;
        gives its id."""
        while True:
            frame = self.next()
            for one in frame.get("events", [frame]):
                if one["type"] == "interrupt":
                    return str(one["question_id"])
            if questions := frame.get("questions"):
                (question,) = questions
                return str(question["question_id"])

    def completed(self) -> str:
        """Waits for the end of a turn, which what was missed and a snapshot may tell too; gives
        what was said last."""
        while True:
            frame = self.next()
            if frame.get("snapshot") and frame["state"] == "completed":
                return str(frame["messages"][-1]["text"])
            for one in frame.get("events", [frame]):
                assert one["type"] != "error", one
                if one["type"] == "complete":
                    return str(one["message"])

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
