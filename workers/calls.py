"""When each thread was last seen to, and how long to wait before doing it again."""

from dataclasses import dataclass, field


@dataclass
class Calls:
    """Growing intervals per thread, from ``first`` seconds up to ``longest``.

    So a long backlog is not woken again and again. Times are the caller's, in seconds.
    """

    first: float
    longest: float = 60.0
    due: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allowed(self, thread_id: str, now: float) -> bool:
        """Whether to call the thread now. If it was done, :meth:`note` it."""
        at, _ = self.due.get(thread_id, (now, self.first))
        return now >= at

    def note(self, thread_id: str, now: float) -> None:
        """The thread was called: not again for a while, and longer each time."""
        _, pause = self.due.get(thread_id, (now, self.first))
        self.due[thread_id] = (now + pause, min(pause * 2, self.longest))

    def keep(self, threads: set[str]) -> None:
        """Forget the threads that need no calling any more."""
        self.due = {t: v for t, v in self.due.items() if t in threads}
