"""Starts from a file, one JSON object a line, each checked as it is read.

    {"key": "A1001", "input": {"user_id": "u_42"}}
    {"key": "A1002", "input": {…}, "graph": "refund", "message_id": "…", "priority": 5}

A line without a message_id gets one from what it holds, so the same file can be sent again,
after an interruption or by mistake: what was accepted counts once.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import InvalidPayload
from .payloads import canonical_hash, once_each

#: LangGraph's, for the runs of the thread.
_RUN = ("context", "config")
_FIELDS = ("graph", "key", "input", "message_id", "on_existing", "priority", "delay", *_RUN)

Line = tuple[int, dict[str, Any]]


class Lines:
    """The lines of a file, or of stdin (`-`), as starts; read anew at each iteration.

    spared: what a line that is refused has left undone, as a sentence without its end.
    """

    def __init__(self, file: IO[bytes], name: str, defaults: dict[str, Any], spared: str) -> None:
        self.name = name
        self._spared = spared
        self.count = 0
        self._file = file
        self._defaults = defaults

    def __iter__(self) -> Iterator[Line]:
        """(line number, fields of a start); empty lines are passed over."""
        self._file.seek(0)
        self.count = 0
        for number, raw in enumerate(self._file, 1):
            if raw.strip():
                self.count += 1
                yield number, self._start(number, raw)

    def _start(self, number: int, raw: bytes) -> dict[str, Any]:
        try:
            found = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=once_each)
        except UnicodeDecodeError:
            raise self._bad(number, "it is not UTF-8") from None
        except RecursionError:
            raise self._bad(number, "it is nested too deeply") from None
        except ValueError as exc:
            raise self._bad(number, f"it is not JSON: {exc}") from None
        if not isinstance(found, dict):
            raise self._bad(number, "it is not a JSON object")
        if unknown := sorted(found.keys() - set(_FIELDS)):
            raise self._bad(number, f"it has a field '{unknown[0]}'; known: {', '.join(_FIELDS)}")
        start = {"input": {}, **self._defaults, **found}
        for name in ("graph", "key"):
            if name not in start:
                raise self._bad(number, f"it has no {name}")
        return {"message_id": _message_id(start), **start}

    def _bad(self, number: int, reason: str) -> InvalidPayload:
        return InvalidPayload(
            f"{self.name}, line {number}: {reason}.",
            f"{self._spared}; correct the line.",
            line=number,
        )


@contextmanager
def opened(
    source: str, defaults: dict[str, Any], option: str, *, spared: str = "Nothing was accepted"
) -> Iterator[Lines]:
    """The lines of the file, or of stdin, which is kept aside to be read twice.

    Raises InvalidPayload, naming the option, for a file that can't be read.
    """
    if source == "-":
        with tempfile.TemporaryFile() as kept:
            while chunk := sys.stdin.buffer.read(1 << 20):
                kept.write(chunk)
            yield Lines(kept, "stdin", defaults, spared)
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(source).open("rb"))
        except OSError as exc:
            raise InvalidPayload(
                f"{option}: {source} can't be read: {exc.strerror}.", f"{spared}; correct it."
            ) from None
        yield Lines(file, source, defaults, spared)


def _message_id(start: dict[str, Any]) -> str:
    """From what the line is about: sent again, it is the same message."""
    about = [start["graph"], start["key"], start["input"]]
    about += [{name: start[name]} for name in _RUN if start.get(name) is not None]
    try:
        return f"line-{canonical_hash(about)[:40]}"
    except ValueError:
        # What can't be hashed can't be accepted either, and the check says why.
        return "line"
