"""Percentiles of what was measured. Pure."""

from collections.abc import Sequence
from typing import Any


def percentile(values: Sequence[float], rank: int) -> float:
    """Nearest rank: one of the values, never less than was measured."""
    place = max(1, -(-rank * len(values) // 100))
    return round(sorted(values)[place - 1], 3)


def milliseconds(seconds: Sequence[float]) -> dict[str, Any]:
    """Where they lie, in ms."""
    scaled = [1000 * s for s in seconds]
    return {f"p{rank}": percentile(scaled, rank) for rank in (50, 90, 99)} | {
        "max": percentile(scaled, 100)
    }
