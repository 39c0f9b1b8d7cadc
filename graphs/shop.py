"""The shop over HTTP: the outside of the refund graph.

One client per process, made after the fork. Amounts are decimals end to end: as text on
the wire, never a float in between.
"""

import json
import os
import threading
from decimal import Decimal, InvalidOperation
from typing import Any, TypedDict
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from graphs import faults
from graphs.control import RetryLater
from graphs.errors import EffectOutsideTurn
from graphs.running import current_call
from infra.errors import SettingsError
from infra.settings import get_settings

TIMEOUT = 10.0


class Order(TypedDict):
    """An order; ``amount`` is decimal text."""

    order_id: str
    user_id: str
    amount: str


class Receipt(TypedDict):
    """What the shop says of a refund."""

    refund_id: str
    status: str


_clients: dict[tuple[int, str], httpx.Client] = {}
_lock = threading.Lock()


def client() -> httpx.Client:
    """The process's client. Raises SettingsError when no shop is set."""
    url = get_settings().shop_url
    if not url:
        raise SettingsError(
            "No address of the shop is set.",
            "Run `fleet up` in this folder, or set FLEET_SHOP_URL.",
        )
    # A forked child must not share its parent's sockets.
    found = _clients.get((os.getpid(), url))
    if found is None:
        with _lock:
            found = _clients.setdefault(
                (os.getpid(), url), httpx.Client(base_url=url, timeout=TIMEOUT)
            )
    return found


def get_order(order_id: str) -> Order | None:
    """The order, or None. Asks again for a while; then the turn comes back later."""
    retrying = Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_attempt(4),
        wait=wait_exponential_jitter(multiplier=0.1, max=2, jitter=0.2),
        reraise=True,
    )
    try:
        response = retrying(_get, f"/orders/{quote(order_id, safe='')}")
    except Exception as exc:
        if _passes(exc):
            raise RetryLater(
                faults.retry_after(exc), f"order {order_id}: {faults.describe(exc)}", True
            ) from exc
        raise
    if response is None:
        return None
    body = json.loads(response.content, parse_float=Decimal)
    try:
        return Order(
            order_id=order_id, user_id=str(body["user_id"]), amount=_amount(body["amount"])
        )
    except (KeyError, TypeError, InvalidOperation) as exc:
        raise ValueError(f"the shop's answer for order {order_id} is no order: {body}") from exc


def post_refund(order_id: str, amount: Decimal, *, request_id: str) -> Receipt:
    """Refund the order. The same request id gives the same answer, and refunds once."""
    body = {"order_id": order_id, "amount": format(amount, "f")}
    return _receipt(_post("/refunds", body, request_id))


def post_notification(user_id: str, text: str, *, request_id: str) -> dict[str, Any]:
    """Tell the user something, once per request id."""
    return _object(_post("/notifications", {"user_id": user_id, "text": text}, request_id))


def _get(path: str) -> httpx.Response | None:
    response = client().get(path)
    if response.status_code == 404:
        return None
    return response.raise_for_status()


def _post(path: str, body: dict[str, str], request_id: str) -> httpx.Response:
    headers = {"Idempotency-Key": request_id}
    return client().post(path, json=body, headers=headers, timeout=_limit()).raise_for_status()


def _limit() -> float:
    """Seconds: the effect's, which can't end a call of ours by itself."""
    try:
        return current_call().timeout
    except EffectOutsideTurn:
        return TIMEOUT


def _receipt(response: httpx.Response) -> Receipt:
    body = _object(response)
    try:
        return Receipt(refund_id=str(body["refund_id"]), status=str(body["status"]))
    except KeyError as exc:
        raise faults.Transient(f"the shop's answer has no {exc}: {response.text[:200]}") from exc


def _object(response: httpx.Response) -> dict[str, Any]:
    """The answer's JSON object. Whatever else came back says nothing of what was done."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise faults.Transient(f"the shop's answer is no JSON object: {response.text[:200]}")
    return body


def _passes(exc: BaseException) -> bool:
    return faults.classify(exc, "resend") in ("never_sent", "transient")


def _amount(value: Any) -> str:
    amount = Decimal(str(value))
    if not amount.is_finite() or isinstance(value, bool):
        raise InvalidOperation(f"{value!r} is no amount")
    return str(amount)
