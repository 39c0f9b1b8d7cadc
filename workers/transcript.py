"""The messages of a conversation, as one turn tells of them: each once, and what the state has.

They are heard where they are made: from the model that wrote one, from the writes of the task
that returned it. What only the new checkpoint shows (a message given as a dict, one that was
removed or changed) is told from there.
"""

import threading
import uuid
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage

from graphs.chat_messages import message_data
from workers.events import Events, Place


class Transcript:
    """What is known of the messages in ``channel`` of the root graph. Thread safe."""

    def __init__(self, events: Events, channel: str | None, received: frozenset[str]) -> None:
        """``received``: ids of messages that came from outside, of which `received` tells."""
        self._events = events
        self._channel = channel
        self._received = received
        self._lock = threading.Lock()
        #: By id: the message, and what was told of it if that was in this turn.
        self._known: dict[str, tuple[BaseMessage, dict[str, Any] | None]] = {}
        #: Ids of those that the newest checkpoint has.
        self._stored: set[str] = set()

    def say(self, place: Place, message: BaseMessage, **more: Any) -> None:
        """A message is complete; told unless just this one is known."""
        if message.id is None:
            # As LangGraph does where it streams one: the state then has the same id.
            message.id = str(uuid.uuid4())
        with self._lock:
            known, told = self._known.get(message.id, (None, None))
            if known is None and message.id in self._received:
                # By a claim before this one.
                self._known[message.id] = (message, None)
                return
            if told is None and known is not None and (known is message or known == message):
                return
            data = message_data(message)
            if data is None or told == data:
                return
            self._known[message.id] = (message, data)
        self._events.message(place, data | more)

    def loaded(self, values: dict[str, Any]) -> None:
        """The root graph's state as a run begins from it: nothing in it is news."""
        found = self._messages(values)
        with self._lock:
            self._stored = {str(m.id) for m in found}
            for message in found:
                self._known[str(message.id)] = (message, None)

    def forget(self, names: list[str]) -> None:
        """These were told by a task that has failed."""
        with self._lock:
            for name in names:
                self._known.pop(name, None)

    def written(self, place: Place, channel: str, value: Any) -> None:
        """A task has written this."""
        if channel != self._channel:
            return
        for message in value if isinstance(value, list | tuple) else [value]:
            if isinstance(message, BaseMessage) and not isinstance(message, RemoveMessage):
                self.say(place, message)

    def saved(self, values: dict[str, Any], given: bool) -> None:
        """The root graph's new state; ``given``: with what has just come from outside."""
        if self._channel not in values:
            return
        if given:
            self.loaded(values)
            return
        found = self._messages(values)
        for message in found:
            self.say(Place(), message)
        stored = {str(m.id) for m in found}
        with self._lock:
            gone = self._stored - stored
            self._stored = stored
            for name in gone:
                self._known.pop(name, None)
        for name in sorted(gone):
            self._events.message(Place(), {"removed": name})

    def _messages(self, values: dict[str, Any]) -> list[BaseMessage]:
        found = values.get(self._channel) if self._channel is not None else None
        return [m for m in found if isinstance(m, BaseMessage)] if isinstance(found, list) else []


def ids_received(given: Any) -> frozenset[str]:
    """The ids in an input's messages, as far as they have some."""
    found = given if isinstance(given, list) else []
    return frozenset(str(m["id"]) for m in found if isinstance(m, dict) and m.get("id"))
