"""What a person has said with a message of the mailbox, as the `received` event shows it."""

from dataclasses import dataclass
from typing import Any

from graphs.chat_messages import message_data
from workers.claimed import Claimed


@dataclass(frozen=True, slots=True)
class Received:
    """text: of the last message of the input, where that is a person's; None: nothing that
    can be shown. said_as: its id in the conversation; the mail's where it came without one.
    now: told by this claim; an earlier one may have left out the text, or taken it back."""

    message_id: str
    text: str | None = None
    said_as: str = ""
    now: bool = True

    @classmethod
    def of(cls, claimed: Claimed, channel: str) -> "Received":
        given = claimed.payload.get(channel) if claimed.kind in ("start", "input") else None
        if isinstance(given, list):
            given = given[-1] if given else None
        said = _data(given)
        name = claimed.message_id
        if said.get("role") != "user" or not said.get("text"):
            return cls(name)
        now = not claimed.received
        return cls(name, said["text"], str(said["message_id"] or name), now)


def _data(given: Any) -> dict[str, Any]:
    return (None if given is None else message_data(given)) or {}
