"""Nodes that call the outside in all the ways that doctor reads; none is ever run."""

import smtplib
import sqlite3
import urllib.request
from typing import Any

import httpx
import psycopg
import redis
from httpx import post as send_it
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from graphs.effects import effect


class State(TypedDict):
    """Nothing much."""

    url: str


shared = httpx.Client(base_url="http://127.0.0.1:1")


def given() -> httpx.Client:
    return shared


@effect("calling.protected", on_doubt="park")
def protected(url: str, *, request_id: str) -> int:
    return httpx.post(url, headers={"Idempotency-Key": request_id}).status_code


class Caller:
    """A node that is an object, with clients of all kinds on it."""

    __slots__ = ("made", "nothing", "slotted")
    late: httpx.Client | None

    def __init__(self) -> None:
        self.slotted = httpx.Client()
        self.made = self.nothing = None

    def __call__(self, state: State) -> dict[str, Any]:
        self.slotted.post(state["url"])
        return {}


class Service:
    late: httpx.Client | None = None

    def __init__(self) -> None:
        self.client = httpx.Client()
        self.api = {"of": "no interest"}

    def node(self, state: State) -> dict[str, Any]:
        self.client.put(state["url"])
        return {}

    def by_own_method(self, state: State) -> dict[str, Any]:
        return self.helping(state)

    def helping(self, state: State) -> dict[str, Any]:
        self.client.delete(state["url"])
        return self.helping(state)

    def by_late_client(self, state: State) -> dict[str, Any]:
        self.late.patch(state["url"])  # type: ignore[union-attr]
        return {}

    def by_client_made_now(self, state: State) -> dict[str, Any]:
        self.now = httpx.Client()
        self.now.post(state["url"])
        return {}

    def safe(self, state: State) -> dict[str, Any]:
        self.api.update(state)
        self.client.get(state["url"])
        return {}

    def protected(self, state: State) -> dict[str, Any]:
        protected.at("here")(state["url"])
        return {}


service = Service()


def by_method_of_a_global(state: State) -> dict[str, Any]:
    return service.helping(state)


def by_module(state: State) -> dict[str, Any]:
    httpx.post(state["url"])
    return {}


def by_name(state: State) -> dict[str, Any]:
    send_it(state["url"])
    return {}


def by_shared_client(state: State) -> dict[str, Any]:
    shared.delete(state["url"])
    return {}


def by_local_client(state: State) -> dict[str, Any]:
    with httpx.Client() as client:
        client.put(state["url"])
    return {}


def by_annotated_function(state: State) -> dict[str, Any]:
    given().patch(state["url"])
    return {}


def by_helper(state: State) -> dict[str, Any]:
    helper(state["url"])
    return {}


def helper(url: str) -> None:
    httpx.request("POST", url)


async def by_async_client(state: State) -> dict[str, Any]:
    async with httpx.AsyncClient() as client:
        await client.post(state["url"])
    return {}


def by_urllib(state: State) -> dict[str, Any]:
    urllib.request.urlopen(state["url"], data=b"{}")
    return {}


NAMED = "SELECT 1"


def by_sql(state: State) -> dict[str, Any]:
    with psycopg.connect("") as conn, conn.cursor() as cursor:
        cursor.execute("INSERT INTO paid VALUES (1)")
    return {}


def by_word(state: State) -> dict[str, Any]:
    with psycopg.connect("") as conn:
        conn.execute(NAMED)  # fleet: reads
    return {}


def by_argument(state: State, conn: "sqlite3.Connection | None" = None) -> dict[str, Any]:
    db: sqlite3.Connection = sqlite3.connect(":memory:")
    db.execute("DELETE FROM paid")
    return {}


def by_mail(state: State) -> dict[str, Any]:
    with smtplib.SMTP("127.0.0.1") as server:
        server.starttls()
        server.login("u", "p")
        server.sendmail("a", "b", "c")
    return {}


def by_redis(state: State) -> dict[str, Any]:
    redis.Redis.from_url("redis://").incr("paid")
    return {}


def reading(state: State) -> dict[str, Any]:
    with httpx.Client() as client:
        answer = client.get(state["url"])
        answer.raise_for_status()
    client.request("GET", state["url"]).json()
    urllib.request.urlopen(state["url"]).read()
    with psycopg.connect("") as conn:
        conn.execute("SELECT 1").fetchone()
    return {"url": redis.Redis.from_url("redis://").get("url")}


def behind_an_effect(state: State) -> dict[str, Any]:
    protected(state["url"])
    protected.keyed("k")(url=state["url"])
    return {}


def no_client(state: State) -> dict[str, Any]:
    post = {"delete": 1}.copy
    return {"url": str(post())}


def perhaps(state: State, api: Any = None) -> dict[str, Any]:
    api.post(state["url"])
    return {}


_PLAIN = (
    by_module,
    by_name,
    by_shared_client,
    by_local_client,
    by_annotated_function,
    by_helper,
    by_async_client,
    by_urllib,
    by_sql,
    by_word,
    by_argument,
    by_mail,
    by_redis,
    by_method_of_a_global,
    reading,
    behind_an_effect,
    no_client,
    perhaps,
)
NODES: dict[str, Any] = {function.__name__: function for function in _PLAIN} | {
    "by_object": Caller(),
    "by_bound_method": service.node,
    "by_own_method": service.by_own_method,
    "by_late_client": service.by_late_client,
    "by_client_made_now": service.by_client_made_now,
    "safe_object": service.safe,
    "protected_object": service.protected,
}


def build(*names: str) -> StateGraph[State]:
    """A graph of these nodes."""
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, NODES[name])
        builder.add_edge(START, name)
    return builder


graph = build("by_module", "reading", "behind_an_effect")
clean = build("reading", "behind_an_effect")
