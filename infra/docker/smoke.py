"""The steps of smoke.sh that talk to the fleet and the shop; run inside of the stack.

python - submit N | busy CALLS | finish N | books N | flower | gateway KEY      < smoke.py
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from infra.settings import get_settings
from producers import Fleet

FIRST = 1001
PATIENCE = 180.0


def orders(number: int) -> list[str]:
    """A1001, A1002, …: the even ones are above the limit."""
    return [f"A{FIRST + n}" for n in range(number)]


def shop(method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"{get_settings().shop_url}{path}"
    request = urllib.request.Request(url, data=data, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def submit(number: int) -> None:
    """All at once. The shop takes its time, and loses some of its answers."""
    shop("DELETE", "/admin/faults")
    for target in ("refunds", "notifications"):
        shop("POST", "/admin/faults", {"target": target, "mode": "slow", "seconds": 0.4})
        shop("POST", "/admin/faults", {"target": target, "mode": "drop_after", "count": 3})
    with Fleet() as fleet:
        receipts = fleet.submit_many(
            [("refund", order, {"user_id": f"u_{order}"}) for order in orders(number)]
        )
    assert len(receipts) == number


def busy(calls: int) -> None:
    """Wait until the shop was asked for so many refunds, answering questions meanwhile."""
    with Fleet() as fleet:
        until(lambda: answer_all(fleet) and called() >= calls, f"{calls} calls at the shop")


def finish(number: int) -> None:
    with Fleet() as fleet:

        def ended() -> bool:
            answer_all(fleet)
            found = Counter(t.status for t in fleet.threads(limit=number + 1))
            bad = {s: n for s, n in found.items() if s in ("failed", "in_doubt", "incompatible")}
            assert not bad, f"threads ended badly: {bad}"
            return found == {"done": number}

        until(ended, f"{number} threads to be done")


def books(number: int) -> None:
    """Each order was refunded once, and its user told once."""
    found = shop("GET", "/admin/books")
    assert found["orders"] == dict.fromkeys(orders(number), 1), found["orders"]
    told = Counter(n["user_id"] for n in found["notifications"])
    assert told == {f"u_{order}": 1 for order in orders(number)}, told
    print(f"       {number} orders refunded once each, in {called()} calls", flush=True)


def flower() -> None:
    """It is up, and shows nothing without its login."""

    def refused() -> bool:
        try:
            urllib.request.urlopen("http://flower:5555/api/workers", timeout=5)
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False
        raise AssertionError("Flower answers without a login")

    until(refused, "Flower to refuse")


def gateway(key: str) -> None:
    """It serves a caller with a key, and nobody else."""

    def status(**headers: str) -> int:
        request = urllib.request.Request("http://gateway:8800/threads", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    until(lambda: status() == 401, "the gateway to refuse")
    until(lambda: status(Authorization=f"Bearer {key}") == 200, "the gateway to serve")


def called() -> int:
    return int(shop("GET", "/admin/books")["calls"]["refunds"]["total"])


def answer_all(fleet: Fleet) -> bool:
    for thread in fleet.threads(status="waiting", limit=1000):
        asked = fleet.status(thread.thread_id).question
        if asked is not None:
            fleet.answer(thread.thread_id, asked.question_id, "approved")
    return True


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    STEPS: dict[str, Any] = {f.__name__: f for f in (submit, busy, finish, books, flower, gateway)}
    STEPS[sys.argv[1]](*(int(given) if given.isdigit() else given for given in sys.argv[2:]))
