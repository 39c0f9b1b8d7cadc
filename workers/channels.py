"""Channels: where questions are sent to that nobody looks at, and how each is told.

A channel makes a request out of a card; the notifier sends it, tries again, and remembers.
To add one, write a class like :class:`ChatChannel`, with a constructor that takes the settings,
and name it in FLEET_NOTIFY_ADAPTERS (docs/notifications.md).
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, Self

from infra.errors import SettingsError
from infra.settings import Settings
from infra.webhooks import signed
from producers.wording import words_of

#: Bytes of a payload as JSON.
_LARGEST = 65536
JSON_HEADERS = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Card:
    """A question as a receiver is told of it. Times are ISO 8601; ``link`` answers it once,
    None where FLEET_PUBLIC_URL is not set. ``reason``: ``unattended`` or ``deadline``."""

    notification_id: str
    attempt: int
    reason: str
    sent_at: str
    thread_id: str
    tenant: str
    graph: str
    key: str
    question_id: str
    kind: str
    payload: Any
    response_schema: Any
    asked_at: str
    expires_at: str | None
    link: str | None

    @classmethod
    def of(cls, taken: Mapping[str, Any], link: str | None) -> Self:
        """From what ``fleet.take_notification`` gave."""
        values = {name: taken[name] for name in taken if name != "round"}
        reason = "deadline" if taken["round"] else "unattended"
        return cls(**values, reason=reason, link=link)

    def asks(self) -> str:
        """What it asks, in words: for a line of text."""
        return words_of(self.payload)


@dataclass(frozen=True, slots=True)
class Request:
    """What is POSTed."""

    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: JSON_HEADERS)


class Channel(Protocol):
    """``name`` is what settings, graphs and `fleet notifications` call it by; ``address`` tells
    its receiver from others (kept as a hash only)."""

    name: str
    address: str

    def request(self, card: Card) -> Request:
        """How this channel is told of the question. What it raises counts as a failed attempt."""
        ...


class WebhookChannel:
    """A Standard Webhook: JSON with all of the card, signed."""

    name = "webhook"

    def __init__(self, settings: Settings) -> None:
        self.address = settings.webhook_url or ""
        self._secret = settings.webhook_secret or ""

    def request(self, card: Card) -> Request:
        body = self._body(card)
        at = datetime.fromisoformat(card.sent_at)
        return Request(
            self.address,
            body,
            JSON_HEADERS | signed(self._secret, card.notification_id, body, at),
        )

    def _body(self, card: Card) -> bytes:
        hidden = ("notification_id", "sent_at", "attempt")
        data = {name: getattr(card, name) for name in Card.__slots__ if name not in hidden}
        if len(json.dumps(card.payload)) > _LARGEST:
            data |= {"payload": None, "truncated": True}
        event = {"type": "question.unanswered", "timestamp": card.sent_at, "data": data}
        return json.dumps(event).encode()


class ChatChannel:
    """An incoming webhook as Slack, Mattermost, Rocket.Chat and others have it: a line of text."""

    name = "chat"

    def __init__(self, settings: Settings) -> None:
        self.address = settings.chat_webhook_url or ""

    def request(self, card: Card) -> Request:
        lines = [f"{card.thread_id} waits for an answer: {card.asks()}"]
        if card.expires_at:
            moment = datetime.fromisoformat(card.expires_at)
            lines.append(f"Until {moment:%Y-%m-%d %H:%M} {moment:%Z}.")
        # How such chats mark links and call people.
        text = "\n".join(lines)
        for plain, escaped in ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"):
            text = text.replace(plain, escaped)
        if card.link:
            text += f"\nAnswer: {card.link}"
        return Request(self.address, json.dumps({"text": text}).encode())


def channels(settings: Settings) -> list[Channel]:
    """Those that have an address. Raises SettingsError for an adapter that can't be made, and
    for a name of FLEET_NOTIFY_CHANNELS that is none."""
    made: list[Channel] = [WebhookChannel(settings), ChatChannel(settings)]
    made += [_adapter(path, settings) for path in _listed(settings.notify_adapters)]
    names = [channel.name for channel in made]
    for name in _listed(settings.notify_channels):
        if name not in names:
            raise SettingsError(
                f"FLEET_NOTIFY_CHANNELS names {name!r}, which is no channel.",
                f"Known: {', '.join(names)}.",
            )
    return [channel for channel in made if channel.address]


def told_first(settings: Settings, channel: Channel) -> bool:
    """Whether it is told of questions that nobody looks at, or only where a graph names it."""
    return channel.name in (_listed(settings.notify_channels) or [channel.name])


def _adapter(path: str, settings: Settings) -> Channel:
    module, _, attribute = path.partition(":")
    try:
        made: Channel = getattr(importlib.import_module(module), attribute)(settings)
        _ = made.name, made.address, made.request
    except Exception as exc:
        raise SettingsError(
            f"FLEET_NOTIFY_ADAPTERS names {path}, which can't be used: "
            f"{type(exc).__name__}: {exc}.",
            "It is `package.module:attribute`, a class as docs/notifications.md shows one.",
        ) from None
    return made


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
