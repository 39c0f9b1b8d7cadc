"""Who is not meant: strangers to a thread at every door, and pages of other origins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.routing import APIRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from producers.gateway import app
from producers.gateway.database import Database as GatewayDatabase
from producers.gateway.fleets import Fleets
from tests.gateway.agui_turns import Working, asked, run, write_graphs
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway, problem, token
from tests.harness import Database, eventually
from workers.slot import Slot

EVIL = "https://evil.example"
HIDDEN = "x" * 32


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_graphs(tmp_path, database)


class Asked(NamedTuple):
    """A session of ann's, of the tenant acme, whose thread has asked two questions."""

    session_id: str
    key: str
    question: str
    message: str
    head: str


@pytest.fixture
def anns(guarded: Gateway, slot: Slot, database: Database) -> Iterator[Asked]:
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
#: Routes that are about no thread that a caller could name.
OTHERS = {
    "GET /healthz", "GET /readyz", "GET /threads",
    "GET /sessions", "POST /sessions", "GET /sessions/{session_id}",
    "GET /answer/{token}", "POST /answer/{token}",
    "GET /chat", "GET /chat/", "GET /chat/{name}",
}  # fmt: skip
STRANGERS = [
    {"user": "bob", "tenant": "acme"},
    {"user": "ann"},
    {"user": "ann", "tenant": "other"},
    {"user": "mallory", "tenant": "other", "roles": ["operator"]},
    {"user": "mallory", "roles": ["operator"]},
]


def routes() -> set[str]:
    """`METHOD /path` of all that the gateway serves; its WebSocket is tried by itself."""
    every = [route for module in app._ROUTERS for route in module.router.routes]
    return {
        f"{method} {route.path}"
        for route in every
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def test_no_door_is_forgotten() -> None:
    """Each route is tried below, or is about no thread that a caller names."""
    assert routes() == DOORS.keys() | OTHERS


@contextmanager
def work_done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What doors ask of the servers behind them meanwhile."""
    done: list[str] = []
    call, rows, read = Fleets.call, GatewayDatabase.rows, GatewayDatabase.call

    async def called(self: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
        done.append(getattr(work, "__qualname__", "?"))
        return await call(self, work, *args, **kwargs)

    async def rows_of(self: Any, name: str, /, **args: Any) -> Any:
        if "presence" not in name and "beat" not in name:
            done.append(name)
        return await rows(self, name, **args)

    async def read_by(self: Any, work: Any) -> Any:
        done.append("read")
        return await read(self, work)

    with monkeypatch.context() as patch:
        patch.setattr(Fleets, "call", called)
        patch.setattr(GatewayDatabase, "rows", rows_of)
        patch.setattr(GatewayDatabase, "call", read_by)
        yield done


@pytest.mark.parametrize("who", STRANGERS, ids=lambda who: ",".join(map(str, who.values())))
def test_a_strangers_thread_is_none_at_any_door(
    guarded: Gateway,
    anns: Asked,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    who: dict[str, Any],
) -> None:
    """F134: the same answer to the letter as for a thread that nobody has, by the same work, and
    nothing has changed."""
    before = _all(database)
    doors = [ask for asks in DOORS.values() for ask in asks]
    doors += [] if "roles" in who else BEGINS
    with guarded.client(token(**who)) as client:
        for number, ask in enumerate(doors):
            with work_done(monkeypatch) as work:
                there = ask(client, anns.key, anns)
                worked = work.copy()
                work.clear()
                nowhere = ask(client, HIDDEN, anns)
            problem(there, 404, "unknown_thread")
            assert there.text == nowhere.text.replace(HIDDEN, anns.key), number
            assert _headers(there) == _headers(nowhere), number
            assert worked == work, number
        for path in "/sessions", "/threads":
            assert anns.key not in client.get(path).text
    assert _all(database) == before


def _headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def _all(database: Database) -> list[list[tuple[Any, ...]]]:
    tables = ("threads", "messages", "questions", "sessions", "presence")
    return [database.fetch(f"SELECT * FROM fleet.{t} ORDER BY 1, 2") for t in tables]


@pytest.mark.parametrize("named", ["acme/both:{}", "other/both:{}"])
def test_a_tenant_named_in_a_thread_id_opens_nothing(
    guarded: Gateway, anns: Asked, named: str
) -> None:
    """It is the caller's own, whatever the id says."""
    with guarded.client(token("mallory", tenant="other", roles=["operator"])) as client:
        for key in anns.key, HIDDEN:
            query = {"thread_id": named.format(key)}
            answers = [
                client.get("/agent/state", params=query),
                client.get("/agent/events", params=query),
                client.post("/agent/cancel", json=query),
                client.post("/agent/run", json=asked(query["thread_id"])),
            ]
            for answer in answers:
                problem(answer, 404, "unknown_thread")


@pytest.mark.parametrize("who", STRANGERS, ids=lambda who: ",".join(map(str, who.values())))
def test_a_strangers_session_is_none(
    guarded: Gateway,
    anns: Asked,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    who: dict[str, Any],
) -> None:
    """Over REST and WebSocket, with the id of an event that it has seen too."""
    before = _all(database)
    told: list[Any] = []
    with guarded.client(token(**who)) as client:
        for name in anns.session_id, HIDDEN:
            with work_done(monkeypatch) as work:
                answer = client.get(f"/sessions/{name}")
                told.append([answer.status_code, answer.text, _headers(answer)])
                for more in {}, {"last_seq": anns.head}, {"graph": "both"}:
                    init = {"graph": None, "session_id": name, "token": token(**who), **more}
                    with Page(guarded, **init) as page:
                        told[-1] += [page.closed(), page.frames]
                told[-1].append(work.copy())
    assert told[0] == told[1] and told[0][0] == 404 and told[0][3] == (1008, "unknown_session")
    assert _all(database) == before


@pytest.mark.parametrize("path", sorted(r for r in routes() if not r.startswith("GET ")))
def test_a_foreign_page_changes_nothing_at_any_door(guarded: Gateway, path: str) -> None:
    """F136: 403 before anybody is looked up, though it brings a good token."""
    method, _, url = path.partition(" ")
    key = guarded.key("operator")
    with guarded.client(key, Origin=EVIL) as client:
        answer = client.request(method, url, json={})
        problem(answer, 403, "foreign_origin")
        asks = {"Access-Control-Request-Method": method}
        asks["Access-Control-Request-Headers"] = "Authorization"
        preflight = client.options(url, headers=asks)
    for found in answer, preflight:
        assert "access-control-allow-origin" not in found.headers


def test_a_foreign_page_reads_nothing(gateway: Gateway) -> None:
    """No door lets it see an answer, also where nobody has to sign in."""
    with gateway.client(Origin=EVIL) as client:
        for route in sorted(r for r in routes() if r.startswith("GET ")):
            with client.stream("GET", route.partition(" ")[2]) as answer:
                assert "access-control-allow-origin" not in answer.headers, route


def test_a_cookie_is_no_token(guarded: Gateway) -> None:
    """Browsers send cookies for any page; here they mean nothing, whatever is in them."""
    key = guarded.key("operator")
    cookies = f"token={key}; session={key}; access_token={key}; Authorization=Bearer {key}"
    with guarded.client(Cookie=cookies) as client:
        problem(client.get("/threads"), 401, "unauthorized")
        problem(client.post("/threads/both/A/cancel"), 401, "unauthorized")
        answer = client.get("/healthz")
        assert "set-cookie" not in answer.headers
    with pytest.raises(InvalidStatus) as refused:
        connect(guarded.ws_url, origin=EVIL, additional_headers={"Cookie": cookies})  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403
