"""The notifier: one thread for each channel in a worker's parent process, one leader each.

A question that is open while nobody is connected is sent out once to each channel, after
FLEET_NOTIFY_AFTER seconds. The row is taken before the call and comes due again by itself, so
that a notifier that dies in between sends it again under the same id (receivers know it by
that). What fails is tried again, at the intervals that Standard Webhooks proposes.

It has its own session and never holds up the sweep; a leader that is gone is replaced within
some seconds.
"""

import contextlib
import hashlib
import logging
import random
import secrets
import threading
import time
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from infra import metrics
from infra.errors import FleetError
from infra.failpoints import failpoint
from infra.masking import mask_text
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query
from infra.webhooks import NotDelivered, Reply, post
from workers.channels import Card, Channel, channels, told_first

log = logging.getLogger("fleet.notifier")

#: Seconds after the first attempt, the second, …: some three days in all.
WAITS = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
#: Seconds for which a row is taken: longer than a call, and the look-up of its name, takes.
_LEASE = 60.0
_ELECTION, _TICK = 5.0, 1.0
_LONGEST_PAUSE = 86400.0


def begin(settings: Settings, worker: str) -> "list[Notifier]":
    """Start one for each channel that is set. Raises SettingsError."""
    if settings.chaos_trial is not None:
        # What a trial asks is nobody's to answer.
        return []
    notifiers = [Notifier(settings, channel, worker) for channel in channels(settings)]
    if notifiers and settings.public_url is None:
        log.warning("FLEET_PUBLIC_URL is not set: questions are sent out without a link")
    for notifier in notifiers:
        notifier.start()
    return notifiers


def outcome(reply: Reply, attempt: int, rng: random.Random) -> dict[str, Any]:
    """What ``fleet.notified`` is to write after the attempt (from 1) was answered so."""
    if 200 <= reply.status < 300:
        return {"status": "sent", "code": reply.status}
    if reply.status == 410:
        return {"status": "gone", "code": 410, "error": "the receiver takes no more: 410 Gone"}
    said = f"the receiver said {reply.status}"
    if 300 <= reply.status < 400:
        said += ", and redirects are not followed"
    return failed(said, attempt, rng, reply.retry_after) | {"code": reply.status}


def failed(
    error: str, attempt: int, rng: random.Random, pause: float | None = None
) -> dict[str, Any]:
    """As outcome, of an attempt that did not succeed. pause: seconds that were asked for."""
    if attempt > len(WAITS):
        return {"status": "given_up", "error": f"given up after {attempt} attempts: {error}"}
    delay = max(WAITS[attempt - 1], min(pause or 0.0, _LONGEST_PAUSE)) * rng.uniform(1.0, 1.1)
    return {"status": "waiting", "error": error, "delay": delay}


class Notifier(threading.Thread):
    """Leads its channel, or waits until it may."""

    def __init__(self, settings: Settings, channel: Channel, worker: str = "") -> None:
        super().__init__(name=f"fleet-notifier-{channel.name}", daemon=True)
        self.channel = channel
        self._settings = settings
        self._worker = worker
        self._target = hashlib.sha256(channel.address.encode()).hexdigest()[:32]
        self._first = told_first(settings, channel)
        self._every = min(max(settings.notify_after / 10, 0.25), 5.0)
        self._planned = float("-inf")
        self._conn: psycopg.Connection[Any] | None = None
        self._stop_requested = threading.Event()
        self._random = random.Random()

    def stop(self) -> None:
        """Send nothing more; does not wait for a call that is under way (:meth:`join` does)."""
        self._stop_requested.set()

    def run(self) -> None:
        while not self._stop_requested.is_set():
            pause = _ELECTION
            try:
                if self.lead():
                    self.tick()
                    pause = min(_TICK, self._every)
            except Exception as exc:
                expected = isinstance(exc, psycopg.Error | FleetError)
                log.warning("nobody was told: %s", str(exc).strip(), exc_info=not expected)
                self.drop()
            self._stop_requested.wait(pause)
        self.drop()

    def lead(self) -> bool:
        """Whether this one is its channel's notifier; a candidate keeps no session."""
        if self._conn is not None and not self._conn.closed:
            return True
        name = f"fleet-notifier {self._worker}"[:63]
        self._conn = connect(self._settings.require_postgres(), name)
        if self._run("lead_channel", channel=self.channel.name):
            log.info("this worker tells channel %s", self.channel.name)
            return True
        self.drop()
        return False

    def tick(self) -> int:
        """Plan when it is time to, then send what is due; how many were sent."""
        if self._first and time.monotonic() - self._planned >= self._every:
            self._planned = time.monotonic()
            after = self._settings.notify_after
            self._run(
                "plan_notifications", channel=self.channel.name, target=self._target, after=after
            )
        sent = 0
        while not self._stop_requested.is_set() and (card := self._take()) is not None:
            end = self._deliver(card)
            self._run("notified", id=card.notification_id, attempt=card.attempt, end=Jsonb(end))
            sent += end["status"] == "sent"
        return sent

    def drop(self) -> None:
        """Let go of the session, and with it of the lead."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _take(self) -> Card | None:
        public = self._settings.public_url
        token = secrets.token_urlsafe(24) if public else None
        taken = self._run(
            "take_notification",
            channel=self.channel.name,
            target=self._target,
            hash=None if token is None else hashlib.sha256(token.encode()).digest(),
            lease=_LEASE,
        )
        if taken is None:
            return None
        return Card.of(taken, f"{str(public).rstrip('/')}/answer/{token}" if token else None)

    def _deliver(self, card: Card) -> dict[str, Any]:
        failpoint("notify.before_send", lambda: card.thread_id)
        try:
            request = self.channel.request(card)
            reply = post(
                request.url,
                request.body,
                request.headers,
                private=self._settings.notify_private,
            )
        except NotDelivered as exc:
            end = failed(str(exc), card.attempt, self._random)
        except Exception as exc:
            # A channel's own code; what it says may hold what it was given.
            log.exception("channel %s could not be told", self.channel.name)
            end = failed(mask_text(f"{type(exc).__name__}: {exc}"), card.attempt, self._random)
        else:
            end = outcome(reply, card.attempt, self._random)
        failpoint("notify.after_send", lambda: card.thread_id)
        self._tell(card, end)
        return end

    def _tell(self, card: Card, end: dict[str, Any]) -> None:
        told = "failed" if end["status"] == "waiting" else end["status"]
        metrics.notified(self.channel.name, told)
        if end["status"] == "sent":
            log.info("question of %s was sent to %s", card.thread_id, self.channel.name)
            return
        again = end.get("delay")
        log.warning(
            "question of %s was not sent to %s: %s; %s",
            card.thread_id,
            self.channel.name,
            end["error"],
            "nothing more is sent" if again is None else f"again in {again:.0f} s",
        )

    def _run(self, name: str, **args: Any) -> Any:
        assert self._conn is not None
        with contextlib.closing(self._conn.execute(query(name), args)) as cursor:
            row = cursor.fetchone()
        return row and row[0]
