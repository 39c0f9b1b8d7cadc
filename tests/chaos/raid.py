"""A small chaos run: five orders, each of which meets a misfortune of its own.

``asked``     its process dies as the turn that asks for approval is about to end
``found``     its process dies after a call at an outside that honours no request ids
``unlocked``  its lock is gone during its call, and not its session; another ends the turn
``slow``      its call takes a while, at an outside that honours no request ids
``chat``      the same input is sent twice
"""

import time
from typing import Any
from urllib.parse import quote

from producers import Fleet
from producers.chaos.books import Expected, Sent, about, shop_acts
from producers.chaos.checker import check
from producers.chaos.findings import Report
from tests.acceptance.standing import ABOVE, BELOW, INPUT
from tests.harness import Broker, Database, Shop, eventually
from tests.worker_processes import Worker, Workers

GRAPHS = {"asked": "refund", "found": "lookup", "unlocked": "keyed", "slow": "careful"} | {
    "chat": "lookup"
}
#: Nothing has moved for so many seconds: nothing will.
STILL = 3.0


class Raid:
    """One worker of three processes, and what befalls its orders."""

    def __init__(
        self, fleet: Fleet, database: Database, broker: Broker, shop: Shop, workers: Workers
    ) -> None:
        self.fleet, self.database, self.broker = fleet, database, broker
        self.shop, self.workers = shop, workers
        self.orders = {name: shop.new_order(ABOVE if name == "asked" else BELOW) for name in GRAPHS}
        self.sent: dict[tuple[str, str], Sent] = {}
        self._seen: list[tuple[Any, ...]] = []
        self._since = time.monotonic()

    def thread(self, name: str) -> str:
        return f"{GRAPHS[name]}:{self.orders[name]}"

    def start(self, app: str, **settings: Any) -> Worker:
        """The worker, whose processes die at their places."""
        keyed = f"1/pay=1/keyed.refund[order:{self.orders['unlocked']}].0"
        points = [
            self._at("turn.before_unlock", "asked", "1/=1", "kill"),
            self._at("effect.after_call", "found", "1/pay=1/lookup.refund.0", "kill"),
            self._at("effect.before_call", "unlocked", keyed, "disconnect"),
        ]
        return self.workers.start(app=app, concurrency=3, failpoints=";".join(points), **settings)

    def _at(self, point: str, name: str, place: str, action: str) -> str:
        return f"{point}@{quote(f'{self.thread(name)}/{place}', safe='')}={action}"

    def run(self) -> None:
        """Submit everything and attend to it until it is done, or nothing moves any more."""
        for name in ("unlocked", "slow"):
            self.shop.fault("refunds", "hold_after", order_id=self.orders[name], count=1)
        self.shop.fault("refunds", "ignore_keys", order_id=self.orders["found"])
        for name, order in self.orders.items():
            wanted = {"amount": BELOW} | ({"order_id": order} if name == "unlocked" else {})
            self._send(name, f"start-{order}", INPUT if name == "asked" else wanted)
        deadline = time.monotonic() + 60
        while not self._attend():
            assert time.monotonic() < deadline, f"it never comes to rest: {self._rows()}"
            if self._stands_still():
                # So that it is judged for what is lost, and not for what we hold.
                self.shop.release()
                eventually(self._stands_still, 30)
                return

    def _stands_still(self) -> bool:
        """Watch it for a moment; whether nothing has moved for long."""
        rows = self._rows()
        time.sleep(0.05)
        if rows != self._seen:
            self._seen, self._since = rows, time.monotonic()
        return time.monotonic() - self._since > STILL

    def _send(self, name: str, message: str, wanted: dict[str, Any]) -> None:
        thread = self.thread(name)
        if message.startswith("start"):
            self.fleet.submit(GRAPHS[name], self.orders[name], wanted, message_id=message)
        else:
            self.fleet.send(thread, wanted, message_id=message)
        self.sent[thread, message] = Sent(thread, message)

    def _attend(self) -> bool:
        """Do what people, producers and the shop do meanwhile; whether everything is done."""
        status = dict(self.database.fetch("SELECT thread_id, status FROM fleet.threads"))
        asked, answer = self.thread("asked"), f"answer-{self.orders['asked']}"
        if status[asked] == "waiting" and (asked, answer) not in self.sent:
            self.fleet.answer(asked, None, "approved", message_id=answer)
            self.sent[asked, answer] = Sent(asked, answer)
        chat, message = self.thread("chat"), f"more-{self.orders['chat']}"
        if status[chat] == "done" and (chat, message) not in self.sent:
            for _ in range(2):
                self._send("chat", message, {"amount": BELOW})
            return False
        if status.pop(self.thread("unlocked")) == "done":
            self.shop.release(self.orders["unlocked"])
        slow = status.pop(self.thread("slow"))
        if {*status.values()} != {"done"} or self._tasks() > 1:
            return False
        # Whoever was called for the slow one has been there.
        self.shop.release(self.orders["slow"])
        return slow == "done" and not self._tasks() and not self._open()

    def _open(self) -> int:
        sql = "SELECT count(*) FROM fleet.messages WHERE status <> 'done'"
        return int(self.database.value(sql))

    def _tasks(self) -> int:
        """Wake-ups that wait, and those whose task has not returned: a turn that was taken
        over may still be on its way back."""
        queue = self.broker.client
        return int(queue.llen("fleet")) + int(queue.hlen("unacked"))

    def _rows(self) -> list[tuple[Any, ...]]:
        return self.database.fetch(
            """SELECT thread_id, t.status, epoch, seq, m.status, crashes
            FROM fleet.threads t JOIN fleet.messages m USING (thread_id) ORDER BY 1, 4"""
        )

    def judge(self, worker: Worker, patience: float) -> Report:
        """The checker's report, once there is nothing to find or after so many seconds."""
        effects = {f"refund of {order}": 1 for order in self.orders.values()}
        effects[f"refund of {self.orders['chat']}"] = 2
        effects[f"notice about {self.orders['asked']}"] = 1
        threads = {self.thread(name): Expected() for name in GRAPHS}
        acts = about(shop_acts(self.shop.books()), [*self.orders.values()])

        def report() -> Report:
            with self.database.connect() as conn:
                return check(
                    conn,
                    self.broker.client,
                    sent=[*self.sent.values()],
                    expected=threads,
                    acts=acts,
                    effects=effects,
                    groups=[worker.pid],
                )

        deadline = time.monotonic() + patience
        while not (found := report()).ok and time.monotonic() < deadline:
            time.sleep(0.05)
        return found
