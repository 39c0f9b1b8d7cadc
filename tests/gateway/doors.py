"""All doors to a thread, and one behind them: ann's, of the tenant acme."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.gateway.agui_turns import Working, asked, run
from tests.gateway.serving import Gateway, token
from tests.harness import Database, eventually
from workers.slot import Slot


class Asked(NamedTuple):
    """A session of ann's, of the tenant acme, whose thread has asked two questions."""

    session_id: str
    key: str
    question: str
    message: str
    head: str


@contextmanager
def anns_thread(guarded: Gateway, slot: Slot, database: Database) -> Iterator[Asked]:
    """Its mail is worked on inside of the `with`."""
    with guarded.client(token("ann", tenant="acme")) as ann, Working(slot, database):
        session = ann.post("/sessions", json={"graph": "both"}).json()
        thread = session["thread_id"]
        told = run(ann, asked(thread, "r1", ("u1", "a room")))[-1]
        (question, _) = [i["id"] for i in told["outcome"]["interrupts"]]
        state = ann.get("/agent/state", params={"thread_id": thread}).json()
        key = thread.rpartition(":")[2]
        left = """SELECT bool_and(last_seen_at > created_at)
            AND NOT EXISTS (SELECT FROM fleet.presence) FROM fleet.sessions"""
        eventually(lambda: database.value(left))
        yield Asked(session["session_id"], key, question, "u1", state["last_event_id"])


Ask = Callable[[httpx.Client, str, Asked], httpx.Response]


def _get(path: str, **headers: str) -> Ask:
    return lambda client, key, a: client.get(
        path.format(**a._asdict() | {"key": key, "thread": f"both:{key}"}),
        headers={name: value.format(**a._asdict()) for name, value in headers.items()},
    )


def _post(path: str, body: Any = None, **headers: str) -> Ask:
    def ask(client: httpx.Client, key: str, a: Asked) -> httpx.Response:
        url = path.format(**a._asdict() | {"key": key})
        given = body(f"both:{key}", a) if callable(body) else body
        return client.post(url, json=given, headers=headers)

    return ask


def _resumed(thread: str, a: Asked) -> Any:
    entry = {"interruptId": a.question, "status": "resolved", "payload": "Monday"}
    return asked(thread, "r2", resume=[entry])


_THREAD = "/threads/both/{key}"
_INPUT = {"kind": "input", "input": {"messages": []}}
#: By route: whatever reads a thread or acts on it, where it does not begin one.
DOORS: dict[str, list[Ask]] = {
    "GET /threads/{graph}/{key}": [_get(_THREAD), _get(f"{_THREAD}?state=false")],
    "GET /threads/{graph}/{key}/history": [_get(f"{_THREAD}/history")],
    "GET /threads/{graph}/{key}/messages": [
        _get(f"{_THREAD}/messages"),
        _get(f"{_THREAD}/messages?before={{message}}"),
    ],
    "GET /threads/{graph}/{key}/questions": [_get(f"{_THREAD}/questions")],
    "POST /threads/{graph}/{key}/questions/{question}/answer": [
        _post(f"{_THREAD}/questions/{{question}}/answer", {"value": "Monday"}),
        _post(f"{_THREAD}/questions/none/answer", {"value": "Monday"}),
    ],
    "POST /threads/{graph}/{key}/cancel": [_post(f"{_THREAD}/cancel")],
    "POST /threads/{graph}/{key}/messages": [
        _post(f"{_THREAD}/messages", _INPUT, **{"Idempotency-Key": "m1"}),
        # Under the name of a message that is there.
        _post(f"{_THREAD}/messages", _INPUT, **{"Idempotency-Key": "u1"}),
    ],
    "GET /agent/state": [_get("/agent/state?thread_id={thread}")],
    "GET /agent/events": [
        _get("/agent/events?thread_id={thread}"),
        _get("/agent/events?thread_id={thread}&from_event_id={head}"),
        _get("/agent/events?thread_id={thread}", **{"Last-Event-ID": "{head}"}),
    ],
    "POST /agent/resume": [
        _post(
            "/agent/resume",
            lambda t, a: {"thread_id": t, "question_id": a.question, "value": "Monday"},
        )
    ],
    "POST /agent/cancel": [_post("/agent/cancel", lambda t, a: {"thread_id": t})],
    "POST /agent/run": [
        _post("/agent/run", lambda t, a: asked(t, "r2")),
        _post("/agent/run?graph=both", lambda t, a: asked(t.partition(":")[2], "r2")),
        _post("/agent/run", _resumed),
    ],
}
#: What begins a thread: a user without a role may that in sessions of theirs only. A role of
#: another tenant begins one of its own by the same key.
BEGINS: list[Ask] = [
    _post(
        f"{_THREAD}/messages", {"input": {"messages": []}, "on_existing": "send"},
        **{"Idempotency-Key": "u1"},
    ),
    _post("/agent/run", lambda t, a: asked(t, "r2", ("u1", "a room"))),
]  # fmt: skip
