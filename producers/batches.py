"""Accepting many starts: checked together, then in transactions of up to 500.

Acceptors of a thread hold its lock until their transaction ends, so the starts are
taken in the order of thread_id (two calls can't wait for each other), and a transaction
takes no more of them than Postgres' lock table bears.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import psycopg

from . import queries
from .errors import InvalidPayload, MessageConflict, OutcomeUnknown, ProducerError
from .inputs import InputSchemas
from .messages import Message, Start, built, canonical_hash, canonical_json
from .refusals import refusal
from .sessions import Sessions
from .surroundings import failpoint

BATCH = 500

#: What `submit_many` takes: a Start, its fields by name, or (graph, key, input).
Item: TypeAlias = Start | Mapping[str, Any] | tuple[str, str, Mapping[str, Any]]
# A start with its place in the call.
_Placed: TypeAlias = tuple[int, Start]

_ACCEPTING = ("accepted", "duplicate", "existing")


def argument(message: Message, *, notify: bool) -> str:
    """What fleet.accept takes, as JSON text."""
    return canonical_json(message.accept_args(notify=notify))


def place_of(message: Message) -> str:
    """Where a failpoint is met: the thread and the message."""
    return f"{message.thread_id}/{message.message_id}"


def starts_of(items: Iterable[Item], tenant: str) -> list[Start]:
    """The items as messages; the error of a bad one names its index."""
    starts: list[Start] = []
    seen: dict[tuple[str, str], str] = {}
    for index, item in enumerate(items):
        try:
            start = _start(item, tenant)
            known = seen.setdefault(
                (start.thread_id, start.message_id), canonical_hash(start.payload)
            )
            if known != canonical_hash(start.payload):
                raise MessageConflict(
                    f"{start.thread_id} has a message '{start.message_id}' with another payload "
                    "earlier in this call.",
                    thread_id=start.thread_id,
                    message_id=start.message_id,
                )
        except ProducerError as error:
            error.index = index
            raise
        starts.append(start)
    return starts


def _start(item: Item, tenant: str) -> Start:
    if isinstance(item, Start):
        if item.tenant in ("", tenant):
            return item.model_copy(update={"tenant": tenant})
        raise InvalidPayload(
            f"The start is of tenant '{item.tenant}', the client of '{tenant}'.",
            "Use a Fleet of that tenant.",
        )
    if isinstance(item, Mapping):
        return built(Start, **{"tenant": tenant, **{str(k): v for k, v in item.items()}})
    if isinstance(item, tuple) and len(item) == 3:
        graph, key, payload = item
        return built(Start, tenant=tenant, graph=graph, key=key, input=payload)
    raise InvalidPayload(
        f"An item is of type {type(item).__name__}.",
        "Give (graph, key, input), the fields by name, or a Start.",
    )


def accept_all(
    sessions: Sessions, schemas: InputSchemas, starts: Sequence[Start], *, notify: bool
) -> list[dict[str, Any]]:
    """What fleet.accept said of each, in the order given; raises for the first refused."""
    placed = sorted(enumerate(starts), key=lambda p: p[1].thread_id)
    batches = [placed[at : at + BATCH] for at in range(0, len(placed), BATCH)]
    sessions.run(lambda conn: _check(conn, schemas, starts), reads=True)
    if len(batches) > 1:
        sessions.run(lambda conn: _foresee(conn, placed), reads=True)
    found: dict[int, dict[str, Any]] = {}
    for batch in batches:
        try:
            accepted = sessions.run(partial(_accept, batch=batch, notify=notify))
        except ProducerError as error:
            if isinstance(error, OutcomeUnknown):
                error.hint = (
                    "It is not known whether its items were accepted; send them again with the "
                    "same message_ids, which is safe."
                )
            if found:
                error.hint = (
                    f"{len(found)} item(s) of the call were accepted before it; sending all of "
                    f"them again with the same message_ids is safe. {error.hint}"
                )
            raise
        found.update(zip((index for index, _ in batch), accepted, strict=True))
    return [found[index] for index in range(len(starts))]


def foresee(sessions: Sessions, schemas: InputSchemas, starts: Sequence[Start]) -> None:
    """Raise what accept_all would, as far as it can be known before; nothing is written."""
    known = sessions.run(lambda conn: queries.rows(conn, "graph_names"), reads=True)
    for index, start in enumerate(starts):
        if start.graph not in known:
            _refuse((index, start), {"outcome": "unknown_graph", "known": known})
    sessions.run(lambda conn: _check(conn, schemas, starts), reads=True)
    placed = list(enumerate(starts))
    sessions.run(lambda conn: _foresee(conn, placed), reads=True)


def _check(conn: psycopg.Connection[Any], schemas: InputSchemas, starts: Sequence[Start]) -> None:
    for index, start in enumerate(starts):
        try:
            schemas.check(conn, start)
        except ProducerError as error:
            error.index = index
            raise


def _foresee(conn: psycopg.Connection[Any], placed: Sequence[_Placed]) -> None:
    """Refuse before the first of several transactions what the last would refuse."""
    asked = [
        {
            "n": n,
            "thread_id": start.thread_id,
            "message_id": start.message_id,
            "payload_hash": canonical_hash(start.payload),
            "on_existing": start.on_existing,
            "force": start.force,
        }
        for n, (_, start) in enumerate(placed)
    ]
    if found := queries.row(conn, "refused_starts", messages=json.dumps(asked)):
        _refuse(placed[found["n"]], found)


def _accept(
    conn: psycopg.Connection[Any], batch: Sequence[_Placed], notify: bool
) -> list[dict[str, Any]]:
    messages = f"[{','.join(argument(start, notify=notify) for _, start in batch)}]"
    with conn.transaction():
        found = queries.rows(conn, "accept_many", messages=messages)
        for place, said in zip(batch, found, strict=True):
            if said["outcome"] not in _ACCEPTING:
                _refuse(place, said)
        failpoint("accept.before_commit", lambda: place_of(batch[0][1]))
    failpoint("accept.after_commit", lambda: place_of(batch[0][1]))
    return found


def _refuse(place: _Placed, said: dict[str, Any]) -> None:
    index, start = place
    error = refusal(start, said)
    error.index = index
    raise error
