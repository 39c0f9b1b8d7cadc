"""What a planner may do: the tools, the same for rules and models, and the one to do next."""

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from pydantic import BaseModel, ConfigDict, Field

from graphs.booking.state import LONGEST, MOST_PEOPLE, Half, Phase

Clock = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class _Tool(BaseModel):
    # What is no argument is told, as a wrong one is.
    model_config = ConfigDict(extra="forbid")


class find_rooms(_Tool):
    """Note what the user wants, and find free rooms once date, start and people are known.
    Give only what is new or has changed; the rest stays as it was. Tells what is missing."""

    date: Day | None = Field(None, description="YYYY-MM-DD")
    start: Clock | None = Field(None, description="HH:MM, 24 hours, local time")
    half: Half | None = Field(None, description="of the day, where the user did not say the hour")
    minutes: int | None = Field(None, ge=1, le=LONGEST + 1, description="length; 60 where not said")
    people: int | None = Field(None, ge=1, le=MOST_PEOPLE)
    equipment: list[str] | None = Field(
        None, description="of: projector, whiteboard, video, tv; [] for none"
    )


class ask_user(_Tool):
    """Ask the user for what is missing or unclear, in the user's language."""

    message: str = Field(min_length=1)
    missing: list[str] = Field(default_factory=list, description="of: date, start, people")


class offer_rooms(_Tool):
    """Let the user pick one of the rooms that find_rooms found last."""

    message: str = Field(min_length=1)


class confirm_booking(_Tool):
    """Ask the user to confirm one of the rooms that were found. Needed before book_room."""

    room_id: str
    message: str = Field(min_length=1)


class book_room(_Tool):
    """Book the room that the user has just confirmed."""

    room_id: str


class cancel_request(_Tool):
    """Give the request up, because the user wants that."""


TOOLS: dict[str, type[BaseModel]] = {
    tool.__name__: tool
    for tool in (find_rooms, ask_user, offer_rooms, confirm_booking, book_room, cancel_request)
}
#: Those that ask a person: the question's kind, and the phase in which it waits.
QUESTIONS: dict[str, tuple[str, Phase]] = {
    "ask_user": ("clarify", "COLLECTING_SLOTS"),
    "offer_rooms": ("select_room", "AWAITING_SELECTION"),
    "confirm_booking": ("confirm", "CONFIRMING"),
}


def next_call(messages: Sequence[AnyMessage]) -> ToolCall | None:
    """The first call of the newest message that has no result yet; None where a person has
    said something since."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return next((c for c in message.tool_calls if c["id"] not in answered), None)
        elif isinstance(message, HumanMessage):
            return None
    return None


def call(name: str, call_id: str, **args: Any) -> ToolCall:
    """A call as models make them."""
    return ToolCall(name=name, args=args, id=call_id, type="tool_call")
