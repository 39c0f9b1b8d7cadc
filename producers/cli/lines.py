"""`fleet submit --from FILE.jsonl`: many starts, one JSON object a line.

    {"key": "A1001", "input": {"user_id": "u_42"}}
    {"key": "A1002", "input": {…}, "graph": "refund", "message_id": "…", "priority": 5}

The whole file is checked before anything is accepted. A line without a message_id gets one
from what it holds, so the same file can be sent again, after an interruption or by mistake:
what was accepted counts once.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from ..errors import InvalidPayload, ProducerError
from ..payloads import canonical_hash
from .failures import note
from .options import once_each

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..client import Fleet

#: As many as one transaction takes.
_AT_ONCE = 500
_OUTCOMES = ("accepted", "duplicate", "existing")
#: LangGraph's, for the runs of the thread.
_RUN = ("context", "config")
_FIELDS = ("graph", "key", "input", "message_id", "on_existing", "priority", "delay", *_RUN)

Line = tuple[int, dict[str, Any]]


class Lines:
    """The lines of a file, or of stdin (`-`), as starts; read anew at each iteration."""

    def __init__(self, file: IO[bytes], name: str, defaults: dict[str, Any]) -> None:
        self.name = name
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
            "Nothing was accepted; correct the line.",
            line=number,
        )


@contextmanager
def opened(source: str, defaults: dict[str, Any], option: str = "--from") -> Iterator[Lines]:
    """The lines of the file, or of stdin, which is kept aside to be read twice."""
    if source == "-":
        with tempfile.TemporaryFile() as kept:
            while chunk := sys.stdin.buffer.read(1 << 20):
                kept.write(chunk)
            yield Lines(kept, "stdin", defaults)
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(source).open("rb"))
        except OSError as exc:
            raise typer.BadParameter(
                f"{source} can't be read: {exc.strerror}.", param_hint=option
            ) from None
        yield Lines(file, source, defaults)


def send(fleet: "Fleet", lines: Lines) -> dict[str, Any]:
    """Check all, then accept all; how many were accepted, known before, and so on."""
    with _progress() as progress:
        checking = progress.add_task("checking", total=None)
        for chunk in _chunks(lines):
            with _naming_the_line(lines, chunk):
                fleet.check_many([start for _, start in chunk])
            progress.advance(checking, len(chunk))
        progress.update(checking, total=lines.count)
        told: Counter[str] = Counter()
        total = lines.count
        try:
            _accept(fleet, lines, told, progress)
        except (ProducerError, KeyboardInterrupt):
            progress.stop()
            note(
                f"{_sent(told)} of {total} lines are accepted; the same command again goes on "
                "with the rest."
            )
            raise
    counts = {outcome: told[outcome] for outcome in (*_OUTCOMES, "paused")}
    return {"lines": total, **counts, "published": not told["unpublished"]}


def _accept(fleet: "Fleet", lines: Lines, told: Counter[str], progress: "Progress") -> None:
    accepting = progress.add_task("accepting", total=lines.count)
    for chunk in _chunks(lines):
        with _naming_the_line(lines, chunk):
            receipts = fleet.submit_many([start for _, start in chunk])
        told.update(receipt.outcome for receipt in receipts)
        told["paused"] += sum(receipt.paused for receipt in receipts)
        told["unpublished"] += sum(
            r.outcome == "accepted" and not (r.published or r.paused) for r in receipts
        )
        progress.advance(accepting, len(chunk))


def _sent(told: Counter[str]) -> int:
    return sum(told[outcome] for outcome in _OUTCOMES)


def _chunks(lines: Lines) -> Iterator[list[Line]]:
    found = iter(lines)
    while chunk := list(islice(found, _AT_ONCE)):
        yield chunk


def _message_id(start: dict[str, Any]) -> str:
    """From what the line is about: sent again, it is the same message."""
    about = [start["graph"], start["key"], start["input"]]
    about += [{name: start[name]} for name in _RUN if start.get(name) is not None]
    try:
        return f"line-{canonical_hash(about)[:40]}"
    except ValueError:
        # What can't be hashed can't be accepted either, and the check says why.
        return "line"


@contextmanager
def _naming_the_line(lines: Lines, chunk: list[Line]) -> Iterator[None]:
    """An error about an item of the chunk names its line."""
    try:
        yield
    except ProducerError as error:
        if error.index is not None:
            number = chunk[error.index][0]
            error.index = None
            error.message = f"{lines.name}, line {number}: {error.message}"
            error.data["line"] = number
        raise


def _progress() -> "Progress":
    """A bar on stderr, when that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description:>9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
