"""The dev shop: an HTTP server to refund orders at, with books that can be asked.

    python -m infra.shop [--host 127.0.0.1] --port 0 --books PATH [--no-fsync]

    GET  /orders/{order_id}        200 {order_id, user_id, amount} | 404
    POST /refunds                  {order_id, amount}, Idempotency-Key
                                   200 {refund_id, status} | 409 in flight | 422 other body,
                                   unknown order or another amount than the order's
    GET  /refunds/{request_id}     200 {refund_id, status, order_id, amount, ...} | 404
    POST /notifications            {user_id, text}, Idempotency-Key; as /refunds

    GET    /admin/books[?order_id=]                PUT    /admin/orders/{id} {user_id, amount}
    POST   /admin/faults, DELETE /admin/faults     POST   /admin/hold {target?, order_id?, count?}
    GET    /admin/held                             POST   /admin/release {order_id?}
    GET    /admin/health

Amounts are decimal strings. A malformed request gets 400 and `{"error": sentence}`.
For what can go wrong on request see `infra.shop_faults`. When it listens it prints one
line, `shop listening on http://127.0.0.1:PORT`.
"""

import argparse
import re
import signal
import sys
import threading
from decimal import Decimal
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from infra.shop_books import Books, InFlight, OtherBody
from infra.shop_faults import AFTER, BEFORE, HOLD, BadFault, Fault, Faults
from infra.shop_http import Dropped, JsonHandler, Reply, refuse

_AMOUNT = re.compile(r"\d{1,12}(\.\d{1,2})?")


