"""What happens to LangGraph's documented graphs, told once for the fleet and once without it.

A story is the mail of one thread in order: inputs, then the answer to each question that
comes. `alone` plays it on stock LangGraph, in this process and without faults; what the
fleet makes of it must end in the same state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from graphs.registry import Registry
from producers import Fleet
from tests.harness import ROOT

GRAPHS_FILE = ROOT / "tests/graphs/documented/langgraph.json"


@dataclass(frozen=True)
class Story:
    """inputs: each to be sent when the one before has ended. answers: the next question's."""

    inputs: Sequence[Mapping[str, Any]]
    answers: Sequence[Any] = ()
    context: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


def _hi(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


ALLOW = {"type": "approve"}
DENY = {"type": "reject", "message": "keep it"}

STORIES = {
    "agent": Story([_hi("weather, please")], [{"decisions": [ALLOW, DENY]}]),
    "approval": Story([{"details": "pay"}], [{"approved": True, "comment": "fine"}]),
    "breakpoints": Story([{"log": ["go"]}], ["continue", "continue"]),
    "chaining": Story([{"topic": "cats"}]),
    "configured": Story(
        [{"topic": "cats"}],
        ["good"],
        config={"configurable": {"model": "small", "city": "Bern"}, "tags": ["web"]},
    ),
    "delta": Story([{"lines": ["one"]}, {"lines": ["two"]}, {"lines": ["three"]}]),
    "essay": Story([{"topic": "cats"}, {"topic": "dogs"}], ["fine", "shorter"]),
    "form": Story([{"greeting": "Hello"}], ["Ada", "old", -3, 36]),
    "handoffs": Story([_hi("plan a trip")]),
    "interview": Story([{"log": []}], ["a", "b", "yes", "no"]),
    "map_reduce": Story([{"topic": "cats"}]),
    "memory": Story([_hi("remember tea"), _hi("what do I like?")], context={"user_id": "u1"}),
    "optimizer": Story([{"topic": "cats"}]),
    "parallel_calls": Story([{"topic": "cats"}]),
    "parallel_questions": Story([{"said": []}], ["yes", "no"]),
    "research": Story([{"topic": "cats"}, {"topic": "dogs"}], ["fine", "too long"]),
    "routing": Story([{"input": "a poem"}], config={"recursion_limit": 10, "tags": ["t"]}),
    "subgraphs": Story([{"log": []}, {"log": ["more"]}], ["that one", "another"]),
}


def registry() -> Registry:
    return Registry.load(Path(GRAPHS_FILE))


async def alone(name: str) -> Any:
    """The final state on stock LangGraph: no fleet, no faults."""
    story = STORIES[name]
    configured = {**story.config.get("configurable", {}), "thread_id": "alone"}
    config: Any = {**story.config, "configurable": configured}
    found = registry().get(name).made_anew(config, lambda work: work).graph
    graph = found.copy({"checkpointer": InMemorySaver(), "store": InMemoryStore()})
    answers = iter(story.answers)
    for given in story.inputs:
        step: Any = given
        while True:
            await graph.ainvoke(step, config, context=story.context)
            state = await graph.aget_state(config)
            if state.interrupts:
                asked = min(state.interrupts, key=lambda i: repr(plain(i.value)))
                step = Command(resume={asked.id: next(answers)})
            elif state.next:
                next(answers)
                step = None
            else:
                break
    assert next(answers, None) is None, "the story has more answers than questions"
    return plain((await graph.aget_state(config)).values)


def on_fleet(fleet: Fleet, name: str) -> str:
    """Play the story on a fleet; gives the thread's id."""
    story = STORIES[name]
    thread = f"{name}:told"
    answers = iter(story.answers)
    for number, given in enumerate(story.inputs):
        if number:
            fleet.send(thread, given)
        else:
            fleet.submit(name, "told", given, context=story.context, config=story.config or None)
        while (status := fleet.wait(thread, 240)).status == "waiting":
            asked = min(status.questions, key=lambda q: repr(q.payload))
            fleet.answer(thread, asked.question_id, next(answers))
        assert status.status == "done", status
    return thread


def plain(value: Any) -> Any:
    """Values that compare: messages without the ids that each run makes up."""
    if isinstance(value, BaseMessage):
        return {k: v for k, v in value.model_dump().items() if k != "id"}
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
