"""A fleet that stands for a module of tests, and what its servers say of it afterwards.

Starting workers costs seconds, and threads do not meet: tests whose facts are about their
own orders share database, broker and workers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, LiteralString
from urllib.parse import urlsplit

import redis

from infra.devservers import Stack
from infra.valkey_server import DATABASES
from producers import Fleet
from producers.local.processes import slot_pid
from tests.harness import Broker, Database, Databases, Shop, eventually
from tests.worker_processes import Worker, Workers

INPUT = {"user_id": "u_42"}
BELOW, ABOVE = "141.50", "1500.00"

# From the top: those of single tests are numbered from the bottom.
_broker_numbers = itertools.count(1)


class Standing:
    """Database, broker, workers and a client; the shop is the session's."""

    def __init__(
        self, databases: Databases, stack: Stack, shop: Shop, folder: Path, **settings: Any
    ) -> None:
        self.database: Database = databases.create()
        number = DATABASES - next(_broker_numbers)
        url = urlsplit(stack.redis_url)._replace(path=f"/{number}").geturl()
        self.broker = Broker(url, redis.Redis.from_url(url, socket_timeout=5))
        self.broker.client.flushdb()
        self.shop = shop
        self.fleet = Fleet(self.database.url, url)
        self.once = folder / "once"
        self.orders: list[str] = []
        self.workers = Workers(
            stack,
            self.database,
            folder,
            {
                "postgres_url": self.database.url,
                "redis_url": url,
                "shop_url": shop.url,
                "data_dir": folder / "data",
            }
            | settings,
        )

    def start(self, number: int = 2, **options: Any) -> list[Worker]:
        """Start workers at the same time, and wait for all."""
        return start(self.workers, number, **options)

    def disarm(self, points: tuple[str, ...]) -> None:
        """Mark failpoints as having acted already, so that they wait for :meth:`arm`."""
        self.once.mkdir(exist_ok=True)
        for point in points:
            (self.once / point).touch()

    def arm(self, point: str) -> None:
        """Let the failpoint act once more, in whichever process gets there first."""
        (self.once / point).unlink()

    def order(self, amount: str = BELOW) -> str:
        """An order, submitted under an id of its own; gives the order's id."""
        order = self.shop.new_order(amount)
        self.fleet.submit("refund", order, INPUT, message_id=f"start-{order}")
        return order

    def asked(self, amount: str = ABOVE) -> tuple[str, str]:
        """(thread_id, question_id) of an order that waits for its approval."""
        thread = f"refund:{self.order(amount)}"
        status = self.fleet.wait(thread, 30)
        assert status.question is not None, status
        return thread, status.question.question_id

    def ends(self, thread: str, status: str = "done") -> Any:
        """The thread's status, once it has settled in this one."""
        found = self.fleet.wait(thread, 30)
        assert found.status == status, found
        return found

    def close(self) -> None:
        self.workers.close()
        self.fleet.close()
        self.broker.client.close()


@contextmanager
def standing(
    databases: Databases, stack: Stack, shop: Shop, folder: Path, **settings: Any
) -> Iterator[Standing]:
    """A fleet without workers yet, gone afterwards."""
    made = Standing(databases, stack, shop, folder, **settings)
    try:
        yield made
    finally:
        made.close()
        databases.drop(made.database)


def held_orders(shop: Shop, fleet: Fleet, number: int) -> list[str]:
    """Orders that the shop has refunded and whose replies it keeps back."""
    orders = [shop.new_order(BELOW) for _ in range(number)]
    for order in orders:
        shop.fault("refunds", "hold_after", order_id=order, count=1)
        fleet.submit("refund", order, INPUT)
    for order in orders:
        eventually(lambda order=order: shop.held(order))  # type: ignore[misc]
    return orders


def holder(database: Database, workers: Workers, order: str) -> Worker:
    """The worker whose pool has the order's turn."""
    sql = "SELECT owner FROM fleet.threads WHERE thread_id = %s AND status = 'running'"
    pid = slot_pid(eventually(lambda: database.value(sql, f"refund:{order}")))
    (found,) = (w for w in workers if pid == w.pid or pid in w.pool_pids())
    return found


def start(workers: Workers, number: int, **options: Any) -> list[Worker]:
    """Start workers at the same time, and wait for all."""
    started = [workers.start(wait=False, **options) for _ in range(number)]
    for worker in started:
        workers.wait_ready(worker)
    return started


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the calls in threads that start together; what each gave or raised, in order."""
    gate = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        gate.wait(10)
        try:
            return call()
        except Exception as exc:
            return exc

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


# What the servers say


def order_of(thread: str) -> str:
    return thread.partition(":")[2]


def notices(shop: Shop, order: str) -> list[dict[str, Any]]:
    """Notifications about the order, in the order in which the shop sent them."""
    found = shop.books(order)["notifications"]
    return [n for n in found if f" order {order} " in n["text"]]


def refunded_and_notified_once(shop: Shop, *orders: str) -> None:
    """By the shop's own books."""
    books = shop.books()
    assert {o: books["orders"].get(o, 0) for o in orders} == dict.fromkeys(orders, 1)
    told = [n["text"] for n in books["notifications"]]
    counts = {o: sum(f" order {o} " in text for text in told) for o in orders}
    assert counts == dict.fromkeys(orders, 1)


def crashes(database: Database, order: str) -> list[int]:
    """Crashes on record of each message of the order's thread, in order."""
    sql = "SELECT crashes FROM fleet.messages WHERE thread_id = %s ORDER BY seq"
    return [n for (n,) in database.fetch(sql, f"refund:{order}")]


def forks(database: Database) -> list[tuple[Any, ...]]:
    """Checkpoints that more than one checkpoint follows, and threads that begin twice."""
    return database.fetch(
        """SELECT thread_id, checkpoint_ns, parent_checkpoint_id, count(*) FROM checkpoints
        GROUP BY 1, 2, 3 HAVING count(*) > 1"""
    )


def open_mail(database: Database) -> list[tuple[Any, ...]]:
    """Messages that have not ended."""
    return database.fetch(
        """SELECT thread_id, seq, kind, status, error FROM fleet.messages
        WHERE status NOT IN ('done', 'dropped', 'cancelled', 'dead')"""
    )


_LOCKS: LiteralString = """SELECT a.application_name, l.key = hashtextextended('fleet.sweeper', 3)
    FROM (SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
          WHERE locktype = 'advisory' AND granted AND database =
              (SELECT oid FROM pg_database WHERE datname = current_database())) AS l
    JOIN pg_stat_activity a USING (pid)"""


def locks(database: Database) -> list[str]:
    """Who holds advisory locks in this database, but for the sweep's lead."""
    return [name for name, leads in database.fetch(_LOCKS) if not leads]


def idle_in_transaction(database: Database) -> list[tuple[Any, ...]]:
    return database.fetch(
        """SELECT application_name, state FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"""
    )


def is_at_rest(database: Database, broker: Broker) -> bool:
    """Nothing to do, nothing held and nothing queued; raises AssertionError saying what is."""
    assert open_mail(database) == []
    assert broker.client.llen("fleet") == 0
    assert locks(database) == []
    assert idle_in_transaction(database) == []
    return True


def leader(database: Database) -> str:
    """Name of the worker that leads the sweep."""
    found = eventually(lambda: [n for n, leads in database.fetch(_LOCKS) if leads], timeout=5)
    return str(found[0]).removeprefix("fleet-sweeper ")
