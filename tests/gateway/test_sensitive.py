"""Sensitive sessions: who left them alone signs in again before any door gives them anything."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx import Response

from tests.gateway.agui_turns import streaming, write_agui_graphs
from tests.gateway.doors import BEGINS, DOORS, Asked, anns_thread
from tests.gateway.pages import Page
from tests.gateway.serving import JWT, Gateway, problem, token
from tests.harness import Broker, Database, eventually
from workers.slot import Slot

#: What may be said of a thread to who may act on it: the message or the answer is there before.
TOLD = {"answer_refused", "message_conflict"}
SEEN = "SELECT last_seen_at FROM fleet.sessions WHERE session_id = %s"


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def anns(guarded: Gateway, slot: Slot, database: Database) -> Iterator[Asked]:
    with anns_thread(guarded, slot, database) as asked:
        database.fetch("UPDATE fleet.graphs SET sensitive = true WHERE graph = 'both'")
        yield asked


def made(seconds_ago: float, *roles: str) -> str:
    """A token of ann's that was made then."""
    return token("ann", tenant="acme", roles=roles, iat=time.time() - seconds_ago)


def go_away(database: Database) -> None:
    """As if all had left an hour ago."""
    database.fetch("UPDATE fleet.sessions SET last_seen_at = fleet.now() - interval '1 hour'")


class Peek(httpx.Client):
    """Looks at how an answer begins; a stream has no end."""

    def request(self, method: str, url: Any, **more: Any) -> Response:
        with self.stream(method, url, **more) as answer:
            if answer.status_code >= 400:
                answer.read()
        return answer


def peek(gateway: Gateway, bearer: str) -> Peek:
    headers = {"Authorization": f"Bearer {bearer}"}
    return Peek(base_url=gateway.url, headers=headers, timeout=30)


@pytest.mark.parametrize("roles", [(), ("viewer",), ("operator",)])
def test_after_an_absence_no_door_takes_an_old_token(
    guarded: Gateway, anns: Asked, database: Database, roles: tuple[str, ...]
) -> None:
    """Nothing is read and nothing done with it, whatever its roles; with one that was made
    since, all of it is."""
    doors = [(name, ask) for name, asks in DOORS.items() for ask in asks]
    doors += [("begins", ask) for ask in BEGINS]
    with peek(guarded, made(7200, *roles)) as old, peek(guarded, made(0, *roles)) as fresh:
        assert old.get(f"/threads/both/{anns.key}").status_code == 200
        go_away(database)
        mail = "SELECT count(*) FROM fleet.messages"
        before = database.value(mail)
        for name, ask in doors:
            answer = ask(old, anns.key, anns)
            assert answer.status_code == 401, (name, answer.status_code)
            problem(answer, 401, "fresh_token_needed")
            assert "insufficient_user_authentication" in answer.headers["WWW-Authenticate"]
        assert database.value(mail) == before
        assert not database.value("SELECT bool_or(cancel_requested) FROM fleet.threads")
        for name, ask in doors:
            go_away(database)
            answer = ask(fresh, anns.key, anns)
            assert answer.is_success or answer.json()["code"] in TOLD, (name, answer.text)


def test_others_with_a_role_are_not_asked(
    guarded: Gateway, anns: Asked, database: Database
) -> None:
    """They have all threads of their tenant, whoever is away."""
    go_away(database)
    bob = token("bob", tenant="acme", roles=("viewer",), iat=time.time() - 7200)
    for one in guarded.key("viewer", tenant="acme"), bob:
        with guarded.client(one) as client:
            assert client.get(f"/threads/both/{anns.key}").status_code == 200


def test_without_a_user_the_page_is_asked(
    guarded: Gateway, anns: Asked, database: Database
) -> None:
    """Whoever opens it; at the other doors a role does."""
    database.fetch("UPDATE fleet.sessions SET user_id = NULL")
    go_away(database)
    key = guarded.key("operator", tenant="acme")
    with guarded.client(key) as client:
        assert client.get(f"/threads/both/{anns.key}").status_code == 200
    with Page(guarded, None, session_id=anns.session_id, token=key) as page:
        assert page.next()["code"] == "fresh_token_needed"


def test_how_sessions_stand_is_told_without(
    guarded: Gateway, anns: Asked, database: Database
) -> None:
    """So that a page can show which there are; with nothing that was said."""
    go_away(database)
    with guarded.client(made(7200)) as old:
        for path in "/sessions", f"/sessions/{anns.session_id}":
            answer = old.get(path)
            assert answer.status_code == 200
            assert "a room" not in answer.text and "Which day?" not in answer.text


@pytest.mark.parametrize(("user", "looks"), [("ann", 1), ("bob", 1), (None, 0)])
def test_whose_a_thread_is_is_looked_up_once(
    guarded: Gateway,
    anns: Asked,
    monkeypatch: pytest.MonkeyPatch,
    user: str | None,
    looks: int,
) -> None:
    """For a call that takes several roles too; and for users only."""
    row, asked_for = guarded.state.database.row, []

    def counted(name: str, /, **args: Any) -> Any:
        asked_for.append(name)
        return row(name, **args)

    monkeypatch.setattr(guarded.state.database, "row", counted)
    body = {"thread_id": f"both:{anns.key}", "question_id": anns.question, "value": "Monday"}
    with guarded.client(guarded.key("operator", tenant="acme", user=user)) as client:
        assert client.post("/agent/resume", json=body).status_code == 202
    assert asked_for.count("session_owner") == looks


