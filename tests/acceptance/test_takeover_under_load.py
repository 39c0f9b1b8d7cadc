"""A turn whose process dies while every slot is busy and the queue is full."""

import os
import signal

from producers import Fleet
from producers.local.processes import slot_pid
from tests.acceptance.standing import INPUT, held_orders, refunded_and_notified_once
from tests.harness import Database, Shop, eventually
from tests.worker_processes import Workers

BACKLOG = 240


def test_a_lost_turn_goes_on_before_mail_that_nobody_has_begun(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """Wake-ups that wait already stand for twenty turns each: it is not behind them."""
    shop.fault("orders", "slow", seconds=0.05)
    workers.start(concurrency=2)
    (held,) = held_orders(shop, fleet, 1)
    waiting = [shop.new_order() for _ in range(BACKLOG)]
    # One by one: the queue is filled with wake-ups.
    for order in waiting:
        fleet.submit("refund", order, INPUT)
    owner = database.value("SELECT owner FROM fleet.threads WHERE key = %s", held)
    done = "SELECT count(*) FROM fleet.messages WHERE status = 'done'"
    before = database.value(done)
    os.kill(slot_pid(owner), signal.SIGKILL)
    shop.release()
    taken = "SELECT status = 'done' FROM fleet.threads WHERE key = %s"
    eventually(lambda: database.value(taken, held), 60)
    meanwhile = database.value(done) - before
    assert meanwhile <= BACKLOG / 3, f"{meanwhile} of {BACKLOG} others came first"
    for order in waiting:
        fleet.wait(f"refund:{order}", 60)
    refunded_and_notified_once(shop, held, *waiting)
