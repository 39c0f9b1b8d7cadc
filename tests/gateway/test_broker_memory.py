"""What a gateway knows of the broker's losses, while the broker hangs, dies and forgets."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from infra.devservers import Stack
from producers.gateway import broker_memory, presence
from producers.gateway.broker_memory import MARK
from producers.live.streams import ANSWER_WITHIN
from tests.acceptance.servers import Servers
from tests.gateway.agui_turns import write_agui_graphs
from tests.gateway.doors import Asked, anns_thread
from tests.gateway.pages import Page
from tests.gateway.serving import JWT, Gateway, problem, token
from tests.harness import Broker, Database, eventually
from workers.slot import Slot


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateways of this process look more often."""
    monkeypatch.setattr(broker_memory, "_EVERY", 0.5)
    monkeypatch.setattr(broker_memory, "_FOUND_BY_ALL", 1.5)


@pytest.fixture
def servers(stack: Stack) -> Iterator[Servers]:
    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        yield servers


@pytest.fixture
def broker(servers: Servers) -> Iterator[Broker]:
    """Of the test's own, which it may kill."""
    with redis.Redis.from_url(servers.stack.redis_url, socket_timeout=5) as client:
        yield Broker(servers.stack.redis_url, client)


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def anns(guarded: Gateway, slot: Slot, database: Database) -> Iterator[Asked]:
    """A sensitive session, left a moment ago."""
    with anns_thread(guarded, slot, database) as asked:
        database.fetch("UPDATE fleet.graphs SET sensitive = true WHERE graph = 'both'")
        yield asked


def old() -> str:
    return token("ann", tenant="acme", iat=time.time() - 7200)


def known(gateway: Gateway) -> datetime | None:
    """Since when the broker remembers, as far as the gateway knows."""
    found: datetime | None = gateway.state.broker_memory._known
    return found


def test_while_the_broker_is_away_a_gateway_goes_by_what_it_knows(
    guarded: Gateway, anns: Asked, broker: Broker, fleet_settings: dict[str, Any]
) -> None:
    """And waits for nothing, also where it only hangs. A gateway that was never told can't tell
    an outage from a restart, and asks."""
    pid, place = broker.client.info("server")["process_id"], f"/threads/both/{anns.key}"
    with guarded.client(old()) as client:
        for number in signal.SIGSTOP, signal.SIGKILL:
            os.kill(pid, number)
            began = time.monotonic()
            for _ in range(3):
                assert client.get(place).status_code == 200
            assert time.monotonic() - began < 2 * ANSWER_WITHIN
    with Gateway(**fleet_settings, **JWT) as another, another.client(old()) as client:
        problem(client.get(place), 401, "fresh_token_needed")


def test_a_loss_is_noticed_without_anybody_asking(
    guarded: Gateway, anns: Asked, broker: Broker
) -> None:
    """So that who comes after it and leaves again was there since; who had left is asked."""
    before, place = eventually(lambda: known(guarded)), f"/threads/both/{anns.key}"
    broker.client.flushdb()
    eventually(lambda: known(guarded) != before)
    with guarded.client(old()) as client:
        problem(client.get(place), 401, "fresh_token_needed")
        fresh = token("ann", tenant="acme", iat=time.time())
        with Page(guarded, None, session_id=anns.session_id, token=fresh) as page:
            page.until("welcome")
        assert client.get(place).status_code == 200


def test_who_is_there_through_a_loss_is_not_asked(
    guarded: Gateway,
    anns: Asked,
    broker: Broker,
    fleet_settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for a moment, however long it is to the next word of who is there."""
    guarded.end()
    monkeypatch.setattr(presence, "_EVERY", 3600.0)
    with (
        Gateway(**fleet_settings, **JWT) as another,
        Page(another, None, session_id=anns.session_id, token=old()) as page,
        another.client(old()) as client,
    ):
        page.until("welcome")
        before = eventually(lambda: known(another))

        def noticed() -> bool:
            assert client.get(f"/threads/both/{anns.key}").status_code == 200
            return known(another) != before

        broker.client.flushdb()
        eventually(noticed)
        assert noticed()


def looks_of(gateway: Gateway) -> list[float]:
    """When its looks ended, from now on."""
    memory, ended = gateway.state.broker_memory, list[float]()
    look = memory._look

    async def noted() -> None:
        try:
            await look()
        finally:
            ended.append(time.monotonic())

    memory._look = noted
    return ended


THERE = "SELECT count(*) FROM fleet.presence"


def test_who_is_there_through_another_gateway_is_not_asked(
    guarded: Gateway,
    anns: Asked,
    broker: Broker,
    database: Database,
    fleet_settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor where that one is the last to notice the loss."""
    monkeypatch.setattr(presence, "_EVERY", 3600.0)
    with (
        Gateway(**fleet_settings, **JWT) as another,
        Page(another, None, session_id=anns.session_id, token=old()) as page,
        guarded.client(old()) as client,
    ):
        page.until("welcome")
        eventually(lambda: database.value(THERE))
        before, looks = known(guarded), looks_of(another)
        eventually(lambda: looks)
        broker.client.flushdb()

        def noticed() -> bool:
            assert client.get(f"/threads/both/{anns.key}").status_code == 200
            return known(guarded) != before

        eventually(noticed, 30)
        assert noticed()


def test_who_is_there_is_said_again_where_nobody_has_heard_it(
    guarded: Gateway,
    anns: Asked,
    broker: Broker,
    database: Database,
    fleet_settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then nobody is compared with the new mark."""
    guarded.end()
    monkeypatch.setattr(presence, "_EVERY", 3600.0)
    with (
        Gateway(**fleet_settings, **JWT) as another,
        Page(another, None, session_id=anns.session_id, token=old()) as page,
        another.client(old()) as client,
    ):
        page.until("welcome")
        eventually(lambda: database.value(THERE))
        before, place = known(another), f"/threads/both/{anns.key}"
        database.fetch("ALTER FUNCTION fleet.beat RENAME TO not_heard")
        broker.client.flushdb()
        eventually(lambda: broker.client.get(MARK))
        looks = looks_of(another)
        eventually(lambda: len(looks) > 5)
        assert known(another) == before and client.get(place).status_code == 200
        database.fetch("ALTER FUNCTION fleet.not_heard RENAME TO beat")
        eventually(lambda: known(another) != before)
        assert client.get(place).status_code == 200


@pytest.mark.parametrize("mark", [b"yesterday", b"2026-01-01", b"\xff"])
def test_a_mark_that_is_no_moment_counts_as_none(
    guarded: Gateway, anns: Asked, broker: Broker, fleet_settings: dict[str, Any], mark: bytes
) -> None:
    """It is replaced; nobody can say what was lost before."""
    guarded.end()
    broker.client.set(MARK, mark)
    with Gateway(**fleet_settings, **JWT) as another, another.client(old()) as client:
        place = f"/threads/both/{anns.key}"
        problem(client.get(place), 401, "fresh_token_needed")
    assert datetime.fromisoformat(broker.client.get(MARK).decode()).tzinfo is not None
