"""The rooms and their bookings, in the fleet's own database (schema ``booking``).

One session per process, opened at first use. Booking is an effect: its request id is unique
in the table, and an exclusion constraint lets no two bookings of a room overlap.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired

import psycopg
from psycopg.rows import dict_row
from typing_extensions import TypedDict

from graphs.booking.state import Candidate, Language, Slot
from graphs.effects import Transient, effect
from graphs.errors import EffectOutsideTurn
from graphs.ledger import current_turn
from graphs.turn import Turn
from infra.errors import PostgresUnavailable
from infra.postgres import connect
from infra.settings import get_settings
from infra.sql import query

#: Rooms that are offered at once.
MOST = 5
#: Seconds that one statement may take.
TIMEOUT = 10.0

_lock = threading.Lock()
_session: tuple[tuple[int, str], psycopg.Connection[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """The message that the running turn is about; ``at`` is its acceptance. ``called_off``:
    the thread was cancelled before it."""

    at: datetime
    message_id: str
    kind: str
    called_off: bool = False


class Unanswerable(Exception):
    """The database refuses these values: out of its bounds, or against a constraint."""


class Booked(TypedDict):
    """What became of a booking: its id, or None and ``reason``: the room is taken by now, or the
    database refused the values. (A result without a reason is an older one: taken.)"""

    booking_id: str | None
    reason: NotRequired[Literal["taken", "refused"]]


def said() -> Said:
    """The running turn's message. So "tomorrow" is counted from when it was said: a turn
    that is late, or runs again, counts from the same day."""
    turn = _turn()
    rows = _rows("booking_said", {"thread_id": turn.thread_id, "seq": turn.message_seq})
    if not rows:
        raise Transient(f"message {turn.message_seq} of {turn.thread_id} is not there")
    return Said(**rows[0])


def thread_id() -> str:
    """Of the running turn."""
    return _turn().thread_id


def _turn() -> Turn:
    ledger = current_turn.get()
    if ledger is None:
        raise EffectOutsideTurn("the booking assistant runs in a turn of the fleet only")
    return ledger.turn


def free_rooms(
    slot: Slot, people: int, equipment: list[str], language: Language
) -> list[Candidate]:
    """Rooms that are free all the time and large enough, the smallest first."""
    wanted = {**slot, "people": people, "equipment": equipment, "most": MOST}
    return [
        Candidate(
            id=row["room_id"],
            name=row[f"name_{language}"],
            names=[row["name_en"], row["name_zh"]],
            capacity=row["capacity"],
            equipment=row["equipment"],
            slot=slot,
        )
        for row in _rows("booking_free_rooms", wanted)
    ]


def largest(equipment: list[str]) -> int:
    """How many people the largest room with that equipment holds; 0: there is none."""
    return int(_rows("booking_largest", {"equipment": equipment})[0]["coalesce"])


@effect("booking.book_room", on_doubt="resend", key_ttl="3650d", timeout=TIMEOUT)
def book_room(
    room_id: str, start: str, end: str, people: int, thread_id: str, *, request_id: str
) -> Booked:
    """Book a room once per request id; times are ISO with their offset."""
    wanted = {
        "request_id": request_id,
        "room_id": room_id,
        "start": start,
        "end": end,
        "people": people,
        "thread_id": thread_id,
    }
    try:
        made = _rows("booking_book", wanted) or _rows("booking_of_request", wanted)
    except Unanswerable:
        return Booked(booking_id=None, reason="refused")
    if not made:
        return Booked(booking_id=None, reason="taken")
    return Booked(booking_id=f"B{made[0]['booking_no']}")


def _rows(name: str, args: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A named query's rows; one that writes is called by an effect only.

    Raises Transient where Postgres does not answer, Unanswerable where it refuses the values.
    """
    with _lock:
        try:
            conn, fresh = _kept()
            try:
                return conn.execute(query(name), args).fetchall()  # fleet: reads
            except psycopg.OperationalError:
                # A session that was kept may have died since; no query here is harmed by
                # being sent again.
                if fresh or not conn.broken:
                    raise
                return _kept()[0].execute(query(name), args).fetchall()  # fleet: reads
        except (psycopg.OperationalError, PostgresUnavailable) as exc:
            raise Transient(f"the rooms' database does not answer: {exc}") from exc
        except (psycopg.DataError, psycopg.IntegrityError, UnicodeError) as exc:
            raise Unanswerable(str(exc)) from exc


def _kept() -> tuple[psycopg.Connection[Any], bool]:
    """The process's session, and whether it was opened just now."""
    global _session
    whose = (os.getpid(), get_settings().require_postgres())
    if _session is not None and _session[0] == whose and not _session[1].closed:
        return _session[1], False
    conn: psycopg.Connection[Any] = connect(whose[1], "fleet-booking", row_factory=dict_row)
    # An effect's call has to be over by its timeout.
    limit = {"name": "statement_timeout", "value": f"{TIMEOUT * 800:.0f}"}
    conn.execute(query("set_for_session"), limit)  # fleet: reads
    _session = (whose, conn)
    return conn, True
