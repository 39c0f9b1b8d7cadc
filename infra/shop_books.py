"""The dev shop's books: what it has done and how often it was called, kept on disk.

One JSON line per fact, appended and replayed at the start:

    {"order": id, "user_id", "amount"}                          an order that was set
    {"act": "refunds" | "notifications", "key", "hash", "body", "reply", "at"}
    {"call": target, "about", "key"}                            a call, whatever came of it

An act is on disk (fsync) before it is answered; those that wait at the same time
share one fsync. Calls are written at once, without fsync: kill -9 loses none.
"""

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

TARGETS = ("orders", "refunds", "lookups", "notifications")

_ORDER_ID = re.compile(r"[A-Z]{1,8}-?(\d{1,15})")
_ID_PREFIX = {"refunds": "re", "notifications": "no"}


class InFlight(Exception):
    """The same key is being worked on by another call."""


class OtherBody(Exception):
    """The key is known with another body."""


class Books:
    """All that the shop knows. Thread safe."""

    def __init__(self, path: Path, *, fsync: bool = True) -> None:
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._fsync = fsync
        self._written = 0
        self._synced = 0
        self._orders: dict[str, dict[str, str]] = {}
        self._acts: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _ID_PREFIX}
        self._by_key: dict[tuple[str, str], dict[str, Any]] = {}
        self._in_flight: set[tuple[str, str]] = set()
        # How often per target and (order or user, key).
        self._calls: dict[str, Counter[tuple[str, str]]] = {t: Counter() for t in TARGETS}
        for line in _whole_lines(path):
            self._apply(json.loads(line))
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def order(self, order_id: str) -> dict[str, str] | None:
        """The order that was set, or the one that each id of the usual form stands for.

        Those with an odd number are below 1000, the others above.
        """
        if order_id in self._orders:
            return self._orders[order_id]
        match = _ORDER_ID.fullmatch(order_id)
        if match is None:
            return None
        number = int(match[1])
        whole = 40 + number % 900 if number % 2 else 1200 + number % 800
        amount = f"{whole}.{number % 100:02d}"
        return {"order_id": order_id, "user_id": "u_42", "amount": amount}

    def set_order(self, order_id: str, user_id: str, amount: Decimal) -> dict[str, str]:
        self._write({"order": order_id, "user_id": user_id, "amount": f"{amount:.2f}"}, sync=True)
        return self._orders[order_id]

    def count(self, target: str, about: str, key: str = "") -> None:
        """Note a call about an order or a user."""
        self._write({"call": target, "about": about, "key": key})

    @contextlib.contextmanager
    def working_on(
        self, kind: str, key: str, body: dict[str, Any]
    ) -> Iterator[dict[str, Any] | None]:
        """Hold the key while it is worked on; gives the reply if it was done before.

        Raises InFlight or OtherBody.
        """
        mark = (kind, key)
        with self._lock:
            if mark in self._in_flight:
                raise InFlight
            known = self._by_key.get(mark)
            if known is not None and known["hash"] != _hash(body):
                raise OtherBody
            self._in_flight.add(mark)
        try:
            yield known["reply"] if known else None
        finally:
            with self._lock:
                self._in_flight.discard(mark)

    def act(self, kind: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do it: after this the books say so for good. Gives the reply."""
        with self._lock:
            number = len(self._acts[kind]) + 1
            name = "refund_id" if kind == "refunds" else "notification_id"
            status = "succeeded" if kind == "refunds" else "sent"
            reply = {name: f"{_ID_PREFIX[kind]}_{number:06d}", "status": status}
            fact = {"act": kind, "key": key, "hash": _hash(body), "body": body, "reply": reply}
            position = self._append({**fact, "at": time.time()})
        self._sync(position)
        return reply

    def find(self, kind: str, key: str) -> dict[str, Any] | None:
        """What was done under this key, with the request's own fields."""
        fact = self._by_key.get((kind, key))
        return None if fact is None else _entry(fact)

    def summary(self, order_id: str | None = None) -> dict[str, Any]:
        """Everything, or what concerns one order, for `GET /admin/books`.

        `{"orders": {id: refunds}, "refunds": [...], "notifications": [...], "calls": {target:
        {"total", "by_order": {id: calls}, "by_key": {request id: calls}}}}`; notifications
        are counted by user in place of order.
        """
        with self._lock:
            refunds = [_entry(f) for f in self._acts["refunds"]]
            notifications = [_entry(f) for f in self._acts["notifications"]]
            counted = [(t, *pair, n) for t, c in self._calls.items() for pair, n in c.items()]
        if order_id is not None:
            refunds = [r for r in refunds if r["order_id"] == order_id]
            notifications = [n for n in notifications if order_id in n["text"]]
            counted = [c for c in counted if c[1] == order_id]
        calls: dict[str, dict[str, Any]] = {
            target: {"total": 0, "by_order": {}, "by_key": {}} for target in TARGETS
        }
        for target, about, key, number in counted:
            of_target = calls[target]
            of_target["total"] += number
            for name, value in (("by_order", about), ("by_key", key)):
                of_target[name][value] = of_target[name].get(value, 0) + number
        return {
            "orders": dict(Counter(r["order_id"] for r in refunds)),
            "refunds": refunds,
            "notifications": notifications,
            "calls": calls,
        }

    def _write(self, fact: dict[str, Any], *, sync: bool = False) -> None:
        with self._lock:
            position = self._append(fact)
        if sync:
            self._sync(position)

    def _append(self, fact: dict[str, Any]) -> int:
        line = json.dumps(fact, separators=(",", ":")).encode() + b"\n"
        os.write(self._file, line)
        self._apply(fact)
        self._written += 1
        return self._written

    def _sync(self, position: int) -> None:
        if not self._fsync:
            return
        with self._sync_lock:
            # Another call may have synced this line while we waited for the lock.
            if self._synced < position:
                reached = self._written
                os.fsync(self._file)
                self._synced = reached

    def _apply(self, fact: dict[str, Any]) -> None:
        if "call" in fact:
            self._calls[fact["call"]][fact["about"], fact["key"]] += 1
        elif "act" in fact:
            self._acts[fact["act"]].append(fact)
            self._by_key[fact["act"], fact["key"]] = fact
        else:
            order_id = fact["order"]
            values = {"user_id": fact["user_id"], "amount": fact["amount"]}
            self._orders[order_id] = {"order_id": order_id, **values}


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of the file; a last one that a crash has cut off was never answered for."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return whole.splitlines()


def _entry(fact: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": fact["key"], **fact["body"], **fact["reply"], "at": fact["at"]}


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
