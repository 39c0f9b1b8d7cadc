"""Events and snapshots as frames for chat pages. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..answers import takes_text
from ..live.events import Event
from ..live.snapshot import Snapshot
from ..names import split_thread_id
from ..wording import said_in
from .paths import thread_path
from .session_book import STATES

#: Of a chat longer than _LONG messages only the last ones come with a snapshot.
_LONG, _LAST = 1000, 50
#: Turns that ended so badly that the thread does not go on by itself.
_BAD = {
    "dead": "The agent failed at this and gave up.",
    "in_doubt": "It is not known whether something was done; a person has to look at it.",
    "incompatible": "The agent was changed meanwhile and can't go on with this for now.",
    "refused": "This was not taken.",
}


class Frames:
    """Makes the frames of one connection, in the order of its events.

    asked: ids of the questions that the page has been shown.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        # The agent's words in this turn, by message.
        self._said: dict[str, str] = {}

    def of(self, event: Event) -> dict[str, Any]:
        """The frame of an event."""
        data = event.data
        if event.type == "token":
            return {**_seq(event), "type": "token", **_some(data, "message_id", "text", "node")}
        if event.type == "message":
            self._heard(data)
            return {**data, **_seq(event), "type": "message"}
        if event.type == "order":
            for name in data.get("ids", ()):
                if name in self._said:
                    self._said[name] = self._said.pop(name)
            return {**data, **_seq(event), "type": "order"}
        if event.type == "question":
            self.asked.add(str(data.get("question_id")))
            return {**question(data), **_seq(event), "type": "interrupt"}
        if event.type == "ended":
            return self._ended(event)
        if event.type == "turn":
            self._said.clear()
        return _plain(event)

    def missed(self, events: Iterable[Event], last_seq: str | None) -> dict[str, Any]:
        """All that was missed as one frame. An end that was an error comes as what happened,
        not as an alarm once more."""
        frames = []
        for event in events:
            frame = self.of(event)
            frames.append(_plain(event) if frame["type"] == "error" else frame)
        return {"type": "history_batch", "events": frames, "last_seq": last_seq}

    def snapshot(self, found: Snapshot) -> dict[str, Any]:
        """How things stand, in place of all that the page shows."""
        thread = found.thread
        questions = [question(q.model_dump(mode="json")) for q in thread.questions]
        self.asked = {q["question_id"] for q in questions}
        spoken = [m for m in found.messages if m.get("role") == "assistant" and m.get("text")]
        self._said = {m["message_id"]: str(m["text"]) for m in spoken[-1:]}
        many = len(found.messages)
        batch = {
            "type": "history_batch",
            "snapshot": True,
            "last_seq": str(found.head),
            "state": STATES.get(thread.status, "active"),
            "status": thread.status,
            "messages": found.messages[-_LAST:] if many > _LONG else found.messages,
            "earlier": many - _LAST if many > _LONG else 0,
            "partial": found.partial,
            "running_tools": found.running_tools,
            "questions": questions,
            "values": found.values,
        }
        if batch["earlier"]:
            batch["earlier_url"] = messages_url(thread.thread_id)
        return batch

    def _heard(self, data: Mapping[str, Any]) -> None:
        name = str(data.get("removed", data.get("message_id")))
        if data.get("role") == "assistant" and data.get("text"):
            self._said[name] = str(data["text"])
        else:
            self._said.pop(name, None)

    def _ended(self, event: Event) -> dict[str, Any]:
        outcome = event.data.get("outcome")
        if outcome == "done":
            data = _some(event.data, "status", "message_id")
            said = next(reversed(self._said.values()), "")
            return {**_seq(event), "type": "complete", "message": said, "data": data}
        if outcome in _BAD:
            frame = {"type": "error", "code": f"turn_{outcome}", "message": _BAD[outcome]}
            more = _some(event.data, "status", "message_id")
            detail = {"detail": event.data["error"]} if event.data.get("error") else {}
            return {**_seq(event), **frame, "retry": False, **more, **detail}
        return _plain(event)


def question(data: Mapping[str, Any]) -> dict[str, Any]:
    """A question's own fields, what it says to people, and what chat graphs put into its
    payload."""
    payload = data.get("payload")
    said = payload if isinstance(payload, Mapping) else {}
    return {
        "question_id": str(data.get("question_id")),
        "kind": data.get("kind"),
        "message": said_in(payload),
        "data": said.get("data"),
        "phase": said.get("phase"),
        "text": takes_text(str(data.get("kind")), payload),
        "payload": payload,
        "response_schema": data.get("response_schema"),
        "expires_at": data.get("expires_at"),
    }


def messages_url(thread_id: str) -> str:
    """Where the messages before those of a snapshot are to be had, page by page."""
    _, graph, key = split_thread_id(thread_id)
    return f"{thread_path(graph, key)}/messages"


def _plain(event: Event) -> dict[str, Any]:
    shown = {"type": event.type, "at": event.at, "data": dict(event.data)}
    return {**_seq(event), "type": "event", "event": shown}


def _seq(event: Event) -> dict[str, Any]:
    return {"seq": str(event.id)}


def _some(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names if name in data}