class ShopServer(ThreadingHTTPServer):
    """A thread per connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: str, port: int, books: Books) -> None:
        self.books = books
        self.faults = Faults()
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of a chaos test go away as they like; only our own errors are shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(JsonHandler):
    """One connection."""

    server: ShopServer

    def on_get(self, *path: str) -> dict[str, Any]:
        shop = self.server
        match path:
            case ("orders", order_id):
                return self._order(order_id)
            case ("refunds", key):
                return self._lookup(key)
            case ("admin", "books"):
                return shop.books.summary(next(iter(self.query.get("order_id", [])), None))
            case ("admin", "held"):
                return {"held": shop.faults.held()}
            case ("admin", "health"):
                return {"status": "ok"}
        self.nothing_here()

    def on_post(self, *path: str) -> dict[str, Any]:
        faults = self.server.faults
        match path:
            case ("refunds",):
                return self._act("refunds")
            case ("notifications",):
                return self._act("notifications")
            case ("admin", "faults"):
                return _added(faults, self.read_object())
            case ("admin", "hold"):
                return _added(faults, {"target": "refunds", **self.read_object(), "mode": HOLD[0]})
            case ("admin", "release"):
                wanted = self.read_object() if self.body else {}
                return {"released": faults.release(wanted.get("order_id"))}
        self.nothing_here()

    def on_put(self, *path: str) -> dict[str, Any]:
        match path:
            case ("admin", "orders", order_id) if order_id:
                body = self.read_object()
                user_id = _text(body, "user_id")
                return {**self.server.books.set_order(order_id, user_id, _amount(body))}
        self.nothing_here()

    def on_delete(self, *path: str) -> dict[str, Any]:
        if path != ("admin", "faults"):
            self.nothing_here()
        self.server.faults.clear()
        return {"faults": []}

    def _order(self, order_id: str) -> dict[str, Any]:
        self.server.books.count("orders", order_id)
        self._before("orders", order_id)
        order = self.server.books.order(order_id)
        if order is None:
            refuse(404, f"There is no order {order_id}.")
        self._after("orders", order_id)
        return {**order}

    def _lookup(self, key: str) -> dict[str, Any]:
        found = self.server.books.find("refunds", key)
        about = found["order_id"] if found else ""
        self.server.books.count("lookups", about, key)
        self._before("lookups", about)
        if found is None:
            refuse(404, f"There is no refund with the request id {key}.")
        self._after("lookups", about)
        return found

    def _act(self, kind: str) -> dict[str, Any]:
        """Do what is asked for once per key, with all that was told to go wrong."""
        books = self.server.books
        body = self.read_object()
        key = self.headers.get("Idempotency-Key", "").strip()
        fields = ("order_id", "amount") if kind == "refunds" else ("user_id", "text")
        about = " ".join(str(body.get(name, "")) for name in fields if name != "amount")
        books.count(kind, str(body.get(fields[0], "")), key)
        if not key:
            refuse(400, "The header Idempotency-Key is missing.")
        body = {name: _text(body, name) for name in fields}
        try:
            with books.working_on(kind, key, body) as known:
                faults = self._before(kind, about)
                self._check(kind, body)
                acts = known is None or any(f.mode == "ignore_keys" for f in faults)
                reply = books.act(kind, key, body) if acts or known is None else known
        except InFlight:
            refuse(409, f"A call with the key {key} is in flight.")
        except OtherBody:
            refuse(422, f"The key {key} was used with another body.")
        if acts and self.server.faults.take(kind, about, HOLD):
            self.server.faults.hold(kind, about, key)
        self._after(kind, about)
        return reply

    def _check(self, kind: str, body: dict[str, Any]) -> None:
        if kind != "refunds":
            return
        amount, order = _amount(body), self.server.books.order(body["order_id"])
        if order is None:
            refuse(422, f"There is no order {body['order_id']}.")
        if amount != Decimal(order["amount"]):
            refuse(
                422, f"The amount of order {body['order_id']} is {order['amount']}, not {amount}."
            )

    def _before(self, target: str, about: str) -> list[Fault]:
        faults = self.server.faults.take(target, about, BEFORE)
        for fault in faults:
            match fault.mode:
                case "slow" | "hang":
                    usual = 1.0 if fault.mode == "slow" else 3600.0
                    self.server.faults.wait(usual if fault.seconds is None else fault.seconds)
                case "fail_before":
                    refuse(fault.status or 503, "The shop was told to fail before it acts.")
                case "refuse":
                    refuse(fault.status or 402, "The shop was told to refuse.")
                case "drop_before":
                    raise Dropped
                case "busy_429":
                    body = {"error": "The shop was told to be busy."}
                    raise Reply(429, body, Retry_After=f"{fault.retry_after:g}")
        return faults

    def _after(self, target: str, about: str) -> None:
        for fault in self.server.faults.take(target, about, AFTER):
            if fault.mode == "drop_after":
                raise Dropped
            refuse(fault.status or 500, "The shop was told to fail after it acted.")


def _added(faults: Faults, wanted: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"fault": vars(faults.add(wanted))}
    except BadFault as exc:
        refuse(400, str(exc))


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        refuse(400, f"The body's {name} is not a string, or is empty.")
    return value


def _amount(body: dict[str, Any]) -> Decimal:
    text = _text(body, "amount")
    if not _AMOUNT.fullmatch(text):
        refuse(400, "The body's amount is not a decimal string with at most two places.")
    return Decimal(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="infra.shop", description="The dev shop.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--books", type=Path, required=True, help="file that the books are kept in")
    parser.add_argument("--no-fsync", action="store_true", help="a power cut may lose the books")
    options = parser.parse_args()
    options.books.parent.mkdir(parents=True, exist_ok=True)
    try:
        books = Books(options.books, fsync=not options.no_fsync)
        server = ShopServer(options.host, options.port, books)
    except OSError as exc:
        sys.exit(f"The shop cannot listen on port {options.port}: {exc.strerror}. Choose another.")
    _end_on_signals(server)
    print(f"shop listening on http://{options.host}:{server.server_port}", flush=True)
    server.serve_forever()


def _end_on_signals(server: ShopServer) -> None:
    """Waited for, not handled: what a handler raises in a finalizer Python drops."""
    wanted = (signal.SIGTERM, signal.SIGINT)
    ending = {n for n in wanted if signal.getsignal(n) is not signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)

    def wait() -> None:
        signal.sigwait(ending)
        server.shutdown()

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
