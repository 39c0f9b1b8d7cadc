"""The checker: judges what a chaos run has left, by the provider's books, Postgres, the broker
and the log of what was sent.

It trusts nothing that the fleet says of itself where somebody else can tell: effects are
counted in the provider's books, messages in the log of who sent them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from infra.sql import query

from . import rest
from .books import Act, Expected, Sent
from .chains import forks, mixed_runs, states
from .findings import Finding, Kind, Report

if TYPE_CHECKING:
    from redis import Redis

#: Mail behind a message that a person must see to waits.
_HELD_UP = ("failed", "in_doubt", "incompatible")


def check(
    conn: psycopg.Connection[Any],
    broker: "Redis | None",
    *,
    sent: Sequence[Sent],
    expected: Mapping[str, Expected],
    acts: Iterable[Act],
    effects: Mapping[str, int],
    groups: Collection[int] = (),
    abandoned: int = 0,
) -> Report:
    """Judge a run that has come to its end.

    conn: a session in autocommit mode. expected: by thread_id. acts: the provider's books.
    effects: how often each business key is to be in them; keys that are not named are not
    to be there. groups: process groups that the run has started. abandoned: wake-ups that
    killed workers may have had in hand; the broker gives them out again in an hour.
    """
    given = list(acts)
    found = [
        *_messages(conn, sent, expected),
        *_effects(conn, given, effects),
        *_threads(conn, expected),
        *_rows("forked", forks(conn)),
        *_rows("stale_write", conn.execute(query("check_stale")).fetchall()),
        *_rows("stale_write", mixed_runs(conn, sent)),
        *_order(conn),
        *_rows("inconsistent", conn.execute(query("check_halves")).fetchall()),
        *rest.left(conn, broker, groups, abandoned),
    ]
    looked_at = {
        "messages": len(sent),
        "threads": len(expected),
        "effects": len(given),
        "processes": len(groups),
    }
    return Report(sorted(set(found)), looked_at)


def _rows(kind: Kind, rows: Iterable[Sequence[Any]]) -> Iterator[Finding]:
    """(thread, detail) each."""
    for thread, detail in rows:
        yield Finding(kind, thread, detail)


def _messages(
    conn: psycopg.Connection[Any], sent: Sequence[Sent], expected: Mapping[str, Expected]
) -> Iterator[Finding]:
    rows = conn.execute(query("check_messages")).fetchall()
    there: dict[tuple[str, str], list[tuple[int, str, str | None]]] = {}
    for thread, seq, message, status, error in rows:
        there.setdefault((thread, message), []).append((seq, status, error))
    for one in sent:
        stored = there.pop((one.thread_id, one.message_id), [])
        if not stored and one.accepted:
            yield Finding("lost", one.thread_id, f"message {one.message_id} was accepted")
        if len(stored) > 1:
            seqs = ", ".join(str(seq) for seq, *_ in stored)
            yield Finding(
                "duplicate_message", one.thread_id, f"message {one.message_id} is there as {seqs}"
            )
        held = expected.get(one.thread_id, Expected()).status in _HELD_UP
        for seq, status, error in stored:
            if status != one.end and not held:
                said = f"message {seq} is {status}, not {one.end}: {error or 'no error'}"
                yield Finding("unfinished", one.thread_id, said)
    for thread, message in there:
        yield Finding("unknown_message", thread, f"nobody sent message {message}")


def _effects(
    conn: psycopg.Connection[Any], acts: Sequence[Act], effects: Mapping[str, int]
) -> Iterator[Finding]:
    by_key: dict[str, list[str]] = {}
    for act in acts:
        by_key.setdefault(act.key, []).append(act.request_id)
    for key in sorted(effects.keys() | by_key.keys()):
        ids, wanted = by_key.get(key, []), effects.get(key, 0)
        said = f"{key}: {len(ids)} in the provider's books, not {wanted}"
        if len(ids) < wanted:
            yield Finding("missing_effect", "", said)
        elif len(ids) > wanted:
            said += f" ({', '.join(f'{i} {n} times' for i, n in Counter(ids).items())})"
            yield Finding("duplicate_effect" if wanted else "unexpected_effect", "", said)
    rows = conn.execute(query("check_effects")).fetchall()
    known = {request for _, request, state in rows if state == "done"}
    for act in acts:
        if act.request_id not in known:
            said = f"{act.key}: the ledger has no result of {act.request_id}"
            yield Finding("unrecorded_effect", "", said)


def _threads(conn: psycopg.Connection[Any], expected: Mapping[str, Expected]) -> Iterator[Finding]:
    rows = conn.execute(query("check_threads")).fetchall()
    found = {thread: (status, error) for thread, _, status, error in rows}
    for thread, wanted in expected.items():
        status, error = found.get(thread, ("missing", None))
        if status != wanted.status:
            said = f"it is {status}, not {wanted.status}: {error or 'no error'}"
            yield Finding("wrong_status", thread, said)
    at = {thread: checkpoints for thread, checkpoints, *_ in rows}
    yield from (Finding("state_differs", *pair) for pair in states(conn, expected, at))


def _order(conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    for thread, seq, before in conn.execute(query("check_order")).fetchall():
        yield Finding("out_of_order", thread, f"message {seq} did not come after {before}")
