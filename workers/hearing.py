"""What the saver hears of a run: tasks that finish, messages that they write."""

import contextlib
import logging
from collections.abc import Callable, Container, Iterator, Mapping, MutableSequence, Sequence
from typing import Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.types import PregelExecutableTask

from graphs.values import plain
from workers.events import Events
from workers.places import Place
from workers.transcript import Transcript

log = logging.getLogger("fleet.events")

_PULL = "~__pregel_pull, "
_START = f"{_PULL}__start__"
_INTERRUPT, _ERROR = "__interrupt__", "__error__"
#: Writes that say what happened to a task, not what it gave.
_CONTROL = frozenset({*WRITES_IDX_MAP, "__error_source_node__"})
#: Channels of LangGraph's own.
_INTERNAL = ("__", "branch:to:", "join:")
_HIDDEN = "langsmith:hidden"


class Hearing:
    """One turn's. Its calls come under the claim's lock, but for `begins`, `failed` and
    `give_ids`."""

    def __init__(self, thread_id: str, events: Events, transcript: Transcript | None) -> None:
        self._thread_id = thread_id
        self._events = events
        self._transcript = transcript
        #: Whether what came from outside has just been written into the state.
        self._given = False
        #: Names of tasks that their path does not tell; None: hidden ones.
        self._names: dict[str, str | None] = {}

    def begins(self, task: PregelExecutableTask) -> None:
        """A task that was sent or called is about to run."""
        hidden = _HIDDEN in (task.config.get("tags") or ())
        self._names[task.id] = None if hidden else task.name

    def failed(self, task_id: str) -> None:
        """What the task has told is void: another try of it, or nobody, tells it again."""
        gone = self._events.forget(task_id)
        if self._transcript is not None:
            self._transcript.forget(gone)

    def give_ids(self, ns: str, task_path: str, writes: Sequence[tuple[str, Any]]) -> None:
        """The writes are about to be saved: messages among them get their ids before, so that
        what is saved, what is told and the state have the same."""
        if self._transcript is None or not isinstance(writes, MutableSequence):
            return
        for n, (channel, value) in enumerate(writes):
            if channel == self._transcript.channel:
                # What can't be a message fails where LangGraph reads it.
                with contextlib.suppress(Exception):
                    given = self._transcript.with_ids(value, ns, task_path == _START)
                    if given is not value:
                        writes[n] = (channel, given)

    def wrote(
        self, ns: str, task_id: str, task_path: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """A task's writes are in the buffer."""
        channels = [channel for channel, _ in writes]
        if all(channel in _CONTROL for channel in channels):
            if _ERROR in channels:
                self.failed(task_id)
            elif _INTERRUPT in channels:
                self._events.keep(task_id)
            return
        self._given = self._given or (task_path == _START and not ns)
        if self._transcript is not None and not ns:
            self._transcript.pending(task_id, writes)
        node = self._name(task_id, task_path)
        if node is None:
            return
        around = Place.of(f"{ns}|{node}:{task_id}")
        given = [(c, v) for c, v in writes if not c.startswith(_INTERNAL)]
        values = None
        if self._events.full:
            with self._harmless(f"what node {node!r} wrote"):
                self._read(around, given)
                # Several writes to one channel: a list of them.
                values = {c: plain(_one([v for k, v in given if k == c])) for c, _ in given}
        self._events.step(around, list(dict.fromkeys(c for c, _ in given)), values)

    def loaded(self, found: CheckpointTuple | None) -> None:
        """The root graph goes on from this; None: it begins."""
        if self._transcript is not None:
            with self._harmless("the conversation so far"):
                self._transcript.loaded(*_standing(found))

    def undone(self, stored: Callable[[], CheckpointTuple | None]) -> None:
        """What the buffer held was refused: the state is what is `stored`. Raises ClaimLost."""
        if self._transcript is not None:
            with self._harmless("what was taken back"):
                self._transcript.undone(*_standing(stored()))

    def saved(
        self, checkpoint: Checkpoint, changed: Container[str], metadata: CheckpointMetadata
    ) -> None:
        """The root graph's new state is in the buffer."""
        if self._transcript is not None:
            given = self._given or metadata.get("source") == "input"
            self._given = False
            with self._harmless("the conversation's new state"):
                self._transcript.saved(checkpoint, changed, given)

    def corrections(self) -> list[tuple[str, dict[str, Any]]]:
        """What is told last of the turn's messages."""
        if self._transcript is not None:
            with self._harmless("what has changed in the conversation"):
                return self._transcript.corrections()
        return []

    def _read(self, around: Place, given: Sequence[tuple[str, Any]]) -> None:
        for channel, value in given:
            if self._transcript is not None:
                self._transcript.written(around, channel, value)

    def _name(self, task_id: str, task_path: str) -> str | None:
        """The node; None for what is no step to people."""
        if task_path.startswith(_PULL):
            name = task_path.removeprefix(_PULL)
            return None if name.startswith("__") else name
        return self._names.get(task_id)

    @contextlib.contextmanager
    def _harmless(self, what: str) -> Iterator[None]:
        """What can't be told is no reason for a turn to fail."""
        try:
            yield
        except Exception as exc:
            log.warning(
                "%s: %s can't be told, pages that are open may need a reload: %s: %s",
                self._thread_id,
                what,
                type(exc).__name__,
                exc,
            )


def _standing(
    found: CheckpointTuple | None,
) -> tuple[Mapping[str, Any], Sequence[tuple[str, str, Any]]]:
    """A checkpoint, and what tasks have written since; None: there is nothing yet."""
    if found is None:
        return {"channel_values": {}, "channel_versions": {}}, ()
    return found.checkpoint, found.pending_writes or ()


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
