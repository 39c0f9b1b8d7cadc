"""The messages of a chat, page by page, from the newest checkpoint."""

from dataclasses import dataclass
from typing import Any

import psycopg

from graphs.chat_messages import conversation, messages_data

from ..errors import ProducerError
from ..status import ThreadStatus
from .state import state_of


class UnknownMessage(ProducerError):
    """The chat has no message of this id. Data: thread_id, message_id."""

    code = "unknown_message"
    default_hint = "It may have been removed; begin at the newest page again."


@dataclass(frozen=True)
class Page:
    """Messages, oldest first, as of `graphs.chat_messages`; earlier: how many came before."""

    messages: list[dict[str, Any]]
    earlier: int


def page(
    conn: psycopg.Connection[Any], status: ThreadStatus, before: str | None, limit: int
) -> Page:
    """The newest so many of the messages before this one. Raises UnknownMessage."""
    state = state_of(conn, status)["state"]
    channel = conversation(state)
    kept = state.get(channel)
    found = list(messages_data(kept if isinstance(kept, list) else [], channel))
    end = len(found)
    if before is not None:
        places = [n for n, message in enumerate(found) if message.get("message_id") == before]
        if not places:
            raise UnknownMessage(
                f"{status.thread_id} has no message of that id.",
                thread_id=status.thread_id,
                message_id=before,
            )
        end = places[0]
    start = max(0, end - limit)
    return Page(found[start:end], start)
