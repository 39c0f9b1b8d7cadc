"""A session that gives up on a Postgres which has stopped answering.

A stopped server (SIGSTOP, a frozen host behind a proxy) keeps its connections open and
its kernel acknowledges what is sent, so neither keepalives nor tcp_user_timeout see
anything, and statement_timeout is the server's own to keep. The clock is ours, then.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

#: Seconds for an answer; longer than fleet.accept waits for another transaction's lock.
ANSWER_WITHIN = 15.0


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time; whether it did what it was asked is not known."""


class PatientConnection(psycopg.Connection[Any]):
    """Closes itself and raises NoAnswer when one statement takes longer than `answer_within`."""

    answer_within = ANSWER_WITHIN

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(_within(gen, self.answer_within), *args, **kwargs)
        except NoAnswer:
            # At once: what would end a transaction in order would wait for the server again.
            self.close()
            raise


def _within(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The generator, until the time is up. psycopg resumes it ten times a second at least."""
    deadline = time.monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                raise NoAnswer(f"no answer within {seconds:g} s")
            state = gen.send(ready)
    except StopIteration as done:
        result: T = done.value
        return result
