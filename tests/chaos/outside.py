"""The outside of tests/chaos/machine.py: a provider that counts, and graphs that call it.

Three graphs that differ in how their first effect is settled in doubt: ``resend`` (the
provider honours request ids), ``lookup`` (it can be asked) and ``park`` (neither). Input
``{"tag", "ask"}``: the tag names the one thing that is to happen; with ``ask`` a person is
asked whether it is shipped too, by an answer ``{"ship": bool, "value": ...}``.
"""

import operator
from collections import Counter
from typing import Annotated, Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs.effects import Permanent, Retry, Transient, effect, lookup

#: Seconds; an attempt counts as under way for 5 more.
TIMEOUT = 1.0
ONCE = Retry(attempts=1)


class Provider:
    """Its books are in memory: it is the outside, and no turn can write them."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        #: What has happened: (effect, tag) by how often, and what was shipped.
        self.acts: Counter[tuple[str, str]] = Counter()
        self.shipped: dict[str, Any] = {}
        #: Request ids that it has seen, and those that it has done.
        self.tags: dict[str, str] = {}
        self.done: dict[str, dict[str, Any]] = {}
        #: What is wrong with the next calls: down, lost (it acts, the reply is lost), refuse.
        self.troubles: list[str] = []

    def call(self, name: str, tag: str, request_id: str, honours: bool) -> dict[str, Any]:
        self.tags[request_id] = tag
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "down":
            raise Transient("down")
        if trouble == "refuse" and request_id not in self.done:
            raise Permanent("refused")
        if not (honours and request_id in self.done):
            self.acts[name, tag] += 1
            self.done[request_id] = {"tag": tag}
        if trouble == "lost":
            raise Transient("the reply is lost")
        return self.done[request_id]


provider = Provider()


@effect("chaos.resend", on_doubt="resend", key_ttl="30d", retry=ONCE, timeout=TIMEOUT)
def resend(tag: str, *, request_id: str) -> dict[str, Any]:
    return provider.call("pay", tag, request_id, honours=True)


@effect(
    "chaos.lookup",
    on_doubt=lookup(lambda request_id: provider.done.get(request_id)),
    retry=ONCE,
    timeout=TIMEOUT,
)
def looked_up(tag: str, *, request_id: str) -> dict[str, Any]:
    return provider.call("pay", tag, request_id, honours=False)


@effect("chaos.park", on_doubt="park", retry=ONCE, timeout=TIMEOUT)
def parked(tag: str, *, request_id: str) -> dict[str, Any]:
    return provider.call("pay", tag, request_id, honours=False)


@effect("chaos.ship", on_doubt="resend", key_ttl="30d", retry=ONCE, timeout=TIMEOUT)
def ship(tag: str, value: Any, *, request_id: str) -> dict[str, Any]:
    provider.shipped.setdefault(tag, value)
    assert provider.shipped[tag] == value, "one request with two answers"
    return provider.call("ship", tag, request_id, honours=True)


class Input(TypedDict):
    tag: str
    ask: bool


class State(Input):
    log: NotRequired[Annotated[list[str], operator.add]]


def _graph(pay: Any) -> Any:
    def pay_once(state: State) -> dict[str, Any]:
        pay(tag=state["tag"])
        return {"log": [f"paid {state['tag']}"]}

    def ask(state: State) -> dict[str, Any]:
        tag = state["tag"]
        answer = interrupt({"tag": tag})
        if not answer["ship"]:
            return {"log": [f"kept {tag} {answer['value']}"]}
        ship(tag=tag, value=answer["value"])
        return {"log": [f"shipped {tag} {answer['value']}"]}

    builder = StateGraph(State, input_schema=Input)
    builder.add_node("pay", pay_once)
    builder.add_node("ask", ask)
    builder.add_edge(START, "pay")
    builder.add_conditional_edges("pay", lambda state: "ask" if state["ask"] else END, ["ask", END])
    builder.add_edge("ask", END)
    return builder.compile()


by_resend = _graph(resend)
by_lookup = _graph(looked_up)
by_park = _graph(parked)
GRAPHS = ("by_resend", "by_lookup", "by_park")
