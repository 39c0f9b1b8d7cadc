"""What of a stack has died by itself, said in a sentence."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from infra.devservers import Child, Stack
from infra.errors import ServerFailed

from .keeping import how
from .processes import Process


class Watched:
    """The servers of a stack and the processes beside them that are to live.

    `processes` gives those of the moment: what is killed on purpose is not among them.
    """

    def __init__(self, stack: Stack, processes: Callable[[], Iterable[Process]]) -> None:
        self._stack = stack
        self._processes = processes

    def require_all(self) -> None:
        """Raise ServerFailed for the first that has died: which, how and its last words."""
        for name, process in self._named():
            code = process.child.poll()
            if code is not None:
                raise ServerFailed(
                    f"{name} {how(code)}; its last words: {process.last_words().rstrip('.')}.",
                    "Nothing is left running: run the same command again.",
                    process=name,
                )

    def _named(self) -> Sequence[tuple[str, Process]]:
        servers = [(s.name, _process(s.child, s.log_path)) for s in self._stack.servers]
        named = [(name[0].upper() + name[1:], process) for name, process in servers]
        return named + [(process.child.name, process) for process in self._processes()]


def _process(child: Child, log_path: Path) -> Process:
    return Process(child, log_path, 0)
