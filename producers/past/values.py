"""The values of a checkpoint as the graph's state has them.

What is stored comes out as plain data, and no code of the graph's is imported or run. Two
kinds of channels need more than that. A DeltaChannel stores differences at most steps: its
value is what LangGraph makes of them with the graph's own reducer, so its graph is loaded,
where this checkout has it; else the value is not known. What an `@entrypoint` returns is no
value of a state, but the result of the run.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.pregel._checkpoint import channels_from_checkpoint

from graphs.stored import state_values
from graphs.values import plain

_RESULT, _SAVED = "__end__", "__previous__"
#: In a checkpoint's metadata: how often each DeltaChannel was written since it was stored whole.
_COUNTERS = "counters_since_delta_snapshot"


#: A graph and its subgraphs, by the nodes that lead to each.
Graphs = dict[tuple[str, ...], Any]


class Values:
    """Reads the checkpoints of one graph's threads.

    loaded: graphs that have been needed before, by name, where many threads are read.
    """

    def __init__(
        self, saver: PostgresSaver, graph: str, loaded: dict[str, Graphs] | None = None
    ) -> None:
        self._saver = saver
        self._name = graph
        self._cache = {} if loaded is None else loaded
        #: Why the graph could not be loaded, once it was needed.
        self.problem: str | None = None

    def read(self, found: CheckpointTuple) -> tuple[dict[str, Any], list[str]]:
        """The state by name, as JSON holds it, and the names of values that can't be told."""
        stored = {
            name: value.value if isinstance(value, _DeltaSnapshot) else value
            for name, value in found.checkpoint["channel_values"].items()
        }
        state = state_values(stored | self._deltas(found))
        return state, [name for name in _differences(found) if name not in state]

    def _deltas(self, found: CheckpointTuple) -> dict[str, Any]:
        """The values that are stored as differences, put together."""
        names = _differences(found)
        channels = self._channels(found) if names else {}
        specs = {name: channels[name] for name in names if name in channels}
        if not specs:
            return {}
        # The graph is here, so its classes may come back as themselves for its reducer.
        saver = PostgresSaver(self._saver.conn, serde=JsonPlusSerializer())
        made, _ = channels_from_checkpoint(
            specs, found.checkpoint, saver=saver, config=found.config
        )
        return {name: channel.get() for name, channel in made.items() if channel.is_available()}

    def _channels(self, found: CheckpointTuple) -> dict[str, Any]:
        graph = self._loaded().get(path(found))
        return {} if graph is None else dict(graph.channels)

    def _loaded(self) -> Graphs:
        if self._name not in self._cache:
            from graphs.registry import Registry
            from infra.errors import RegistryError
            from infra.settings import get_settings

            graphs: Graphs = {}
            try:
                found = Registry.load(get_settings().graphs_path).get(self._name)
            except RegistryError as exc:
                self.problem = exc.message
            else:
                below = {tuple(ns.split("|")): g for ns, g in found.subgraphs().items()}
                graphs = {(): found.graph, **below}
            self._cache[self._name] = graphs
        return self._cache[self._name]


def outcome(found: CheckpointTuple) -> dict[str, Any]:
    """What an `@entrypoint` has returned, as JSON holds it: ``{"result"}``, and ``"saved"``
    where it keeps something else for the next run. Empty for other graphs."""
    values = found.checkpoint["channel_values"]
    if _RESULT not in values:
        return {}
    told = {"result": plain(values[_RESULT])}
    if _SAVED in values and values[_SAVED] != values[_RESULT]:
        told["saved"] = plain(values[_SAVED])
    return told


def namespace(found: CheckpointTuple) -> str:
    """LangGraph's checkpoint_ns: empty for the thread's own graph."""
    return str(found.config["configurable"].get("checkpoint_ns", ""))


def path(found: CheckpointTuple) -> tuple[str, ...]:
    """The nodes that lead to the subgraph whose checkpoint it is; () for the graph's own."""
    parts = [p.partition(":")[0] for p in namespace(found).split("|") if p and not p.isdigit()]
    return tuple(parts)


def _differences(found: CheckpointTuple) -> list[str]:
    """DeltaChannels of which this checkpoint does not hold the whole value."""
    metadata: Mapping[str, Any] = found.metadata
    counted = metadata.get(_COUNTERS) or {}
    return [name for name in counted if name not in found.checkpoint["channel_values"]]
