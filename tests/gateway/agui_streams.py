"""What an AG-UI client makes of a stream, and events and snapshots to make streams of."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ag_ui.encoder import EventEncoder
from ag_ui_validate import create_validator
from ag_ui_validate.pytest_plugin import assert_valid_agui

from producers.live.events import Event
from producers.live.ids import EventId
from producers.live.snapshot import Snapshot
from producers.status import ThreadStatus

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def event(at: str, type_: str, **data: Any) -> Event:
    return Event(EventId.parse(at), type_, NOW.isoformat(), data)


def thread(status: str = "running", **more: Any) -> ThreadStatus:
    base = {"thread_id": "chat:1", "tenant": "", "graph": "chat", "key": "1", "generation": 1}
    times = {"created_at": NOW, "updated_at": NOW}
    return ThreadStatus.model_validate({**base, **times, "status": status, "epoch": 1, **more})


def message(seq: int, message_id: str, status: str, **more: Any) -> dict[str, Any]:
    """A row of a thread's mailbox."""
    kept = {"kind": "input", "crashes": 0, "failures": 0}
    times = {"accepted_at": NOW, "available_at": NOW}
    return {"seq": seq, "message_id": message_id, "status": status, **kept, **times, **more}


def question(question_id: str, kind: str = "value", payload: Any = None) -> dict[str, Any]:
    return {"question_id": question_id, "kind": kind, "payload": payload, "asked_at": NOW}


def snapshot(head: str = "0-0", **more: Any) -> Snapshot:
    given: dict[str, Any] = {
        "reason": "first",
        "thread": thread(),
        "messages": [],
        "values": {},
        "partial": [],
        "running_tools": [],
        **more,
    }
    return Snapshot(head=EventId.parse(head), **given)


def said(message_id: str, role: str, text: str, **more: Any) -> dict[str, Any]:
    """The data of a `message` event."""
    return {"message_id": message_id, "role": role, "text": text, "node": "chat", "ns": "", **more}


def wire(events: Iterable[Any]) -> list[dict[str, Any]]:
    """As they go over the wire."""
    encoder = EventEncoder()
    return [json.loads(encoder.encode(event).removeprefix("data: ")) for event in events]


def valid(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, after ag-ui-validate has found nothing against them."""
    assert_valid_agui(events, max_warnings=0)
    return events


def valid_so_far(events: list[dict[str, Any]]) -> None:
    """As valid, of a stream that was cut."""
    validator = create_validator()
    found = [d for e in events for d in validator.feed(e) if d.severity != "info"]
    assert not found, found


class Client:
    """What an AG-UI client holds, by the rules of the official one (@ag-ui/client 1.0)."""

    def __init__(self, messages: Iterable[dict[str, Any]] = ()) -> None:
        self.messages = [dict(m) for m in messages]
        self.state: Any = {}
        self.outcome: Any = None
        self.error: str | None = None
        self.runs = 0

    def take(self, events: Iterable[dict[str, Any]]) -> "Client":
        for found in events:
            take = getattr(self, f"_{found['type'].lower()}", None)
            if take:
                take(found)
        return self

    def texts(self) -> list[tuple[str, str]]:
        return [(m["role"], m.get("content") or "") for m in self.messages]

    def _find(self, message_id: str) -> dict[str, Any] | None:
        return next((m for m in self.messages if m["id"] == message_id), None)

    def _text_message_start(self, e: dict[str, Any]) -> None:
        if self._find(e["messageId"]) is None:
            role = e.get("role", "assistant")
            self.messages.append({"id": e["messageId"], "role": role, "content": ""})

    def _text_message_content(self, e: dict[str, Any]) -> None:
        found = self._find(e["messageId"])
        assert found is not None, f"a part of a message that the client has not: {e}"
        found["content"] = (found.get("content") or "") + e["delta"]

    def _tool_call_start(self, e: dict[str, Any]) -> None:
        if any(c["id"] == e["toolCallId"] for m in self.messages for c in m.get("toolCalls", ())):
            return
        owner = self._find(e.get("parentMessageId") or e["toolCallId"])
        if owner is None:
            owner = {"id": e.get("parentMessageId") or e["toolCallId"], "role": "assistant"}
            self.messages.append(owner)
        call = {"id": e["toolCallId"], "name": e["toolCallName"], "arguments": ""}
        owner.setdefault("toolCalls", []).append(call)

    def _tool_call_args(self, e: dict[str, Any]) -> None:
        for found in self.messages:
            for call in found.get("toolCalls", ()):
                if call["id"] == e["toolCallId"]:
                    call["arguments"] += e["delta"]

    def _tool_call_result(self, e: dict[str, Any]) -> None:
        result = {"id": e["messageId"], "role": "tool", "content": e["content"]}
        self.messages.append({**result, "toolCallId": e["toolCallId"]})

    def _messages_snapshot(self, e: dict[str, Any]) -> None:
        new = {m["id"]: _flat(m) for m in e["messages"]}
        kept = [new.pop(m["id"]) for m in self.messages if m["id"] in new]
        self.messages = [*kept, *new.values()]

    def _state_snapshot(self, e: dict[str, Any]) -> None:
        self.state = e["snapshot"]

    def _run_started(self, e: dict[str, Any]) -> None:
        self.outcome = self.error = None

    def _run_finished(self, e: dict[str, Any]) -> None:
        self.outcome = e["outcome"]
        self.runs += 1

    def _run_error(self, e: dict[str, Any]) -> None:
        self.error = e.get("code")


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": c["id"], **c["function"]} for c in message.get("toolCalls", ())]
    return {**message, "toolCalls": calls} if calls else dict(message)
