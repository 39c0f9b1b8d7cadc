"""The messages that one AG-UI client holds, and what to tell it so that they are the thread's.

Within a run AG-UI lets a message or a tool call be opened once. What can't be told so (a
message that reads otherwise than it streamed, one that was removed, one that comes again after
a crash) is told by a MESSAGES_SNAPSHOT, which replaces what the client holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    Message,
    MessagesSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
)

from .agui_messages import Spoken, agui_message, arguments, call_ids, clean, plain_text, same

Events = list[BaseEvent]


class OutOfStep(Exception):
    """What the client holds is not known: it needs a snapshot first."""


class Transcript:
    """known: the client's messages; None for one that comes back to an earlier stream, of
    which only the place is known."""

    def __init__(self, known: Sequence[Message] | None) -> None:
        self._held = None if known is None else {m.id: m for m in known}
        # What stays in any case, for graphs that keep no messages.
        self._ground: list[Message] = list(known or ())
        # Messages of people that the thread's state may not have yet.
        self._pending: dict[str, Message] = {}
        # Text so far of what is open; of the blind ones the beginning was told earlier.
        self._open: dict[str, str] = {}
        self._blind: set[str] = set()
        # Of this run: messages that can't be opened again, calls that are known in it.
        self._closed: set[str] = set()
        self._calls: set[str] = set()

    def new_run(self) -> None:
        """The run is over: the next one may open all of it again."""
        self._closed.clear()
        self._calls.clear()

    def new_turn(self) -> None:
        """What has been told so far stays, whatever becomes of the turn."""
        self._ground = list((self._held or {}).values())

    def token(self, data: Mapping[str, Any]) -> Events:
        """``{message_id, text}``: a part of a message's text."""
        message_id, text = str(data["message_id"]), clean(data.get("text"))
        if not text or message_id in self._closed or message_id in (self._held or ()):
            return []
        told: Events = []
        if message_id not in self._open:
            if self._held is None:
                self._blind.add(message_id)
            told.append(TextMessageStartEvent(message_id=message_id, role="assistant"))
        self._open[message_id] = self._open.get(message_id, "") + text
        return [*told, TextMessageContentEvent(message_id=message_id, delta=text)]

    def message(self, data: Mapping[str, Any]) -> Events:
        """The data of a `message` event: one is complete, or removed. Raises OutOfStep."""
        if "removed" in data:
            return self._removed(str(data["removed"]))
        new = agui_message(data)
        before = (self._held or {}).get(new.id)
        if before is not None and same([before], [new]):
            return []
        plainly = before is None and self._can_follow(new)
        if isinstance(new, ToolMessage) and plainly:
            return self._result(new, data.get("name"))
        if self._held is None:
            if not plainly or new.id not in self._open:
                raise OutOfStep
        else:
            self._held[new.id] = new
        if isinstance(new, ToolMessage) or not plainly:
            return [*self._close(new.id), *self._all()]
        return [*self._text(new), *self._calls_of(new)]

    def received(self, message_id: str, text: str) -> Events:
        """A message of a person's has been taken up. Raises OutOfStep."""
        if self._held is None:
            raise OutOfStep
        if message_id in self._held:
            return []
        data = {"message_id": message_id, "role": "user", "text": text}
        self.expect(agui_message(data))
        return self.message(data)

    def expect(self, message: Message) -> None:
        """A person's message, which the client has, is on its way into the state."""
        self._pending[message.id] = message

    def replace(
        self,
        found: Sequence[Mapping[str, Any]],
        partial: Iterable[Mapping[str, Any]],
        *,
        chat: bool = False,
        retracted: bool = False,
    ) -> Events:
        """All of the thread's messages, in place of what was told; then what is under way.

        chat: the thread keeps them, so that none means none; else those of the client stay.
        retracted: nothing that is open goes on.
        """
        texts = {str(p["message_id"]): clean(p.get("text")) for p in partial}
        void = [name for name in self._open if retracted or name not in texts]
        told = [e for name in void for e in self._close(name)]
        messages = _by_id(found)
        if not (found or chat):
            messages = {m.id: m for m in self._ground if m.id not in texts}
        for name, message in self._pending.items():
            messages.setdefault(name, message)
        before, self._held = self._held, messages
        self._open = {name: texts[name] for name in self._open}
        self._blind.clear()
        unlike = before is None or not same(messages.values(), before.values())
        if void or retracted or self._open or unlike:
            told += self._all()
        for name, text in texts.items():
            if name not in self._open:
                told += self.token({"message_id": name, "text": text})
        return told

    def put_right(self, found: Sequence[Mapping[str, Any]], *, chat: bool = False) -> Events:
        """At the end: the thread's messages, where the client holds others; chat: as before."""
        told = self.close()
        self._pending.clear()
        before = self._held
        # Where a graph keeps none, what was said to its end stays.
        messages = self._held = _by_id(found) if found or chat else before or {}
        unlike = not same(messages.values(), (before or {}).values())
        return [*told, *self._all()] if told or unlike else []

    def whole(self) -> Events:
        """All messages, where there are any, once more."""
        return self._all() if self._held else []

    def call(self, call: Mapping[str, Any]) -> Events:
        """``{id, name, args}``: a tool that is running; nothing where that was told."""
        call_id = str(call["id"])
        if call_id in self._told_calls():
            return []
        return self._call(call_id, str(call["name"]), arguments(call.get("args")))

    def close(self) -> Events:
        """End all that is open."""
        return [e for message_id in [*self._open] for e in self._close(message_id)]

    def _removed(self, message_id: str) -> Events:
        if self._held is None:
            raise OutOfStep
        known = self._held.pop(message_id, None) is not None or message_id in self._open
        return [*self._close(message_id), *self._all()] if known else []

    def _text(self, new: Spoken) -> Events:
        text, told = plain_text(new.content), Events()
        if new.id not in self._open:
            if not text and call_ids(new):
                self._closed.add(new.id)
                return []
            start = TextMessageStartEvent(message_id=new.id, role=new.role, name=new.name)
            told.append(start)
            self._open[new.id] = ""
        rest = "" if new.id in self._blind else text[len(self._open[new.id]) :]
        if rest:
            told.append(TextMessageContentEvent(message_id=new.id, delta=rest))
        return [*told, *self._close(new.id)]

    def _calls_of(self, new: Spoken) -> Events:
        calls = getattr(new, "tool_calls", None) or ()
        return [
            event
            for call in calls
            for event in self._call(call.id, call.function.name, call.function.arguments, new.id)
        ]

    def _call(self, call_id: str, name: str, args: str, parent: str | None = None) -> Events:
        self._calls.add(call_id)
        return [
            ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=parent),
            ToolCallArgsEvent(tool_call_id=call_id, delta=args),
            ToolCallEndEvent(tool_call_id=call_id),
        ]

    def _result(self, new: ToolMessage, name: Any) -> Events:
        call_id, told = new.tool_call_id, Events()
        if call_id not in self._calls:
            # Called in an earlier run: it is not called again, but this run has to know it.
            if self._held is None:
                raise OutOfStep
            if call_id in self._told_calls():
                told = self._all()
            else:
                self._calls.add(call_id)
                told = [
                    ToolCallStartEvent(tool_call_id=call_id, tool_call_name=str(name or "tool")),
                    ToolCallEndEvent(tool_call_id=call_id),
                ]
        if self._held is not None:
            self._held[new.id] = new
        result = ToolCallResultEvent(
            message_id=new.id, tool_call_id=call_id, content=new.content, role="tool"
        )
        return [*told, result]

    def _told_calls(self) -> set[str]:
        held = (self._held or {}).values()
        return self._calls.union(call for m in held for call in call_ids(m))

    def _can_follow(self, new: Spoken | ToolMessage) -> bool:
        """Whether it can be told as what goes on from what has been told."""
        if isinstance(new, ToolMessage):
            return True
        if isinstance(new.content, list) or (
            (calls := call_ids(new)) and self._told_calls().intersection(calls)
        ):
            return False
        so_far, text = self._open.get(new.id), plain_text(new.content)
        if so_far is None:
            return new.id not in self._closed
        if new.role != "assistant":
            return False
        return text.endswith(so_far) if new.id in self._blind else text.startswith(so_far)

    def _all(self) -> Events:
        """All messages; those under way too, since the client drops what is not among them."""
        under_way = [AssistantMessage(id=name, content=text) for name, text in self._open.items()]
        messages = [*(self._held or {}).values(), *under_way]
        self._calls.update(call for m in messages for call in call_ids(m))
        return [MessagesSnapshotEvent(messages=messages)]

    def _close(self, message_id: str) -> Events:
        if self._open.pop(message_id, None) is None:
            return []
        self._blind.discard(message_id)
        self._closed.add(message_id)
        return [TextMessageEndEvent(message_id=message_id)]


def _by_id(found: Sequence[Mapping[str, Any]]) -> dict[str, Message]:
    return {str(data["message_id"]): agui_message(data) for data in found}
