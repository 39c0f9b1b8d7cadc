"""Kills: the places that a run without faults has met, each a place to die at in another run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

#: The points that a user's graph meets, in the order of a turn.
POINTS = (
    "claim.after_lock",
    "turn.superstep",
    "effect.before_intent",
    "effect.after_intent",
    "effect.after_call",
    "effect.after_result",
    "turn.at_interrupt",
    "turn.before_commit",
    "turn.after_commit",
)

#: What a person is told of each.
WORDS = {
    "claim.after_lock": "before anything of the turn was done",
    "turn.superstep": "before a superstep",
    "effect.before_intent": "before an effect's intent was committed",
    "effect.after_intent": "after an effect's intent, before its call",
    "effect.after_call": "after an effect's call, before its result was recorded",
    "effect.after_result": "after an effect's result was recorded",
    "turn.at_interrupt": "while a question was about to be asked",
    "turn.before_commit": "before the turn's end was committed",
    "turn.after_commit": "after the turn's end was committed",
}


@dataclass(frozen=True, slots=True)
class Kill:
    """One place. place: without the thread. kept: what came before it has been committed."""

    point: str
    place: str
    kept: bool = False

    def entry(self, thread_id: str) -> str:
        """What arms it for one thread, in FLEET_FAILPOINTS."""
        return f"{self.name(thread_id)}=kill"

    def name(self, thread_id: str) -> str:
        """Its name in the failpoints' log, and in the folder of those that have acted."""
        return f"{self.point}@{quote(thread_id + self.place, safe='')}"

    def words(self) -> str:
        """For people."""
        said = WORDS.get(self.point, self.point)
        return f"{said}, the steps before it committed" if self.kept else said


def noting() -> str:
    """FLEET_FAILPOINTS that only notes the places."""
    return ";".join(f"{point}@=note" for point in POINTS)


def met(log: Path, thread_id: str) -> list[Kill]:
    """The places at which the thread was, each once, in order; supersteps twice: with and
    without what came before them."""
    found: dict[Kill, None] = {}
    for name in _names(log):
        point, _, where = name.partition("@")
        place = unquote(where)
        if place.startswith(f"{thread_id}/"):
            found[Kill(point, place.removeprefix(thread_id))] = None
            if point == "turn.superstep":
                found[Kill(point, place.removeprefix(thread_id), kept=True)] = None
    return [*found]


def some(kills: Sequence[Kill], most: int) -> list[Kill]:
    """All of them, or so many, spread evenly."""
    if len(kills) <= most:
        return [*kills]
    return [kills[n * len(kills) // most] for n in range(most)]


def hits(log: Path) -> set[str]:
    """Names of the points that acted."""
    return set(_names(log))


def _names(log: Path) -> Iterable[str]:
    if not log.exists():
        return
    for line in log.read_text().splitlines():
        yield line.split()[1]
