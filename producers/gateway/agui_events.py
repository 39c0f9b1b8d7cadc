"""A thread's events as AG-UI's, for one client: pure, and in AG-UI's order whatever happens.

A run is opened before anything is said; what was opened is closed before the run ends, and
nothing is said after it. What a crash has undone is taken back by a MESSAGES_SNAPSHOT.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    CustomEvent,
    Message,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
)

from ..live.events import Event
from ..live.snapshot import Snapshot
from .agui_ends import End
from .agui_messages import clean
from .agui_transcript import Events, OutOfStep, Transcript

__all__ = ["Events", "OutOfStep", "Translator"]


class Translator:
    """Events in, AG-UI's events out.

    thread_id: as the client calls the thread. known: messages that the client holds; None for
    one that comes back to an earlier stream: `event` then raises OutOfStep where they are
    needed, and a snapshot has to come first.
    """

    def __init__(self, thread_id: str, known: Sequence[Message] | None = ()) -> None:
        self._thread = thread_id
        self._transcript = Transcript(known)
        self._run: str | None = None
        self._turn: str | None = None
        self._values: Any = {}
        self._at: int | None = None

    @property
    def running(self) -> bool:
        """Whether a run is open."""
        return self._run is not None

    def begin(self, run_id: str, own: Message | None = None) -> Events:
        """Open a run; own: the person's message that it is about."""
        self._run = run_id
        if own is not None:
            self._transcript.expect(own)
        started = RunStartedEvent(
            thread_id=self._thread, run_id=run_id, protocol_version=PROTOCOL_VERSION
        )
        return self._stamped([started])

    def event(self, event: Event) -> Events:
        """What the client is told of it; opens a run where there is something to tell.

        Raises OutOfStep.
        """
        self._at = _milliseconds(event.at)
        if event.type == "turn":
            self._turn_begins(event.data)
        tell = _TOLD.get(event.type)
        found = self._stamped(tell(self, event.data)) if tell else []
        return found and [*self._opened(f"epoch-{event.id.epoch}"), *found]

    def snapshot(self, found: Snapshot) -> Events:
        """All there is, in place of what was told."""
        opened = self._opened(f"epoch-{found.head.epoch}")
        told = self._transcript.replace(
            found.messages,
            found.partial,
            chat=found.chat,
            retracted=found.reason == "retracted",
        )
        for call in found.running_tools:
            told += self._transcript.call(call)
        return [*opened, *self._stamped([*told, *self._state(found)])]

    def finish(self, end: End, result: Snapshot | None = None) -> Events:
        """Close the run. result: what it led to; what the client holds otherwise is put right."""
        told = self._opened(self._turn or "settled")
        if result is None:
            told += self._transcript.close()
        else:
            told += [*self._transcript.put_right(result.messages, chat=result.chat)]
            told += self._state(result)
        if end.kind == "interrupt":
            # What the next run is to start from is told before a run that asks ends.
            told += self._boundary(told)
        run, self._run = self._run or "", None
        self._transcript.new_run()
        told.append(
            RunErrorEvent(message=clean(end.message), code=end.code)
            if end.kind == "error"
            else RunFinishedEvent(thread_id=self._thread, run_id=run, outcome=_outcome(end))
        )
        return self._stamped(told)

    def _opened(self, run_id: str) -> Events:
        return [] if self.running else self.begin(self._turn or run_id)

    def _turn_begins(self, data: Mapping[str, Any]) -> None:
        self._turn = str(data.get("message_id"))
        if data.get("attempt") == 1:
            self._transcript.new_turn()

    def _state(self, found: Snapshot) -> Events:
        if found.values == self._values:
            return []
        self._values = found.values
        return [StateSnapshotEvent(snapshot=found.values)]

    def _boundary(self, told: Events) -> Events:
        types = {event.type for event in told}
        whole = [] if "MESSAGES_SNAPSHOT" in types else self._transcript.whole()
        state = StateSnapshotEvent(snapshot=self._values)
        return [*whole, *([] if "STATE_SNAPSHOT" in types else [state])]

    def _token(self, data: Mapping[str, Any]) -> Events:
        return self._transcript.token(data)

    def _message(self, data: Mapping[str, Any]) -> Events:
        return self._transcript.message(data)

    def _received(self, data: Mapping[str, Any]) -> Events:
        content = data.get("content")
        if data.get("kind") not in ("start", "input"):
            return [CustomEvent(name="fleet.received", value=dict(data))]
        if not isinstance(content, str):
            return []
        name = data.get("said_as") or data["message_id"]
        return self._transcript.received(str(name), content)

    def _step(self, data: Mapping[str, Any]) -> Events:
        name = "/".join([*_outer(data.get("ns")), clean(data.get("node"))])
        return [StepStartedEvent(step_name=name), StepFinishedEvent(step_name=name)]

    def _custom(self, data: Mapping[str, Any]) -> Events:
        given = data.get("data")
        if isinstance(given, Mapping) and set(given) == {"name", "value"}:
            return [CustomEvent(name=clean(given["name"]), value=given["value"])]
        return [CustomEvent(name="fleet.custom", value=dict(data))]

    def _ended(self, data: Mapping[str, Any]) -> Events:
        if data.get("outcome") != "retry":
            return []
        return [CustomEvent(name="fleet.retry", value=dict(data))]

    def _status(self, data: Mapping[str, Any]) -> Events:
        return [CustomEvent(name="fleet.status", value=dict(data))]

    def _stamped(self, events: Events) -> Events:
        for event in events:
            if event.timestamp is None:
                event.timestamp = self._at
        return events


_TOLD: dict[str, Callable[[Translator, Mapping[str, Any]], Events]] = {
    "token": Translator._token,
    "message": Translator._message,
    "received": Translator._received,
    "step": Translator._step,
    "custom": Translator._custom,
    "ended": Translator._ended,
    "status": Translator._status,
}


def _outcome(end: End) -> Any:
    if end.kind == "interrupt":
        return RunFinishedInterruptOutcome(interrupts=[*end.interrupts])
    if end.kind == "cancelled":
        return RunFinishedCancelledOutcome()
    # Tools are the graph's to call: none is left to the client.
    return RunFinishedSuccessOutcome(pending_tool_call_ids=[])


def _outer(namespace: Any) -> list[str]:
    """Names of the nodes around, from a checkpoint namespace (`a:id|b:id`) or a list of them."""
    parts = namespace.split("|") if isinstance(namespace, str) else namespace or ()
    return [clean(part).partition(":")[0] for part in parts if part and not str(part).isdigit()]


def _milliseconds(at: str) -> int | None:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1000)
    except (TypeError, ValueError):
        return None
