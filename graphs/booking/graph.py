"""The booking graph: receive → plan → act → observe → plan → … → the last word.

    receive   takes in what a person has sent, and begins a new request where none is open
    plan      says what to do next, by rules or by a model: a message with a tool call
    act       does it: looks for rooms, asks the person, books
    observe   takes in what came of it

Phases: COLLECTING_SLOTS → AWAITING_SELECTION → CONFIRMING → BOOKED. Each question that is
open fits its phase: clarify, select_room, confirm.
"""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph

from graphs.booking import rooms, rules, texts, tools, words
from graphs.booking.act import act
from graphs.booking.observe import closed, observe
from graphs.booking.state import BookingInput, BookingState, reset
from graphs.booking.view import View, text_of, view_of
from infra.settings import get_settings

#: Plans for one message of the person's; a planner that needs more has lost its way.
MOST_STEPS = 16


def receive(state: BookingState) -> dict[str, Any]:
    """Take in the newest messages: a request's first words, or more of one that goes on. Words
    that were on their way while a question was asked are the reply to it."""
    new, said = _newest(state["messages"]), rooms.said()
    language = words.language_of(text_of(new[-1])) if new else None
    update: dict[str, Any] = {
        **{"now": said.at.isoformat(), "steps": 0, "problem": None},
        "language": language or state.get("language", "en"),
    }
    if state.get("since") is None or state.get("outcome") is not None or said.called_off:
        earlier = state.get("booking") or state.get("earlier")
        return update | reset() | {"since": new[0].id if new else None, "earlier": earlier}
    call = tools.next_call(state["messages"][: len(state["messages"]) - len(new)])
    if call is not None and call["name"] in tools.QUESTIONS:
        update["messages"] = closed(state["messages"], update["language"])
    return update


def plan(state: BookingState) -> dict[str, Any]:
    """Decide what to do next."""
    view = view_of(state)
    steps = state.get("steps", 0) + 1
    if steps > MOST_STEPS:
        message = AIMessage(content=texts.say("stuck", view.language))
        return {"messages": [message], **reset(), "outcome": "cancelled"}
    message = planner()(view)
    return {"messages": [message], "steps": steps, **_noted(state, message)}


def planner() -> Callable[[View], AIMessage]:
    """The model's where one is set (FLEET_MODEL), else the rules'."""
    if get_settings().model is None:
        return rules.decide
    # The providers' packages take a second to load.
    from graphs.booking import model

    return model.decide


def after_plan(state: BookingState) -> str:
    """To the tools, or to the end."""
    return "act" if tools.next_call(state["messages"]) else END


def after_observe(state: BookingState) -> str:
    """On with the same message's further calls, or to the next plan."""
    return "act" if tools.next_call(state["messages"]) else "plan"


def _newest(messages: list[AnyMessage]) -> list[AnyMessage]:
    """What a person has sent since anybody else said something."""
    at = len(messages)
    while at and not isinstance(messages[at - 1], AIMessage | ToolMessage):
        at -= 1
    return [m for m in messages[at:] if isinstance(m, HumanMessage)]


def _noted(state: BookingState, message: AIMessage) -> dict[str, Any]:
    """The phase in which the question that is about to be asked waits, and about which room."""
    call = message.tool_calls[0] if message.tool_calls else None
    if call is None or call["name"] not in tools.QUESTIONS or state.get("outcome") is not None:
        return {}
    noted: dict[str, Any] = {"phase": tools.QUESTIONS[call["name"]][1], "confirmed": None}
    if call["name"] == "confirm_booking":
        noted["room"] = call["args"].get("room_id")
    return noted


def build() -> StateGraph[BookingState, None, BookingInput, BookingState]:
    """The graph, not compiled."""
    builder = StateGraph(BookingState, input_schema=BookingInput)
    builder.add_node("receive", receive)
    builder.add_node("plan", plan)
    builder.add_node("act", act)
    builder.add_node("observe", observe)
    builder.add_edge(START, "receive")
    builder.add_edge("receive", "plan")
    builder.add_conditional_edges("plan", after_plan, ["act", END])
    builder.add_edge("act", "observe")
    builder.add_conditional_edges("observe", after_observe, ["act", "plan"])
    return builder


graph = build().compile()
