"""What a chat page shows by its frames, as producers/gateway/page/conversation.js has it."""

from collections.abc import Iterable, Mapping
from typing import Any


class Shown:
    """`items`: [id, role, text] in order, without answers."""

    def __init__(self, frames: Iterable[Mapping[str, Any]] = ()) -> None:
        self.items: list[list[str]] = []
        for frame in frames:
            self.take(frame)

    def take(self, frame: Mapping[str, Any]) -> None:
        kind = frame["type"]
        if kind == "history_batch":
            self._batch(frame)
        elif kind == "token":
            self._add(frame["message_id"], "assistant", frame["text"])
        elif kind == "message":
            self._message(frame)
        elif kind == "order":
            ids = frame["ids"]
            moved = sorted((i for i in self.items if i[0] in ids), key=lambda i: ids.index(i[0]))
            self.items = [moved.pop(0) if i[0] in ids else i for i in self.items]
        elif kind == "event" and frame["event"]["type"] == "received":
            said = frame["event"]["data"]
            name = said.get("said_as", said["message_id"])
            if said.get("content") and said["kind"] != "answer" and not self._find(name):
                self.items.append([name, "user", said["content"]])

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.items]

    def _batch(self, frame: Mapping[str, Any]) -> None:
        if frame.get("snapshot"):
            self.items = []
            for message in frame["messages"]:
                self._message(message)
            for part in frame["partial"]:
                self._add(part["message_id"], "assistant", part["text"])
        for event in frame.get("events", ()):
            self.take(event)

    def _find(self, name: str) -> list[str] | None:
        return next((i for i in self.items if i[0] == name), None)

    def _drop(self, name: str) -> None:
        self.items = [i for i in self.items if i[0] != name]

    def _add(self, name: str, role: str, text: str) -> None:
        if (found := self._find(name)) is not None:
            found[2] += text
        else:
            self.items.append([name, role, text])

    def _message(self, data: Mapping[str, Any]) -> None:
        if "removed" in data:
            return self._drop(data["removed"])
        name, role, streamed = data["message_id"], data["role"], data.get("streamed_as")
        if role == "tool":
            return None
        if streamed not in (None, name) and (begun := self._find(streamed)) is not None:
            self._drop(name)
            begun[0] = name
        if role == "system" or not data["text"]:
            return self._drop(name)
        if (found := self._find(name)) is not None:
            found[1:] = [role, data["text"]]
        else:
            self.items.append([name, role, data["text"]])
        return None
