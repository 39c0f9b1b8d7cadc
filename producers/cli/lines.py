"""`fleet submit --from FILE.jsonl`: many starts, one JSON object a line (producers.lines).

The whole file is checked before anything is accepted.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import ProducerError
from ..lines import Line, Lines
from .failures import note

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..client import Fleet

#: As many as one transaction takes.
_AT_ONCE = 500
_OUTCOMES = ("accepted", "duplicate", "existing")


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
