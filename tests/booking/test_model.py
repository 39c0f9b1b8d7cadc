"""The booking assistant with a chat model for a planner, on a server that says what it is told."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.settings import get_settings
from producers import Fleet
from tests.booking.model import WISH, says
from tests.booking.talk import NOW, Talk, at
from tests.harness import Broker, Database, eventually
from tests.openai_server import OpenAIServer, Say, tool
from tests.worker_processes import Workers
from workers.slot import Slot

KEY = "sk-of-one-model-only-4711"


@pytest.fixture
def server(settings_env: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(says) as server:
        monkeypatch.setenv("FLEET_MODEL", "openai:test")
        monkeypatch.setenv("FLEET_MODEL_BASE_URL", server.url)
        monkeypatch.setenv("FLEET_BACKOFF_BASE", "0.01")
        get_settings.cache_clear()
        yield server


@pytest.fixture
def talk(server: OpenAIServer, slot: Slot, fleet: Fleet, database: Database) -> Talk:
    at(database, NOW)
    return Talk(slot, fleet, database)


def settled(talk: Talk) -> Talk:
    """Turns are done until the thread rests, whatever had to be tried again."""

    def rests() -> bool:
        talk.run()
        return talk.fleet.status(talk.thread_id).status in ("done", "waiting", "failed")

    eventually(rests, 60, interval=0.1)
    return talk


def test_a_model_books_a_room(talk: Talk, server: OpenAIServer) -> None:
    """With the same tools and questions as the rules; one call for each of its steps."""
    talk.say("a room for 8 tomorrow at 2pm")
    assert (talk.kind, talk.asked["message"]) == (
        *("select_room", "Which of these rooms would you like?"),
    )
    assert [c["id"] for c in talk.asked["data"]["candidates"]] == ["R3", "R4", "R5", "R6"]
    talk.say("the one with video")
    assert (talk.kind, talk.state["phase"]) == ("confirm", "CONFIRMING")
    talk.say("yes")
    assert talk.state["phase"] == "BOOKED"
    assert talk.bookings() == [("R4", "2030-06-04 14:00", 60, 8)]
    assert talk.texts("ai")[-1].startswith("All set. Booked: Orchid, Tue 4 Jun")
    assert len(server.asked) == 5
    calls = [e for e in talk.fleet.status(talk.thread_id).effects if e.name == "model.call"]
    assert [(e.state, e.attempts) for e in calls] == [("done", 1)] * 5
    told = server.asked[0].messages[0]
    assert told["role"] == "system" and "Monday 2030-06-03" in told["content"]


@pytest.mark.parametrize(
    ("name", "key", "model", "authorization"),
    [
        ("openai:test", None, "test", "Bearer none"),
        ("rooms-7b", None, "rooms-7b", "Bearer none"),
        ("rooms-7b", KEY, "rooms-7b", f"Bearer {KEY}"),
        ("openai:rooms-7b", KEY, "rooms-7b", f"Bearer {KEY}"),
    ],
)
def test_the_model_is_asked_by_its_name_and_with_its_key(
    talk: Talk,
    server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    key: str | None,
    model: str,
    authorization: str,
) -> None:
    """At a URL of one's own also without a provider in the name, and without a key."""
    monkeypatch.setenv("FLEET_MODEL", name)
    if key is not None:
        monkeypatch.setenv("FLEET_MODEL_API_KEY", key)
    get_settings.cache_clear()
    talk.say("a room for 8 tomorrow at 2pm")
    assert talk.kind == "select_room"
    assert {(a.body["model"], a.headers["authorization"]) for a in server.asked} == {
        (model, authorization)
    }


