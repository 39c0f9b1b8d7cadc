"""Who is not meant: strangers to a thread at every door, and pages of other origins."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from producers.gateway import app
from producers.gateway.database import Database as GatewayDatabase
from producers.gateway.fleets import Fleets
from tests.gateway.agui_turns import asked, write_agui_graphs
from tests.gateway.doors import BEGINS, DOORS, Ask, Asked, anns_thread
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway, problem, token
from tests.harness import Database, eventually
from workers.slot import Slot

EVIL = "https://evil.example"
HIDDEN = "x" * 32


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def anns(guarded: Gateway, slot: Slot, database: Database) -> Iterator[Asked]:
    with anns_thread(guarded, slot, database) as asked:
        yield asked


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


@pytest.mark.parametrize(
    ("tenant", "named"),
    [
        ("other", "acme/both:{}"),
        ("other", "other/both:{}"),
        ("", "acme/both:{}"),
        ("", "/both:{}"),
        ("", "acme/acme/both:{}"),
    ],
)
def test_a_tenant_named_in_a_thread_id_opens_nothing(
    guarded: Gateway, anns: Asked, database: Database, tenant: str, named: str
) -> None:
    """It is the caller's own, whatever the id says; the default one has no right to others."""
    before = _all(database)
    entry = {"interruptId": anns.question, "status": "resolved", "payload": "Monday"}
    answer = {"question_id": anns.question, "value": "Monday"}
    with guarded.client(token("mallory", tenant=tenant, roles=["operator"])) as client:
        for key in anns.key, HIDDEN:
            name = named.format(key)
            answers = [
                client.get("/agent/state", params={"thread_id": name}),
                client.get("/agent/events", params={"thread_id": name}),
                client.post("/agent/cancel", json={"thread_id": name}),
                client.post("/agent/resume", json={"thread_id": name, **answer}),
                client.post("/agent/run", json=asked(name)),
                client.post("/agent/run", json=asked(name, "r2", resume=[entry])),
            ]
            if not named.startswith(f"{tenant}/both"):
                answers.append(client.post("/agent/run", json=asked(name, "r3", ("u1", "hello"))))
            for told in answers:
                if told.status_code == 400:
                    problem(told, 400, "invalid_key")
                else:
                    problem(told, 404, "unknown_thread")
    assert _all(database) == before


@pytest.mark.parametrize("graph", ["acme/both", "both", "/both"])
def test_a_tenant_named_in_a_graph_opens_nothing(
    guarded: Gateway, anns: Asked, database: Database, graph: str
) -> None:
    """The default tenant's threads bear no tenant's name, which one in the graph's would pass
    for."""
    before = _all(database)
    with guarded.client(token("mallory", roles=["operator"])) as client:
        for key in anns.key, f"acme/both:{anns.key}":
            for more in {}, {"messages": [{"id": "u1", "role": "user", "content": "hello"}]}:
                if graph == "both" and more:
                    continue  # that begins one of their own
                body = asked(key) | more
                told = client.post("/agent/run", params={"graph": graph}, json=body)
                assert told.status_code in (400, 404), told.text
            told = client.get(f"/threads/{graph.replace('/', '%2F')}/{key.replace('/', '%2F')}")
            assert told.status_code in (400, 404, 422), told.text
    assert _all(database) == before


@pytest.mark.parametrize("tenant", ["other", ""])
@pytest.mark.parametrize("begin", BEGINS, ids=["rest", "agui"])
def test_another_tenants_role_begins_a_thread_of_its_own_by_the_same_key(
    guarded: Gateway, anns: Asked, database: Database, tenant: str, begin: Ask
) -> None:
    """Under the same message_id too: what it says, is asked and answers is in that one only."""
    theirs = f"acme/both:{anns.key}"
    own = f"{tenant}/both:{anns.key}" if tenant else f"both:{anns.key}"
    before = _of(database, theirs)
    with guarded.client(token("mallory", tenant=tenant, roles=["operator"])) as client:
        assert begin(client, anns.key, anns).status_code in (200, 202)
        place = f"/threads/both/{anns.key}"
        found = eventually(lambda: client.get(f"{place}/questions").json()["questions"])
        assert client.get(place).json()["thread_id"] == own
        answer = f"{place}/questions/{found[0]['question_id']}/answer"
        assert client.post(answer, json={"value": "Monday"}).status_code == 202
        assert client.post(f"{place}/cancel").status_code in (200, 202)
    assert _of(database, theirs) == before
    assert {t for (t,) in database.fetch("SELECT thread_id FROM fleet.threads")} == {theirs, own}


def _of(database: Database, thread: str) -> list[list[tuple[Any, ...]]]:
    """All rows that there are of a thread."""
    tables = ["fleet.threads", "fleet.messages", "fleet.questions", "fleet.events"]
    tables += ["fleet.sessions", "checkpoints", "checkpoint_writes", "checkpoint_blobs"]
    found = "SELECT t::text FROM {} t WHERE thread_id = %s ORDER BY 1"
    return [database.fetch(found.format(t), thread) for t in tables]


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