def test_others_who_look_on_are_not_the_one_who_is_away(
    guarded: Gateway, anns: Asked, database: Database
) -> None:
    """Through either live door; nor does that end the absence, whatever they look at besides."""
    go_away(database)
    left = database.fetch(SEEN, anns.session_id)
    viewer = guarded.key("viewer", tenant="acme")
    open_one = token("bob", tenant="acme")
    there = "SELECT array_agg(graph) FROM fleet.presence JOIN fleet.sessions USING (thread_id)"
    query = {"thread_id": f"both:{anns.key}"}
    with (
        guarded.client(viewer) as client,
        Page(guarded, None, session_id=anns.session_id, token=viewer) as page,
        streaming(client, "GET", "/agent/events", params=query) as stream,
    ):
        assert page.next()["type"] == "welcome"
        stream.until("STATE_SNAPSHOT")
        # What is said of a later one is said of these too.
        with Page(guarded, "talk", token=open_one) as later:
            later.until("welcome")
            assert eventually(lambda: database.value(there)) == ["talk"]
    eventually(lambda: not guarded.state.presence._guests)
    eventually(lambda: database.value(there) is None)
    with Page(guarded, "talk", token=open_one) as later:
        later.until("welcome")
        assert eventually(lambda: database.value(there)) == ["talk"]
    assert database.fetch(SEEN, anns.session_id) == left
    with Page(guarded, None, session_id=anns.session_id, token=made(7200)) as back:
        assert back.next()["code"] == "fresh_token_needed"


@pytest.mark.parametrize("roles", [(), ("viewer",)])
def test_who_has_signed_in_again_is_there(
    guarded: Gateway, anns: Asked, database: Database, roles: tuple[str, ...]
) -> None:
    """At one door, for all of them, and for as long as the reconnect window after."""
    go_away(database)
    query = {"thread_id": f"both:{anns.key}"}
    with guarded.client(made(0, *roles)) as fresh, guarded.client(made(7200, *roles)) as old:
        problem(old.get("/agent/state", params=query), 401, "fresh_token_needed")
        with streaming(fresh, "GET", "/agent/events", params=query):
            there = "SELECT count(*) FROM fleet.presence"
            eventually(lambda: database.value(there))
            assert old.get("/agent/state", params=query).status_code == 200
        eventually(lambda: database.value(there) == 0)
        assert old.get("/agent/state", params=query).status_code == 200


@pytest.mark.parametrize("days", [None, 30.0])
def test_a_key_is_shown_again_over_the_websocket(
    guarded: Gateway, anns: Asked, database: Database, days: float | None
) -> None:
    """No key says when it was made; once it was shown again the other doors take it too."""
    key = guarded.key(tenant="acme", user="ann", days=days)
    go_away(database)
    with guarded.client(key) as client:
        place = f"/threads/both/{anns.key}"
        problem(client.get(place), 401, "fresh_token_needed")
        with Page(guarded, None, session_id=anns.session_id, token=key) as page:
            assert page.next()["code"] == "fresh_token_needed"
            page.send("auth", token=key)
            assert page.next()["type"] == "welcome"
            assert client.get(place).status_code == 200


def test_who_comes_back_within_the_window_is_not_asked(
    guarded: Gateway, anns: Asked, fleet_settings: dict[str, Any]
) -> None:
    """Whatever the page still has, and through whichever gateway."""
    guarded.end()
    with Gateway(**fleet_settings, **JWT) as another, another.client(made(7200)) as client:
        for more in {}, {"last_seq": anns.head}:
            with Page(another, None, session_id=anns.session_id, token=made(7200), **more) as back:
                assert back.next()["type"] == "welcome"
        assert client.get(f"/threads/both/{anns.key}").status_code == 200


@pytest.mark.parametrize("seen", [True, False])
def test_after_a_restart_of_everything_a_fresh_token_is_asked_for(
    guarded: Gateway, anns: Asked, broker: Broker, fleet_settings: dict[str, Any], seen: bool
) -> None:
    """Within the window too, with whatever the page still has; and once."""
    guarded.end()
    broker.client.flushdb()
    init: dict[str, Any] = {"session_id": anns.session_id}
    if seen:
        init["last_seq"] = anns.head
    with Gateway(**fleet_settings, **JWT) as another, another.client(made(7200)) as client:
        place = f"/threads/both/{anns.key}"
        problem(client.get(place), 401, "fresh_token_needed")
        with Page(another, None, token=made(7200), **init) as back:
            assert back.next()["code"] == "fresh_token_needed"
            back.send("auth", token=made(0))
            assert back.next()["type"] == "welcome"
            assert back.next()["reason"] == ("gone" if seen else "first")
            back.until("recovery_complete")
        assert client.get(place).status_code == 200
        with Page(another, None, token=made(7200), **init) as back:
            assert back.next()["type"] == "welcome"
