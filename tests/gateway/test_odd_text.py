"""NUL, half a surrogate pair, far too much and nothing at all, in each text that comes in: it is
refused with a reason or taken as it is, never a fault of the gateway's and never half a stream.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from producers import Fleet
from tests.gateway.agui_streams import valid
from tests.gateway.agui_turns import Stream, Working, asked, write_agui_graphs
from tests.gateway.serving import Gateway, problem
from tests.harness import Database, Shop
from tests.integration.mailbox import INPUT, ask
from workers.drain import drain
from workers.slot import Slot

LONG = "x" * 10_000
#: As JSON has them, and as a path or a query has them.
TEXTS = {"nul": "a\x00b", "surrogate": "a\ud800b", "long": LONG, "empty": ""}
QUOTED: dict[str, Any] = {"nul": "a%00b", "surrogate": "a%ED%A0%80b", "long": LONG, "empty": ""}
#: What a header can hold.
HEADERS: dict[str, Any] = {"latin": b"a\xffb", "long": LONG.encode(), "empty": b""}
THERE = {"graph": "refund", "key": "A1001", "question": "q1", "session_id": "none"}
THREAD = "refund:A1001"
#: A good body for each door that takes one; every text in it is tried.
BODIES: dict[str, Any] = {
    "/threads/{graph}/{key}/messages": {
        "input": {"user_id": "u_42"},
        "kind": "start",
        "on_existing": "use_existing",
        "context": {"by": "x"},
        "config": {"tags": ["x"]},
    },
    "/threads/{graph}/{key}/questions/{question}/answer": {"value": "x", "answered_by": "x"},
    "/sessions": {"graph": "refund"},
    "/agent/run": asked(THREAD),
    "/agent/resume": {
        "thread_id": THREAD,
        "question_id": "q1",
        "action": "resolve",
        "value": "x",
        "message_id": "x",
    },
    "/agent/cancel": {"thread_id": THREAD},
}
#: A conversation with one of each that AG-UI has.
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
CONVERSATION = {
    "threadId": "talk:odd",
    "runId": "r1",
    "parentRunId": "r0",
    "messages": [
        {"id": "u1", "role": "user", "content": "before", "name": "Ann"},
        {"id": "a1", "role": "assistant", "content": "said", "toolCalls": [CALL]},
        {"id": "t1", "role": "tool", "content": "found", "toolCallId": "c1"},
        {"id": "s1", "role": "system", "content": "be kind"},
        {"id": "u2", "role": "user", "content": "hello"},
    ],
    "context": [{"description": "where", "value": "here"}],
    "state": {"seen": "much"},
    "tools": [{"name": "look", "description": "looks", "parameters": {"type": "object"}}],
    "forwardedProps": {"graph": "talk", "input": {"left": "x"}},
}


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def openapi(client: httpx.Client, fleet: Fleet, database: Database, graphs_file: Path) -> Any:
    """The document of a gateway with a thread that asks."""
    fleet.submit("refund", "A1001", INPUT)
    ask(database, THREAD, "q1")
    return client.get("/openapi.json").json()


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[None]:
    with Working(slot, database):
        yield


def test_in_every_parameter(client: httpx.Client, openapi: Any) -> None:
    """Of paths, queries and headers."""
    tried = 0
    for path, method, door in _doors(openapi):
        for parameter in door.get("parameters", ()):
            place, name = parameter["in"], parameter["name"]
            for kind, text in (HEADERS if place == "header" else QUOTED).items():
                there = THERE | ({name: text} if place == "path" else {})
                url = path.format(**there) + (f"?{name}={text}" if place == "query" else "")
                if path == "/agent/events" and name != "thread_id":
                    url += ("&" if "?" in url else "?") + f"thread_id={THREAD}"
                headers = {name: text} if place == "header" else {}
                where = f"{kind} in {name} of {method} {path}"
                _well(client, method, url, BODIES.get(path), where, headers)
                tried += 1
    assert tried > 100


def test_in_every_field_of_a_body(client: httpx.Client, openapi: Any) -> None:
    """Of each door that takes one."""
    doors = {path for path, _, door in _doors(openapi) if "requestBody" in door}
    assert doors == BODIES.keys()
    for path, method, door in _doors(openapi):
        if "requestBody" in door:
            for where, body in _changed(BODIES[path]):
                # Else the first one of them would be all that is heard of.
                headers = {"Idempotency-Key": "x"} if "/messages" in path else {}
                url = path.format(**THERE)
                _well(client, method, url, body, f"{where} of {path}", headers)


@pytest.mark.parametrize("text", QUOTED.values(), ids=QUOTED.keys())
def test_in_the_paths_of_pages(client: httpx.Client, text: str) -> None:
    """Which the document does not have."""
    for url in f"/answer/{text}", f"/chat?graph={text}", f"/chat/{text}", f"/{text}":
        for method in "GET", "POST":
            _well(client, method, url, {"value": text}, f"{method} {url}", {})


def test_in_every_field_of_a_frame(gateway: Gateway, graphs_file: Path) -> None:
    """A WebSocket answers it, or ends with a reason; never as one that has failed."""
    first = {"type": "init", "graph": "refund", "token": "x"}
    again = first | {"session_id": "none", "last_seq": "1-1"}
    answers = {"ack", "error", "cancelled", "authenticated", 1008}
    for where, frame in (*_changed(first), *_changed(again)):
        assert _answer(gateway, frame) in ("welcome", "error", 1008), where
    for frame in (
        {"type": "message", "content": "hi", "message_id": "m1"},
        {"type": "answer", "question_id": "q1", "value": {"a": "b"}, "message_id": "m1"},
        {"type": "cancel", "reason": "x"},
        {"type": "auth", "token": "x"},
    ):
        for where, changed in _changed(frame):
            found = _answer(gateway, {"type": "init", "graph": "refund"}, changed)
            assert found in answers, f"{where} of {frame['type']}"


def test_in_all_of_a_conversation(client: httpx.Client, working: None) -> None:
    """A run is refused at the door, or told to its end in whole events."""
    for n, (where, body) in enumerate(_changed(CONVERSATION)):
        if "threadId" not in where:
            body["threadId"] = f"talk:{n}"
        _well(client, "POST", "/agent/run", body, where, {})


@pytest.mark.parametrize("text", ["\x00", "\ud800", "", LONG])
def test_names_of_a_run_are_checked_at_the_door(
    client: httpx.Client, graphs_file: Path, text: str
) -> None:
    """400 for those that would be looked up or told, and nothing is accepted."""
    answered = {"interruptId": text, "status": "resolved", "payload": 1}
    for given in (
        asked("talk:1", text, ("u1", "hi")),
        asked("talk:1", "r1", (text, "hi")),
        asked("talk:1", "r1", resume=[answered]),
    ):
        problem(client.post("/agent/run", **_json(given)), 400, "invalid_key")
    assert client.get("/threads").json()["threads"] == []


def test_an_old_message_that_is_no_text_spoils_nothing(
    client: httpx.Client, working: None, shop: Shop
) -> None:
    """A client sends all of the conversation each time; what a graph without messages is told
    of it comes back, as far as it can be written."""
    order = shop.new_order("1500.00")
    given = asked(f"refund:{order}", forwardedProps={"input": INPUT})
    given["messages"] = [{"id": "a0", "role": "assistant", "content": "half \ud800"}]
    with client.stream("POST", "/agent/run", **_json(given)) as response:
        told = list(Stream(response))
    assert told[-1]["outcome"]["type"] == "interrupt"
    [whole] = [event["messages"] for event in told if event["type"] == "MESSAGES_SNAPSHOT"]
    assert whole == [{"id": "a0", "role": "assistant", "content": "half \ufffd"}]


def test_a_page_of_checkpoints_before_one_that_is_not_there(
    client: httpx.Client, slot: Slot, shop: Shop, fleet: Fleet
) -> None:
    """404, as with messages: not the newest page again."""
    order = shop.new_order("1500.00")
    drain(slot, fleet.submit("refund", order, INPUT).thread_id)
    path = f"/threads/refund/{order}/history"
    first, second, *_ = [c["checkpoint_id"] for c in client.get(path).json()["checkpoints"]]
    for name in ("zz", "0", second[:8]):
        problem(client.get(path, params={"before": name}), 404, "unknown_checkpoint")
    problem(client.get(f"{path}?before=%00"), 400, "invalid_key")
    found = client.get(path, params={"before": second}).json()["checkpoints"]
    assert [c["checkpoint_id"] for c in found] == [first]


def _doors(openapi: Any) -> Iterator[tuple[str, str, Any]]:
    """(path, method, operation)."""
    for path, operations in openapi["paths"].items():
        for method, door in operations.items():
            yield path, method, door


def _changed(body: Any) -> Iterator[tuple[str, Any]]:
    """(where, the body with one text of it replaced, or with one more key in an object)."""
    for path in _places(body):
        for kind, text in TEXTS.items():
            made = copy.deepcopy(body)
            *way, last = path
            at = made
            for step in way:
                at = at[step]
            at[text if last == _KEY else last] = text
            yield f"{kind} at {'.'.join(map(str, path))}", made


_KEY = "(a new key)"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict | list):
        if isinstance(value, dict):
            yield (*path, _KEY)
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, step))


def _answer(gateway: Gateway, *frames: Any) -> Any:
    """What the last of them is answered with: a frame's type, or the code of the end."""
    with connect(gateway.ws_url) as socket:
        try:
            for frame in frames:
                socket.send(json.dumps(frame))
                found = json.loads(socket.recv(timeout=30))["type"]
        except ConnectionClosed as closed:
            return closed.rcvd and closed.rcvd.code
        return found


def _json(body: Any) -> dict[str, Any]:
    """As JSON.stringify has it: half of a pair is an escape."""
    return {"content": json.dumps(body), "headers": {"content-type": "application/json"}}


def _well(client: httpx.Client, method: str, url: str, body: Any, where: str, headers: Any) -> None:
    """It is answered, not failed; a stream begins, and one with an end has it."""
    sent = {"headers": headers} if body is None else _json(body)
    sent["headers"] |= headers
    with client.stream(method, url, **sent) as response:
        assert response.status_code < 500, where
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.read()
            return
        stream = Stream(response)
        if url.startswith("/agent/events"):
            assert next(iter(stream))["type"] == "RUN_STARTED", where
            return
        try:
            told = list(stream)
        except httpx.RemoteProtocolError:
            raise AssertionError(f"half a stream: {where}") from None
        assert told[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR"), where
        assert valid(told), where
