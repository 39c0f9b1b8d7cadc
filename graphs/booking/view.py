"""What a planner is shown: the present request and nothing of those before it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from langchain_core.messages import AnyMessage

from graphs.booking.state import BookingState, Language, Phase, Slots
from graphs.dialogue import repaired
from infra.settings import get_settings


@dataclass(frozen=True, slots=True)
class View:
    """``messages``: those of this request, oldest first, results right behind their calls.
    ``state``: all that belongs to it. ``now``: when the person's latest message was accepted,
    in the rooms' time zone."""

    messages: list[AnyMessage]
    state: BookingState
    now: datetime

    @property
    def language(self) -> Language:
        return self.state.get("language", "en")

    @property
    def phase(self) -> Phase:
        return self.state.get("phase", "COLLECTING_SLOTS")

    @property
    def slots(self) -> Slots:
        return self.state.get("slots", {})


def view_of(state: BookingState) -> View:
    """The view of a state that has had its message received."""
    now = datetime.fromisoformat(state["now"])
    return View(repaired(_since(state)), state, now.astimezone(zone()))


def zone() -> ZoneInfo:
    """The rooms' time zone."""
    return ZoneInfo(get_settings().booking_zone)


def text_of(message: AnyMessage) -> str:
    """A message's text."""
    content: Any = message.content
    return content if isinstance(content, str) else str(message.text)


def _since(state: BookingState) -> list[AnyMessage]:
    messages, since = state["messages"], state.get("since")
    first = next((n for n, m in enumerate(messages) if since is not None and m.id == since), None)
    return [] if first is None else messages[first:]
