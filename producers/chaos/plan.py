"""What strikes a fleet under fire, and in which order: at random, and for one seed the same."""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Of a hundred kills; all of them are SIGKILL.
KILLS: Mapping[str, int] = {"pool child": 80, "worker": 12, "leader": 6, "all workers": 2}

#: Troubles that end by themselves, and how many seconds each lasts: from, to.
TROUBLES: Mapping[str, tuple[float, float]] = {
    # Stopped for longer than a turn may show no progress and a leader may say nothing.
    "worker frozen": (7, 10),
    "postgres restarted": (0.1, 1.5),
    "postgres crashed": (0.1, 1.5),
    "sessions terminated": (0, 0),
    "broker restarted": (0.1, 2),
    "broker wiped": (0, 0),
    "broker frozen": (1, 4),
    "postgres cut off": (0, 0),
    "postgres out of reach": (2, 15),
    "broker cut off": (0, 0),
    "broker out of reach": (2, 15),
}
#: These drop packets, which takes Linux.
_LINUX = ("postgres out of reach", "broker out of reach")


@dataclass(frozen=True, slots=True)
class Strike:
    """One kill or trouble. ``after``: seconds since the one before of its kind. ``pick``:
    between 0 and 1, whom it meets of those that there are. ``lasts``: seconds."""

    kind: str
    after: float
    pick: float
    lasts: float = 0.0


def kills(seed: int, every: float, mix: Mapping[str, int] = KILLS) -> Iterator[Strike]:
    """Without end; each run of 50 has the mix. every: seconds between two on average."""
    source = random.Random(f"kills {seed}")
    while True:
        for kind in _shuffled(source, [k for k, n in mix.items() for _ in range(max(1, n // 2))]):
            yield Strike(kind, every * source.uniform(0.5, 1.5), source.random())


def troubles(
    seed: int, every: float, longest: float = 15.0, kinds: Sequence[str] | None = None
) -> Iterator[Strike]:
    """Without end; all kinds in turn, in another order each time. longest: seconds; what has
    to outlast a timeout lasts for that."""
    source = random.Random(f"troubles {seed}")
    kinds = possible() if kinds is None else kinds
    while True:
        for kind in _shuffled(source, kinds):
            least, most = TROUBLES[kind]
            lasts = source.uniform(least, max(least, min(most, longest)))
            yield Strike(kind, every * source.uniform(0.5, 1.5), source.random(), lasts)


def possible() -> list[str]:
    """The troubles that this machine can be made to have."""
    return [kind for kind in TROUBLES if sys.platform == "linux" or kind not in _LINUX]


def _shuffled(source: random.Random, kinds: Sequence[str]) -> list[str]:
    return source.sample(kinds, len(kinds))
