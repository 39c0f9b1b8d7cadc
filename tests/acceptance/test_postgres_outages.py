"""Postgres that restarts, crashes or fails over under running workers."""

import time
from collections.abc import Callable, Iterator

import pytest

from graphs.registry import Registry
from infra.migrate import migrate
from producers import Fleet, FleetUnavailable
from producers.chaos.proxy import Proxy
from tests.acceptance.servers import Servers, Standby, claimed_anew, claims
from tests.acceptance.standing import (
    ABOVE,
    INPUT,
    held_orders,
    refunded_and_notified_once,
    start,
)
from tests.harness import ROOT, Broker, Database, Shop, eventually
from tests.worker_processes import Workers

#: Seconds from the return of Postgres until each turn has gone on.
GOES_ON = 5.0

Return = Callable[[], None]


@pytest.fixture
def postgres(broker: Broker) -> Iterator[Servers]:
    """Of the test's own."""
    with Servers(redis_url=broker.url) as servers:
        migrate(servers.stack.postgres_url, Registry.load(ROOT / "langgraph.json").described())
        yield servers


@pytest.fixture
def address(postgres: Servers) -> Iterator[Proxy]:
    """Where the fleet finds it."""
    with Proxy(postgres.stack.postgres_url) as address:
        yield address


@pytest.fixture
def database(address: Proxy) -> Database:
    return Database(address.url)


def restarts(postgres: Servers, address: Proxy) -> Return:
    """In order, as for an upgrade."""
    postgres.end()
    return postgres.start


def crashes(postgres: Servers, address: Proxy) -> Return:
    """It has to recover from its log."""
    postgres.crash_postgres()
    postgres.end()
    return postgres.start


def fails_over(postgres: Servers, address: Proxy) -> Return:
    """Its host dies; a synchronous standby takes its place and its address."""
    standby = Standby(postgres)
    postgres.crash_postgres()

    def take_over() -> None:
        standby.promote()
        address.lead_to(standby.url)

    return take_over


@pytest.mark.parametrize("outage", [restarts, crashes, fails_over])
def test_each_turn_goes_on_within_five_seconds_of_the_return_of_postgres(
    outage: Callable[[Servers, Proxy], Return],
    postgres: Servers,
    address: Proxy,
    database: Database,
    fleet: Fleet,
    shop: Shop,
    workers: Workers,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Calls at the shop, mail that waits, an open question: all end, each refunded once."""
    start(workers, 2, concurrency=2)
    asked = shop.new_order(ABOVE)
    fleet.submit("refund", asked, INPUT)
    question = fleet.wait(f"refund:{asked}", 20).question
    assert question is not None
    held = held_orders(shop, fleet, 4)
    before = claims(database, held)
    waiting = [shop.new_order() for _ in range(8)]
    fleet.submit_many([("refund", order, INPUT) for order in waiting])
    come_back = outage(postgres, address)
    with pytest.raises(FleetUnavailable):
        fleet.submit("refund", "A1", INPUT)
    come_back()
    returned = time.monotonic()
    shop.release()
    eventually(claimed_anew(database, before), GOES_ON)
    took = time.monotonic() - returned
    with capsys.disabled():
        print(f"\nPostgres {outage.__name__}: every turn went on within {took:.2f} s")
    fleet.answer(f"refund:{asked}", question.question_id, "approved")
    orders = [asked, *held, *waiting]
    for order in orders:
        assert fleet.wait(f"refund:{order}", 30).status == "done"
    assert all(worker.child.poll() is None for worker in workers)
    refunded_and_notified_once(shop, *orders)
