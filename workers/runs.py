"""What LangGraph is told of a turn's run: its config, its context, and whose it is.

A message may bring a context and a config of its own (producers.runs). They hold for the
later messages of the thread too, answers above all, until others are given: so each
checkpoint carries them in its metadata, where forks and retries find them.
"""

import json
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from producers.messages import run_id
from producers.runs import parted
from workers.claimed import Claimed

#: Where the checkpoints' metadata keeps them, as JSON: LangGraph keeps plain values only.
_KEPT = "fleet_run"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``input``: the payload of a start or of more input, as the graph gets it."""

    id: str
    input: dict[str, Any]
    context: dict[str, Any] | None
    config: dict[str, Any]

    @classmethod
    def of(cls, claimed: Claimed) -> "Run":
        """What the message gives, over what the thread had before."""
        payload, given = parted(claimed.payload)
        kept: dict[str, Any] = {}
        if claimed.metadata and (before := claimed.metadata.get(_KEPT)):
            kept = json.loads(before)
        run = {**kept, **given}
        config = {**run.get("config", {})}
        configurable = {
            **config.get("configurable", {}),
            "thread_id": claimed.checkpoint_thread,
            "fleet_key": claimed.key,
        }
        if run:
            config["metadata"] = {**config.get("metadata", {}), _KEPT: json.dumps(run)}
        config["configurable"] = configurable
        identity = run_id(claimed.message_id, claimed.checkpoint_thread)
        return cls(identity, payload, run.get("context"), config)

    def driven_by(self, saver: BaseCheckpointSaver[Any]) -> Any:
        """The config to run the graph with."""
        ours = {
            "run_id": self.id,
            "__pregel_checkpointer": saver,
            "__pregel_strict_resume": True,
        }
        return {**self.config, "configurable": {**self.config["configurable"], **ours}}
