"""Graphs as those had them who met the faults of docs/faults.md.

asking    an agent's three tool calls in one message: two ask before they notify, one does not
bare      a refund by a node that calls the shop with no word of ours
stuck     an agent whose tool fails, of a model that refuses a call without its result
failing   a node that fails with a megabyte in its frame
large     a state of 20 MB, and then a refund
typed     a state of an enum, a dataclass and a model, one within the other, and a question
"""

import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect
from tests.graphs.documented.scripted import Scripted, calls


def _one(node: Any, schema: Any) -> Any:
    builder = StateGraph(schema)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


# asking: input {"messages": user}


notify = effect("faults.notify", timeout=shop.TIMEOUT)(shop.post_notification)


@tool
def ask_and_tell(user_id: str, text: str) -> str:
    """Tell the user something that a person has allowed."""
    said = interrupt({"about": text})
    notify.at(text)(user_id=user_id, text=f"{text} {said}")
    return str(said)


@tool
def tell(user_id: str, text: str) -> str:
    """Tell the user something."""
    notify.at(text)(user_id=user_id, text=text)
    return "told"


def _answer(messages: list[BaseMessage]) -> str | AIMessage:
    if any(isinstance(message, ToolMessage) for message in messages):
        return "done"
    about = [("ask_and_tell", "first"), ("ask_and_tell", "second"), ("tell", "third")]
    user = messages[0].text
    return calls(*((name, {"user_id": user, "text": text}, text) for name, text in about))


asking = create_agent(Scripted(answer=_answer), [ask_and_tell, tell])


# stuck: input {"messages": text}


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("of no use")


def _strict(messages: list[BaseMessage]) -> str | AIMessage:
    """As providers are: each call is followed by its result."""
    asked = {call["id"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
    told = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    if asked - told:
        raise ValueError(f"400: no result of the calls {sorted(asked - told)}")
    return f"seen {len(messages)}" if told else calls(("fail", {}, "call-1"))


stuck = create_agent(Scripted(answer=_strict), [fail])


# bare, large: input {"order_id"}


class Order(TypedDict, total=False):
    order_id: str
    much: str


def _refund_bare(state: Order) -> Order:
    amount = Decimal("141.50")
    shop.post_refund(state["order_id"], amount, request_id=f"made-up-{uuid.uuid4()}")
    return {}


bare = _one(_refund_bare, Order)


@effect("faults.refund", timeout=shop.TIMEOUT)
def refund(order_id: str, amount: Decimal, *, request_id: str) -> shop.Receipt:
    return shop.post_refund(order_id, amount, request_id=request_id)


def _much(state: Order) -> Order:
    return {"much": "x" * 20_000_000}


def _refund(state: Order) -> Order:
    refund(state["order_id"], Decimal("141.50"))
    return {}


_large = StateGraph(Order)
_large.add_node("much", _much)
_large.add_node("refund", _refund)
_large.add_edge(START, "much")
_large.add_edge("much", "refund")
_large.add_edge("refund", END)
large = _large.compile()


# failing: input {}


def _fail(state: Order) -> Order:
    held = bytearray(1_000_000)
    raise ValueError(f"with {len(held)} bytes in its frame")


failing = _one(_fail, Order)


# typed: input {}


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    colours: list[Colour]


@dataclass
class Person:
    name: str
    favourite: Colour
    addresses: list[Address] = field(default_factory=list)


class Typed(TypedDict, total=False):
    colour: Colour
    person: Person
    address: Address
    seen: str


def _make(state: Typed) -> Typed:
    address = Address(street="A", colours=[Colour.RED])
    return {"colour": Colour.RED, "person": Person("P", Colour.RED, [address]), "address": address}


def _look(state: Typed) -> Typed:
    interrupt("go on?")
    return {"seen": repr([state["colour"], state["person"], state["address"]])}


_typed = StateGraph(Typed)
_typed.add_node("make", _make)
_typed.add_node("look", _look)
_typed.add_edge(START, "make")
_typed.add_edge("make", "look")
_typed.add_edge("look", END)
typed = _typed.compile()
