"""Masked state: a graph whose state never holds personal data, where its entry asks for it.

    "graphs": {"support": {"path": "./support.py:graph", "mask": true}}

Masked is what enters the state: the input, and what each node returns, before the next
node or a checkpoint sees it. Not later, in the saver: a node would then see plain values
in one attempt and masked ones in the next, and an effect called with them would be called
with other arguments. So a node that needs a plain value gets it where it is kept, by id.

What is no state stays as it is: questions and their answers, effects' results in the
ledger, results of functional tasks, and the mailbox (docs/data.md says for how long).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langgraph._internal._runnable import RunnableCallable
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.pregel import Pregel
from langgraph.types import Command, Send

from graphs.copies import copied
from infra.masking import Rule, mask

_MASKED = "_fleet_masked"


def mask_state(values: Any, rule: Rule) -> Any:
    """Values on their way into the state: a node's return, commands and sends included."""
    match values:
        case Command():
            return replace(
                values, update=_update(values.update, rule), goto=_goto(values.goto, rule)
            )
        case Send():
            return Send(values.node, mask(values.arg, rule))
        case list() | tuple() if any(isinstance(v, Command | Send) for v in values):
            return [mask_state(v, rule) for v in values]
    return mask(values, rule)


def _update(update: Any, rule: Rule) -> Any:
    """A command's update: values by name, also as pairs."""
    if isinstance(update, list | tuple) and all(
        isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in update
    ):
        return [(name, mask({name: value}, rule)[name]) for name, value in update]
    return mask(update, rule)


def _goto(goto: Any, rule: Rule) -> Any:
    if isinstance(goto, Send):
        return mask_state(goto, rule)
    if isinstance(goto, list | tuple):
        return [mask_state(g, rule) if isinstance(g, Send) else g for g in goto]
    return goto


def masked(graph: "Pregel[Any, Any, Any, Any]", rule: Rule | None) -> "Pregel[Any, Any, Any, Any]":
    """The graph with its state masked; itself without a rule.

    A copy; its subgraphs, which its nodes hold, are changed in place.
    """
    if rule is None:
        return graph
    for _, subgraph in graph.get_subgraphs(recurse=True):
        if isinstance(subgraph, Pregel) and getattr(subgraph, _MASKED, None) != rule:
            subgraph.nodes = _nodes(subgraph, rule)
            subgraph.channels = _channels(subgraph, rule)
            setattr(subgraph, _MASKED, rule)
    return copied(graph, {"nodes": _nodes(graph, rule), "channels": _channels(graph, rule)})


def _nodes(graph: "Pregel[Any, Any, Any, Any]", rule: Rule) -> dict[str, Any]:
    def mask_output(output: Any) -> Any:
        return mask_state(output, rule)

    first = RunnableCallable(mask_output, name="mask", trace=False, recurse=False)
    return {
        # Before the writers, which take the node's output apart.
        name: node.copy({"writers": [first, *node.writers]})
        for name, node in graph.nodes.items()
    }


def _channels(graph: "Pregel[Any, Any, Any, Any]", rule: Rule) -> dict[str, Any]:
    """The channels, with those of the input masking what they are given."""
    names = graph.input_channels
    found = dict(graph.channels)
    for name in [names] if isinstance(names, str) else names:
        channel = found.get(name)
        if isinstance(channel, EphemeralValue):
            found[name] = _masking(channel, rule)
    return found


def _masking(channel: "EphemeralValue[Any]", rule: Rule) -> "EphemeralValue[Any]":
    # A class of its own: the channel makes others of its kind when it is copied or read.
    class MaskedInput(EphemeralValue[Any]):
        __slots__ = ()

        def update(self, values: Sequence[Any]) -> bool:
            return super().update([mask_state(value, rule) for value in values])

    made = MaskedInput(channel.typ, channel.guard)
    made.key = channel.key
    return made
