"""The messages of a conversation, as one turn tells of them: what a page shows is what the state
has.

They are heard where they are made: from the model that wrote one, from the writes of the task
that returned it. What only the new checkpoint shows (one that came from outside, one that was
removed or changed) is told from there; what was told and never came into the state is taken
back at the turn's end.
"""

import threading
import uuid
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, convert_to_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from graphs.chat_messages import message_data
from workers.events import LARGEST, Events
from workers.places import Place

#: What of a message people are told: equal ones need not be told again.
_Shown: TypeAlias = tuple[Any, ...]
#: Bytes of an id in a list of them, about.
_ID = 48


class Transcript:
    """What is known of the messages in ``channel`` of the root graph. Thread safe."""

    def __init__(self, events: Events, channel: str | None) -> None:
        self._events = events
        self.channel = channel
        self._received = events.received
        self._lock = threading.Lock()
        #: By id: what people were told, now or before this turn.
        self._known: dict[str, _Shown] = {}
        #: Ids as they follow each other on a page, words that are being written among them.
        self._page: dict[str, None] = {}
        #: Of these, those that this turn has told of.
        self._touched: set[str] = set()
        #: The newest checkpoint's; None: not known.
        self._state: list[BaseMessage] | None = None
        #: What tasks of the root have written since, by task.
        self._pending: dict[str, list[BaseMessage]] = {}

    # While nodes run

    def with_ids(self, value: Any, ns: str, given: bool) -> Any:
        """What a task has written, as messages that have ids; ``given``: it came from outside.
        Lists and dicts of the node's own are left alone."""
        if ns:
            # Of a subgraph's channel only the name is known.
            for message in _messages(value):
                _with_id(message)
            return value
        if isinstance(value, BaseMessage):
            return _with_id(value)
        if not isinstance(value, list | tuple | str | dict):
            return value
        # As add_messages does.
        listed = value if isinstance(value, list) else [value]
        made = convert_to_messages(listed)
        if given and made and self._is_received(made[-1]):
            taken = {m.id for m in (*made, *(self._state or ()))}
            if self._received.message_id not in taken:
                made[-1].id = self._received.message_id
        for message in made:
            _with_id(message)
        return made if any(a is not b for a, b in zip(made, listed, strict=True)) else value

    def writing(self, message_id: str) -> None:
        """Words of it are told from now on."""
        with self._lock:
            self._page.setdefault(message_id)
            self._touched.add(message_id)

    def say(self, place: Place, message: BaseMessage, **more: Any) -> None:
        """A message is complete; told unless people know it as it is."""
        name = str(_with_id(message).id)
        shown = _shown(message)
        with self._lock:
            if self._known.get(name) == shown:
                return
            data = message_data(message)
            if data is None:
                return
            self._known[name] = shown
            self._touched.add(name)
            if (streamed := more.get("streamed_as")) in self._page:
                names = (name if n == streamed else n for n in self._page)
                self._page = dict.fromkeys(names)
            self._page.setdefault(name)
        self._events.message(place, data | more)

    def forget(self, names: Iterable[str]) -> None:
        """It has been told that these are no more."""
        with self._lock:
            for name in names:
                self._known.pop(name, None)
                self._page.pop(name, None)

    def written(self, place: Place, channel: str, value: Any) -> None:
        """A task has written this."""
        if channel == self.channel:
            for message in _messages(value):
                if not isinstance(message, RemoveMessage):
                    self.say(place, message)

    def pending(self, task_id: str, writes: Iterable[tuple[str, Any]]) -> None:
        """A task of the root has written these."""
        with self._lock:
            found = [m for c, v in writes if c == self.channel for m in _messages(v)]
            if found:
                self._pending[task_id] = found

    # The state

    def loaded(
        self, checkpoint: Mapping[str, Any], pending: Iterable[tuple[str, str, Any]] = ()
    ) -> None:
        """The root graph goes on from this, which people know."""
        if self._state is not None or self._known:
            # Looked at in the middle of the turn.
            return
        before = self._events.told_before() if self.channel is not None else []
        with self._lock:
            self._stand(checkpoint, pending)
            self._adopt(before)

    def undone(
        self, checkpoint: Mapping[str, Any], pending: Iterable[tuple[str, str, Any]] = ()
    ) -> None:
        """What the root graph wrote since this was refused, and is not in the state."""
        with self._lock:
            if self._state is not None:
                self._stand(checkpoint, pending)

    def saved(self, checkpoint: Mapping[str, Any], changed: Container[str], given: bool) -> None:
        """The root graph's new state, in which these channels have changed; ``given``: by what
        has just come from outside."""
        if self.channel not in changed and not self._pending:
            return
        found = self._messages(checkpoint)
        with self._lock:
            before, fresh = self._there(), self._state is None and not self._known
            self._state, self._pending = found, {}
            if found is None:
                return
            if fresh and given:
                # From what the run began is not known, so neither is what is new.
                self._adopt([])
                return
        for message in found:
            self.say(Place(), message)
        gone = before.keys() - {str(m.id) for m in found}
        self.forget(gone)
        for name in sorted(gone):
            self._events.message(Place(), {"removed": name})
        if given:
            with self._lock:
                there = self._there()
                if order := _order(there, self._page):
                    self._page = dict.fromkeys([*there, *self._page])
            if order:
                self._events.order(order)

    def corrections(self) -> list[tuple[str, dict[str, Any]]]:
        """The last events of the turn, which make of what was told what the state has. They
        may be refused, so nothing is noted here."""
        with self._lock:
            if self._state is None:
                return []
            there, page = self._there(), dict(self._page)
            told: list[tuple[str, dict[str, Any]]] = []
            for name in [n for n in page if n not in there]:
                del page[name]
                told.append(("message", {"removed": name, **Place().data()}))
            for name, message in there.items():
                if name in page and not self._differs(name, message):
                    continue
                if (data := message_data(message)) is not None:
                    page.setdefault(name)
                    told.append(("message", data | Place().data()))
            if order := _order(there, page):
                told.append(("order", order))
            return told

    # Inside

    def _stand(
        self, checkpoint: Mapping[str, Any], pending: Iterable[tuple[str, str, Any]]
    ) -> None:
        self._state = self._messages(checkpoint)
        self._pending = {}
        for task_id, channel, value in pending:
            if channel == self.channel:
                self._pending.setdefault(task_id, []).extend(_messages(value))
        for task_id, found in self._pending.items():
            for n, message in enumerate(found):
                message.id = message.id or f"{task_id}:{n}"

    def _adopt(self, before: Sequence[str]) -> None:
        """People know what there is; ``before``: ids told by attempts that were lost."""
        there = self._there()
        self._known = {name: _shown(message) for name, message in there.items()}
        self._page = dict.fromkeys(there)
        if self._received.text is not None:
            if self._received.now:
                said = HumanMessage(self._received.text, id=self._received.said_as)
                self._known.setdefault(self._received.said_as, _shown(said))
            self._page.setdefault(self._received.said_as)
        for name in before:
            self._page.pop(name, None)
            self._page[name] = None

    def _is_received(self, message: BaseMessage) -> bool:
        """Whether it is the one of which `received` tells, and has no id of its own."""
        return self._received.text is not None and not message.id

    def _differs(self, name: str, message: BaseMessage) -> bool:
        return name in self._touched and self._known.get(name) != _shown(message)

    def _there(self) -> dict[str, BaseMessage]:
        """By id, as a reader's snapshot has them: the state, and what was written since."""
        there = {str(m.id): m for m in self._state or ()}
        for _, written in sorted(self._pending.items()):
            for message in written:
                if not isinstance(message, RemoveMessage):
                    there[str(message.id)] = message
                elif message.id == REMOVE_ALL_MESSAGES:
                    there.clear()
                else:
                    there.pop(str(message.id), None)
        return there

    def _messages(self, checkpoint: Mapping[str, Any]) -> list[BaseMessage] | None:
        """None where the checkpoint alone does not tell them."""
        if self.channel is None:
            return None
        if self.channel in checkpoint["channel_values"]:
            found = checkpoint["channel_values"][self.channel]
            return _messages(found) if isinstance(found, list) else None
        return None if self.channel in checkpoint["channel_versions"] else []


