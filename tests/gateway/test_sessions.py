"""Sessions over REST: whose they are, and for whom they exist; and who is there."""

import asyncio
from typing import Any

import httpx
import pytest

from infra.settings import Settings
from producers.gateway.database import Database as GatewayDatabase
from producers.gateway.owners import access
from producers.gateway.presence import Presence
from producers.gateway.principals import Principal, Role
from tests.gateway.serving import Gateway, token
from tests.harness import Database, eventually


def opened(gateway: Gateway, who: str | None, graph: str = "refund") -> dict[str, Any]:
    with gateway.client(who) as client:
        response = client.post("/sessions", json={"graph": graph})
        assert response.status_code == 201, response.text
        found: dict[str, Any] = response.json()
        return found


def test_a_session_is_opened_without_a_thread(guarded: Gateway) -> None:
    """Its id and its thread's key can't be guessed, and nothing has been said in it."""
    one, other = (opened(guarded, token("u_1")) for _ in range(2))
    assert one["state"] == "active" and one["thread_status"] is None and one["user_id"] == "u_1"
    assert one["thread_id"].startswith("refund:") and one["session_id"] not in one["thread_id"]
    assert len({one["session_id"], other["session_id"]}) == 2
    assert min(len(one["session_id"]), len(one["thread_id"].partition(":")[2])) >= 32


def test_an_unknown_graph_opens_nothing(guarded: Gateway) -> None:
    """The problem names those that there are."""
    with guarded.client(token("u_1")) as client:
        response = client.post("/sessions", json={"graph": "refnd"})
    assert response.status_code == 404 and "refund" in response.json()["known"]


@pytest.mark.parametrize(
    "other",
    [
        {"user": "u_2"},
        {"user": "u_1", "tenant": "acme"},
        {"user": "u_2", "tenant": "acme", "roles": ["operator"]},
    ],
)
def test_for_others_a_session_does_not_exist(guarded: Gateway, other: dict[str, Any]) -> None:
    """The same words as for one that there never was."""
    found = opened(guarded, token("u_1"))
    with guarded.client(token(**other)) as client:
        theirs = client.get(f"/sessions/{found['session_id']}")
        nobodys = client.get(f"/sessions/{'x' * 32}")
        assert client.get("/sessions").json() == []
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.content == nobodys.content


def test_the_owner_and_roles_see_it(guarded: Gateway) -> None:
    """A role sees all of its tenant, a user their own."""
    found = opened(guarded, token("u_1"))
    opened(guarded, token("u_2"))
    for who, many in (token("u_1"), 1), (guarded.key("viewer"), 2):
        with guarded.client(who) as client:
            assert len(client.get("/sessions").json()) == many
            assert client.get(f"/sessions/{found['session_id']}").status_code == 200


def test_who_has_roles_and_none_to_produce_opens_none(guarded: Gateway) -> None:
    """A key that looks on is no user who could have sessions."""
    with guarded.client(guarded.key("viewer")) as client:
        assert client.post("/sessions", json={"graph": "refund"}).status_code == 403


def test_a_thread_is_its_session_s_owner_s(guarded: Gateway) -> None:
    """Theirs to read and to act on; nobody else's without a role of the tenant."""
    thread = opened(guarded, token("u_1", tenant="acme"))["thread_id"]
    assert thread.startswith("acme/refund:")

    def may(tenant: str, user: str | None, *roles: Role) -> tuple[bool, bool, bool]:
        principal = Principal(tenant, user, frozenset(roles), "x", None)

        found = asyncio.run(access(guarded.state, principal, thread))
        return found.may(Role.viewer), found.may(Role.approver), found.may(Role.producer)

    assert may("acme", "u_1") == (True, True, True)
    assert may("acme", "u_2") == may("", "u_1") == (False, False, False)
    assert may("acme", None) == (False, False, False)
    assert may("acme", None, Role.viewer) == (True, False, False)
    assert may("acme", None, Role.approver) == (True, True, False)
    assert may("acme", "u_2", Role.producer) == (True, False, True)
    assert may("acme", "u_1", Role.viewer) == (True, True, True)
    assert may("", None, Role.operator) == (False, False, False)


def test_anybody_s_session_without_authentication(client: httpx.Client) -> None:
    """On one's own machine there are no users."""
    found = client.post("/sessions", json={"graph": "refund"}).json()
    assert found["user_id"] is None
    assert client.get(f"/sessions/{found['session_id']}").json()["state"] == "active"


def test_who_watches_is_there_and_then_not(
    database: Database, fleet_settings: dict[str, Any]
) -> None:
    """Said soon after the first one came and the last one went, once for all of them."""
    database.fetch("SELECT fleet.open_session('s1', '', 'u', 'refund', 'refund:A')")
    database.fetch("SELECT fleet.move_clock('1 hour')")

    def there() -> list[str]:
        return [t for (t,) in database.fetch("SELECT thread_id FROM fleet.presence ORDER BY 1")]

    async def story() -> None:
        settings = Settings(**fleet_settings)
        kept = GatewayDatabase(settings.require_postgres(), 5)
        presence = Presence(kept)
        await presence.start()
        with presence.watching("refund:A"):
            with presence.watching("refund:A"), presence.watching("refund:B"):
                await until(["refund:A", "refund:B"])
            await until(["refund:A"])
        await until([])
        with presence.watching("refund:A"):
            await until(["refund:A"])
            await presence.aclose()
        assert there() == []
        kept.close()

    async def until(threads: list[str]) -> None:
        await asyncio.to_thread(eventually, lambda: there() == threads)

    asyncio.run(story())
    assert database.value("SELECT fleet.now() - last_seen_at < '1 min' FROM fleet.sessions")
