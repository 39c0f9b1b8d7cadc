"""A conversation with the booking assistant, turn by turn in the test's own process."""

from typing import Any

from psycopg.rows import dict_row

from producers import Fleet
from producers.past.state import state_of
from tests.harness import Database
from workers.drain import drain
from workers.slot import Slot

#: A Monday; the database's clock is moved there, and goes on.
NOW = "2030-06-03T09:00:00+00:00"
#: All that a request needs; Plum (R3) is the first room.
WISH = {"en": "a room for 8 tomorrow at 2pm", "zh": "明天下午两点，8个人"}


def at(database: Database, time: str) -> None:
    """Move the database's clock."""
    database.fetch("SELECT fleet.move_clock(%s::timestamptz - statement_timestamp())", time)


class Talk:
    """One thread of the assistant, and what a person says in it."""

    def __init__(self, slot: Slot, fleet: Fleet, database: Database, key: str = "b1") -> None:
        self.slot, self.fleet, self.database, self.key = slot, fleet, database, key
        self.thread_id = f"booking:{key}"

    def say(self, text: str, **given: Any) -> "Talk":
        """A message: the first begins the thread, later ones answer or go on."""
        message = {"messages": [{"role": "user", "content": text}]}
        if (
            self.database.value("SELECT 1 FROM fleet.threads WHERE thread_id = %s", self.thread_id)
            is None
        ):
            self.fleet.submit("booking", self.key, message, **given)
        elif self.questions():
            return self.answer(text)
        else:
            self.fleet.send(self.thread_id, message, **given)
        return self.run()

    def answer(self, value: Any) -> "Talk":
        """The answer to the one open question."""
        [question] = self.questions()
        self.fleet.answer(self.thread_id, question.question_id, value)
        return self.run()

    def run(self) -> "Talk":
        """Do what is due."""
        drain(self.slot, self.thread_id)
        return self

    def questions(self) -> list[Any]:
        return [*self.fleet.status(self.thread_id).questions]

    @property
    def asked(self) -> dict[str, Any]:
        """What the one open question asks."""
        [question] = self.questions()
        payload: dict[str, Any] = question.payload
        assert question.kind == payload["kind"]
        return payload

    @property
    def kind(self) -> str | None:
        """Of the open question; None where none is open."""
        return self.asked["kind"] if self.questions() else None

    @property
    def state(self) -> dict[str, Any]:
        """The values of the newest checkpoint, JSON-plain."""
        with self.database.connect(row_factory=dict_row) as conn:
            found = state_of(conn, self.fleet.status(self.thread_id))
        values: dict[str, Any] = found["state"]
        return values

    def texts(self, kind: str) -> list[str]:
        """What was said so far, by messages of this type that have a text."""
        return [m["content"] for m in self.state["messages"] if m["type"] == kind and m["content"]]

    def bookings(self) -> list[tuple[Any, ...]]:
        """(room, first hour, minutes, people) of all bookings, oldest first."""
        return self.database.fetch(
            "SELECT room_id, to_char(lower(during) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'),"
            " extract(epoch FROM upper(during) - lower(during))::int / 60, people"
            " FROM booking.bookings JOIN booking.rooms USING (room_no) ORDER BY booking_no"
        )