def _order(there: Collection[str], page: Iterable[str]) -> dict[str, Any] | None:
    """Where the messages on the page follow each other otherwise than in the state, `there`:
    the ids from there on, as the state has them."""
    ids = [*there]
    shown = [name for name in page if name in there]
    first = next((n for n, (a, b) in enumerate(zip(ids, shown, strict=False)) if a != b), None)
    if first is None or (len(ids) - first) * _ID > LARGEST:
        return None
    return {"ids": ids[first:]}


def _with_id(message: BaseMessage) -> BaseMessage:
    """With an id, which the state then has too, as LangGraph keeps one that is there."""
    if not message.id:
        message.id = str(uuid.uuid4())
    return message


def _messages(value: Any) -> list[BaseMessage]:
    listed = value if isinstance(value, list | tuple) else [value]
    return [m for m in listed if isinstance(m, BaseMessage)]


def _shown(message: BaseMessage) -> _Shown:
    """As `message_data` tells it, and cheaper."""
    # A model's missing attributes are dear, and so is what langchain makes of the others.
    fields = message.__dict__
    content, calls = fields["content"], fields.get("tool_calls")
    return (
        fields["type"].removesuffix("MessageChunk").lower(),
        fields.get("role"),
        content if isinstance(content, str) else repr(content),
        repr([(c["id"], c["name"], c["args"]) for c in calls]) if calls else None,
        fields.get("name") or None,
        fields.get("tool_call_id"),
    )
