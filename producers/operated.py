"""What operations answer, and workers as they are seen."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class EffectName(_Told):
    """An effect of a thread; ``renewed_as``: the request id that takes this one's place."""

    name: str
    request_id: str
    renewed_as: str | None = None

    def __str__(self) -> str:
        renewed = f", now {self.renewed_as}" if self.renewed_as else ""
        return f"{self.name} ({self.request_id}{renewed})"


class Repeated(_Told):
    """What a start anew may do once more although it was done: effects ``in_doubt``, and the
    ``amended`` nodes, whose work a person has done by hand."""

    in_doubt: list[EffectName] = []
    amended: list[str] = []

    def __str__(self) -> str:
        what = []
        if self.in_doubt:
            what.append(f"{', '.join(map(str, self.in_doubt))} may have happened")
        if self.amended:
            what.append(f"the work of {', '.join(self.amended)} was done by hand")
        return f"{' and '.join(what)}, and would be done once more"


class Cancellation(_Told):
    """``requested``: a turn runs, and stops at its next step. ``finished``: it came too
    late. in_doubt: effects begun without a result, which may have happened; none while a turn
    runs, since it ends what it has begun first."""

    thread_id: str
    outcome: Literal["cancelled", "requested", "finished"]
    status: str
    in_doubt: list[EffectName] = []


class Retried(_Told):
    """The message is due again; `published` as in a receipt."""

    thread_id: str
    message_id: str
    seq: int
    renewed: list[EffectName] = []
    published: bool = False


class Dropped(_Told):
    """The message is given up; status: the thread's, now."""

    thread_id: str
    message_id: str
    seq: int
    status: str
    in_doubt: list[EffectName] = []


class Hold(_Told):
    """A graph, paused or not; its mail that waits, and its turns that still run."""

    graph: str
    paused: bool
    waiting: int
    running: int


class Running(_Told):
    """A thread that a worker has; times are the database's."""

    thread_id: str
    since: datetime
    progress_at: datetime | None = None


class WorkerRow(_Told):
    """A worker. silent: it has said nothing for so long (silent_for, in seconds) that it is
    taken for gone; draining: it takes no turns; drain_requested: it was told so by `drain`."""

    worker: str
    queues: list[str]
    slots: int
    pool: str
    started_at: datetime
    seen_at: datetime
    silent_for: float
    silent: bool
    draining: bool
    drain_requested: bool
    runs: list[Running] = []

    @property
    def state(self) -> str:
        """ready | draining | drained | silent"""
        if self.silent:
            return "silent"
        if self.draining or self.drain_requested:
            return "draining" if self.runs or not self.draining else "drained"
        return "ready"


class QueueRow(_Told):
    """A queue. workers, slots: of those that take turns. running: turns. due: threads that
    could be taken up at once, the first of them for oldest_due_for seconds. waiting: messages,
    also those of a later time or behind others; held: those of its paused graphs."""

    queue: str
    workers: int
    slots: int
    running: int
    due: int
    oldest_due_for: float | None = None
    waiting: int
    held: int
    graphs: list[str] = []
    paused: list[str] = []