def test_the_models_key_is_told_to_nobody_else(
    workers: Workers, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """It is in no task, event, checkpoint or other row, and in no log, not even of a worker
    that says everything, about a call that failed."""
    at(database, NOW)
    thread_id = fleet.submit(
        "booking", "b1", {"messages": [{"role": "user", "content": "a room for 8 tomorrow"}]}
    ).thread_id
    tasks = in_broker(broker)
    with OpenAIServer([Say(status=503), tool("find_rooms", **WISH), Say("Not today.")]) as server:
        given = {"model": "rooms-7b", "model_base_url": server.url, "model_api_key": KEY}
        worker = workers.start("-l", "DEBUG", concurrency=1, backoff_base="0.01", **given)
        eventually(lambda: fleet.status(thread_id).status == "done", 60)
        assert [a.headers["authorization"] for a in server.asked] == [f"Bearer {KEY}"] * 3
    assert worker.terminate() == 0
    events, rows, log = in_broker(broker), in_tables(database), worker.log()
    for where, told in ((tasks, thread_id), (events, "Not today."), (rows, "Not today.")):
        assert told in where and KEY not in where
    assert "HTTP status error: 503" in log and KEY not in log


def in_broker(broker: Broker) -> str:
    """All that the broker holds, and the bodies of its tasks also as they are."""
    read: dict[bytes, Callable[[Any], Any]] = {
        b"list": lambda key: broker.client.lrange(key, 0, -1),
        b"stream": broker.client.xrange,
        b"hash": broker.client.hgetall,
        b"set": broker.client.smembers,
        b"zset": lambda key: broker.client.zrange(key, 0, -1),
        b"string": broker.client.get,
    }
    found = {key: read[broker.client.type(key)](key) for key in broker.client.scan_iter()}
    text = repr(found)
    bodies = re.findall(r'"body": "([A-Za-z0-9+/=]+)"', text)
    return text + "".join(base64.b64decode(body).decode() for body in bodies)


def in_tables(database: Database) -> str:
    """All rows of all tables."""
    tables = database.fetch(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    with database.connect() as conn:
        conn.execute("SET bytea_output = 'escape'")
        rows = [conn.execute(f"SELECT t::text FROM {name} t").fetchall() for (name,) in tables]
    return repr(rows)


def test_after_a_booking_the_model_sees_none_of_it(talk: Talk, server: OpenAIServer) -> None:
    """Neither messages nor calls nor rooms nor wishes of the request before."""
    talk.say("a room for 8 tomorrow at 2pm").say("the one with video").say("yes")
    server.asked.clear()
    talk.say("谢谢，再订一间")
    [system, only] = server.asked[0].messages
    assert (only["role"], only["content"]) == ("user", "谢谢，再订一间")
    for word in ("R4", "Orchid", "兰", "14:00", "booked", "8"):
        assert word not in system["content"].partition("So far:")[2], system["content"]


@pytest.mark.parametrize("answer", ["hm, not sure", "no", "maybe yes maybe no"])
def test_a_model_that_books_without_a_yes_is_refused(
    talk: Talk, server: OpenAIServer, answer: str
) -> None:
    """Whatever it says the person meant, and whichever room it names."""
    talk.say("a room for 8 tomorrow at 2pm").say("the one with video")
    server.script = [tool("book_room", room_id="R4"), tool("book_room", room_id="R3")]
    server.script += [tool("ask_user", message="Shall I?")]
    talk.say(answer)
    assert talk.kind == "clarify" and talk.bookings() == []
    results = [m for m in talk.state["messages"] if m["type"] == "tool"][-2:]
    assert [m["status"] for m in results] == ["error", "error"]
    assert "confirm_booking first" in results[0]["content"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (Say(tools=(("find_rooms", '{"people": 1'),), finish="length"), "find_rooms"),
        (Say(tools=(("find_rooms", "[8]"),)), "find_rooms"),
        (tool("find_rooms", guests=8), "guests"),
        (tool("find_rooms", people="many"), "people"),
        (tool("find_rooms", date="tomorrow"), "date"),
        (tool("find_rooms", people=10**30), "people"),
        (tool("find_rooms", minutes=-(10**30)), "minutes"),
        (tool("find_rooms", equipment=[{"of": 10**30}]), "equipment"),
        (tool("find_rooms", date="9999-12-31", start="23:30", people=4), "no such day"),
        (tool("find_rooms", date="2027-02-29"), "no such day"),
        (tool("no_such_tool"), "There is no tool no_such_tool"),
        (tool("confirm_booking", room_id="R77", message="?"), "R77 is not among the rooms"),
        (tool("offer_rooms", message="Which?"), "call find_rooms first"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_to_the_model(
    talk: Talk, server: OpenAIServer, bad: Say, told: str
) -> None:
    """And its next one counts."""
    server.script = [bad, tool("ask_user", message="How many?")]
    talk.say("a room")
    assert talk.asked["message"] == "How many?"
    [result] = [m for m in server.asked[1].messages if m["role"] == "tool"]
    assert told in result["content"]


def test_a_model_that_never_comes_to_an_end_is_stopped(talk: Talk, server: OpenAIServer) -> None:
    """After so many steps for one message; the next message starts anew."""
    server.script = lambda _: tool("find_rooms", **WISH)
    talk.say("a room for 8 tomorrow at 2pm")
    assert talk.fleet.status(talk.thread_id).status == "done"
    assert "could not get this done" in talk.texts("ai")[-1]
    assert len(server.asked) == 16
    server.script = says
    talk.say("a room for 8 tomorrow at 2pm")
    assert talk.kind == "select_room"


def test_words_without_a_tool_are_an_answer(talk: Talk, server: OpenAIServer) -> None:
    """The turn ends with them, and the next message belongs to the same request; no words at
    all leave it to the rules."""
    server.script = [Say("For how many people?"), Say(""), *[tool("ask_user", message="Yes?")]]
    talk.say("a room tomorrow at 2pm")
    assert talk.fleet.status(talk.thread_id).status == "done"
    talk.say("8")
    assert [m["role"] for m in server.asked[1].messages] == ["system", "user", "assistant", "user"]
    assert talk.kind == "clarify"


WHAT = tool("ask_user", message="For how many?")
FOUND = tool("find_rooms", date="2030-06-04", people=8)


def test_words_after_a_cancel_belong_to_the_next_request(talk: Talk, server: OpenAIServer) -> None:
    """The question that the cancel closed says nothing of a turn that came after it."""
    server.script = [WHAT, FOUND, Say("What time?"), tool("find_rooms", **WISH), WHAT]
    talk.say("a room")
    talk.fleet.cancel(talk.thread_id)
    talk.run().say("a room for 8 tomorrow")
    since = talk.state["since"]
    talk.say("at 2pm")
    assert talk.state["since"] == since and talk.state["candidates"]
    assert "a room for 8 tomorrow" in [m["content"] for m in server.asked[-1].messages]


def test_words_after_a_burst_belong_to_its_request(talk: Talk, server: OpenAIServer) -> None:
    """The question that the second message met is closed, and calls nothing off."""
    server.script = [WHAT, FOUND, Say("What time?"), tool("find_rooms", **WISH), WHAT]
    first, second = (
        {"messages": [{"role": "user", "content": text}]} for text in ("a room", "for 8 tomorrow")
    )
    talk.fleet.submit("booking", "b1", first)
    talk.fleet.send(talk.thread_id, second)
    talk.run()
    assert talk.kind is None and talk.texts("ai")[-1].startswith("What time?")
    talk.say("at 2pm")
    said = [m["content"] for m in server.asked[-1].messages if m["role"] == "user"]
    assert said == ["a room", "for 8 tomorrow", "at 2pm"] and talk.state["candidates"]


def test_several_calls_at_once_are_done_one_by_one(talk: Talk, server: OpenAIServer) -> None:
    """Up to a question; what was decided without its answer is not done, and has a result."""
    calls = (("find_rooms", WISH), ("offer_rooms", {"message": "Which?"}))
    server.script = [Say(tools=(*calls, ("book_room", {"room_id": "R4"})))]
    talk.say("a room for 8 tomorrow at 2pm")
    assert talk.kind == "select_room"
    server.script = says
    talk.say("the one with video")
    assert talk.kind == "confirm" and talk.bookings() == []
    roles = [m["role"] for m in server.asked[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "tool", "user"]
    assert "Not done" in server.asked[-1].messages[5]["content"]


@pytest.mark.parametrize(
    "trouble",
    [
        Say(status=429, retry_after=0.01),
        Say(status=503),
        Say("one two three", cut=3),
        Say("one two three", stop=3),
        Say(tools=(("find_rooms", WISH),), cut=2),
    ],
)
def test_a_server_in_trouble_costs_no_booking(
    talk: Talk, server: OpenAIServer, trouble: Say
) -> None:
    """Rate limits, failures and half answers at each step: the story is the same."""
    troubled: set[int] = set()

    def script(body: dict[str, Any]) -> Say:
        step = len(body["messages"])
        if step not in troubled:
            troubled.add(step)
            return trouble
        return says(body)

    server.script = script
    for text in ("a room for 8 tomorrow at 2pm", "the one with video", "yes"):
        settled(talk.say(text))
    assert talk.bookings() == [("R4", "2030-06-04 14:00", 60, 8)]
    assert talk.texts("ai")[-1].startswith("All set.")
    assert not [t for t in talk.texts("ai") if t.startswith("one")]
    assert len(server.asked) == 10


def test_a_call_without_its_result_is_repaired_before_the_next(
    talk: Talk, server: OpenAIServer, database: Database
) -> None:
    """The message died in the tool and was dropped: the model is told, and goes on."""
    database.fetch("ALTER TABLE booking.rooms RENAME TO away")
    talk.say("a room for 8 tomorrow at 2pm")
    assert talk.fleet.status(talk.thread_id).status == "failed"
    database.fetch("ALTER TABLE booking.away RENAME TO rooms")
    talk.fleet.drop(talk.thread_id)
    talk.say("and now?")
    [_, first, call, result, again] = server.asked[1].messages
    assert [m["role"] for m in (first, call, result, again)] == [
        *("user", "assistant", "tool", "user"),
    ]
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "no result" in result["content"]
    assert talk.kind == "select_room"


def told(broker: Broker, thread_id: str) -> list[dict[str, Any]]:
    """The thread's events in the broker, in order."""
    batches = broker.client.xrange(f"fleet:events:{thread_id}")
    return [event for _, fields in batches for event in json.loads(fields[b"e"])]


def test_people_see_the_model_write(talk: Talk, server: OpenAIServer, broker: Broker) -> None:
    """Its tokens as they come; and what half an answer left is void by the next attempt."""
    server.script = [Say("one two three", cut=3), Say("four five six")]
    settled(talk.say("hello"))
    assert talk.slot.publisher.flush(5)
    events = told(broker, talk.thread_id)
    turns = [n for n, e in enumerate(events) if e["type"] == "turn"]
    assert [events[n]["data"]["attempt"] for n in turns] == [1, 2]
    texts = [
        "".join(e["data"]["text"] for e in part if e["type"] == "token")
        for part in (events[: turns[1]], events[turns[1] :])
    ]
    assert texts == ["one two ", "four five six "]
    [whole] = [e["data"] for e in events if e["data"].get("role") == "assistant"]
    tokens = {e["data"]["message_id"] for e in events[turns[1] :] if e["type"] == "token"}
    assert whole["text"] == texts[1]
    assert tokens == {whole.get("streamed_as", whole["message_id"])}
