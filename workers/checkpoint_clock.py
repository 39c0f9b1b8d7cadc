"""Checkpoint ids are wall-clock uuid6, and "latest" is the largest: the clock must not go back.

A host whose clock is behind would write checkpoints that sort before those of the host that
had the thread before, and a finished refund would come back as waiting.
"""

from uuid import UUID

from langgraph.checkpoint.base import id as checkpoint_ids


def lift(*known: str | None) -> None:
    """Let this process's new checkpoint ids sort after all of these ids; None counts for none."""
    newest = max(filter(None, known), default=None)
    if newest is None:
        return
    stamp = checkpoint_ids.UUID(str(UUID(newest))).time
    if stamp > (checkpoint_ids._last_v6_timestamp or 0):
        checkpoint_ids._last_v6_timestamp = stamp  # type: ignore[assignment]
