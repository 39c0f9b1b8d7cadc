"""Logs that are shown while they grow, as `tail -f` does."""

from collections.abc import Callable, Mapping
from pathlib import Path


class Followed:
    """Logs by name; what they hold already is not shown."""

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._logs = dict(logs)
        self._read = {name: _size(path) for name, path in self._logs.items()}

    def print_new(self, say: Callable[[str], None]) -> None:
        """Give each whole line that came since the last call, under its log's name."""
        for name, path in self._logs.items():
            if _size(path) <= self._read[name]:
                continue
            with path.open("rb") as log:
                log.seek(self._read[name])
                new = log.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[name] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                say(f"{name} | {line}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
