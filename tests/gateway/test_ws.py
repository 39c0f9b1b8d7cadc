"""Chat pages over real WebSockets: what they are told, and that no disconnect loses anything."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from infra.settings import get_settings
from producers import Fleet
from producers.gateway import slow, ws_connection, ws_opening
from producers.gateway.ws_messages import MAX_FRAME
from producers.live.ids import EventId
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway, token
from tests.harness import ROOT, Broker, Database, eventually
from workers.drain import drain
from workers.slot import Slot

Work = Callable[[Page], None]


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    path = tmp_path / "langgraph.json"
    place = f"{ROOT}/tests/graphs/chatter.py:graph"
    graphs = {"talk": place, "secret": {"path": place, "sensitive": True}}
    path.write_text(json.dumps({"dependencies": [str(ROOT)], "graphs": graphs}))
    database.register(path)
    return path


@pytest.fixture
def work(slot: Slot) -> Work:
    """Does the turns of a page's thread, as a worker would."""

    def run(page: Page) -> None:
        drain(slot, next(f["thread_id"] for f in page.frames if f["type"] == "welcome"))

    return run


@pytest.fixture
def page(gateway: Gateway, graphs_file: Path) -> Iterator[Page]:
    """A page with a session of its own."""
    with Page(gateway) as page:
        page.until("welcome")
        yield page


def leave(page: Page, database: Database) -> None:
    """The page is closed, and Postgres knows."""
    there = "SELECT count(*) FROM fleet.presence"
    eventually(lambda: database.value(there))
    page.close()
    eventually(lambda: database.value(there) == 0)


def refused(page: Page) -> tuple[dict[str, Any], int | None]:
    """The error that a page is told at its beginning, and the code of the end."""
    error = page.until("error")
    return error, page.closed()[0]


# The beginning


def test_who_says_nothing_is_shut_out(
    gateway: Gateway, graphs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that an init has."""
    monkeypatch.setattr(ws_opening, "INIT_WITHIN", 0.1)
    with connect(gateway.ws_url) as socket:
        assert json.loads(socket.recv(timeout=10))["code"] == "no_init"
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=10)
    assert caught.value.rcvd is not None and caught.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("init", "code"),
    [
        ({"graph": "tlak"}, "unknown_graph"),
        ({"graph": None}, "invalid_message"),
        ({"graph": None, "session_id": "x" * 32}, "unknown_session"),
        ({"last_seq": "yesterday"}, "invalid_event_id"),
        ({"graph": "x" * 65}, "invalid_message"),
    ],
)
def test_an_init_that_fits_nothing_is_refused(
    gateway: Gateway, graphs_file: Path, init: dict[str, Any], code: str
) -> None:
    """With the reason, and not to be tried again."""
    with Page(gateway, **init) as page:
        error, closed = refused(page)
    assert (error["code"], error["retry"], closed) == (code, False, 1008)


def test_init_comes_first(gateway: Gateway, graphs_file: Path) -> None:
    """Nothing is done for who has not said who they are."""
    with connect(gateway.ws_url) as socket:
        socket.send('{"type": "ping"}')
        assert json.loads(socket.recv(timeout=10))["code"] == "no_init"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_is_refused(gateway: Gateway, origin: str) -> None:
    """At the handshake, before anything else."""
    with pytest.raises(InvalidStatus) as caught:
        Page(gateway, origin=origin)
    assert caught.value.response.status_code == 403


def test_a_page_of_the_gateway_s_own_is_let_in(gateway: Gateway, graphs_file: Path) -> None:
    """Its address is the one that it came from."""
    with Page(gateway, origin=gateway.url) as page:
        assert page.until("welcome")["resumed"] is False


@pytest.mark.parametrize(
    "who",
    [
        None,
        "nonsense",
        {"user": "u_1", "expires_in": -60},
        {"user": "u_2"},
        {"user": "u_1", "tenant": "acme"},
        {"user": "u_9", "tenant": "acme", "roles": ["operator"]},
    ],
)
def test_a_session_exists_for_its_owner_only(guarded: Gateway, graphs_file: Path, who: Any) -> None:
    """Others are told the same as of one that there never was."""
    with Page(guarded, token=token("u_1")) as mine:
        mine.until("welcome")
    given = token(**who) if isinstance(who, dict) else who
    told = []
    for name in (mine.session_id, "x" * 32):
        with Page(guarded, None, session_id=name, token=given) as page:
            told.append(refused(page))
    assert told[0] == told[1] and told[0][1] == 1008
    assert "welcome" not in page.types()


def test_a_role_may_join_what_it_may_see(guarded: Gateway, graphs_file: Path) -> None:
    """And do what it may do: to look on is not to speak."""
    with Page(guarded, token=token("u_1")) as mine:
        mine.until("welcome")
        with Page(guarded, None, session_id=mine.session_id, token=guarded.key("viewer")) as page:
            assert page.until("welcome")["resumed"] is True
            page.send("message", content="hi", message_id="m")
            assert page.until("error", "ack")["code"] == "forbidden"
            page.send("cancel")
            assert page.until("error", "cancelled")["code"] == "forbidden"
    with Page(guarded, token=guarded.key("viewer")) as page:
        assert refused(page)[0]["code"] == "forbidden"


# A conversation


def test_what_is_said_is_acknowledged_and_answered(page: Page, work: Work) -> None:
    """The answer as tokens and as a message, then the end, in order."""
    name = page.say("hello there")
    work(page)
    end = page.until("complete")
    assert end["message"] == "You said hello there"
    tokens = [f["text"] for f in page.frames if f["type"] == "token"]
    assert "".join(tokens) == "You said hello there"
    said = [f for f in page.frames if f["type"] == "message" and f["role"] == "assistant"]
    assert [m["text"] for m in said] == ["You said hello there"]
    received = [f["event"]["data"] for f in page.frames if f["type"] == "event"]
    assert {"message_id": name, "content": "hello there"}.items() <= next(
        d for d in received if d.get("content")
    ).items()


def test_every_page_of_a_session_gets_everything_once(
    gateway: Gateway, page: Page, work: Work
) -> None:
    """What the other one said, too; and one that closes changes nothing for the others."""
    with Page(gateway, None, session_id=page.session_id) as other:
        other.until("welcome")
        other.say("one")
        work(page)
        ends = page.until("complete"), other.until("complete")
        assert ends[0] == ends[1]
    page.say("two")
    work(page)
    assert page.until("complete")["message"] == "You said two"
    with other.again(gateway) as back:
        back.until("history_batch")
        assert back.seq == page.seq


@pytest.mark.parametrize("words", ["hello", "ask What is your name?"])
def test_a_message_that_comes_twice_counts_once(
    gateway: Gateway, page: Page, work: Work, database: Database, words: str
) -> None:
    """Also after a reconnect, and after a question was asked meanwhile that text answers."""
    name = page.say(words)
    work(page)
    page.until("complete", "interrupt")
    with page.again(gateway) as back:
        back.until("welcome")
        back.send("message", content=words, message_id=name)
        ack = back.until("ack", "error")
        assert (ack["as"], ack["duplicate"]) == ("start", True)
        back.send("message", content="other words", message_id=name)
        assert back.until("ack", "error")["code"] == "message_conflict"
    assert database.value("SELECT count(*) FROM fleet.messages") == 1


def test_two_pages_that_begin_at_once_are_both_heard(
    gateway: Gateway, page: Page, work: Work, database: Database
) -> None:
    """The second word is the next message of the chat that the first one began."""
    with Page(gateway, None, session_id=page.session_id) as other:
        other.until("welcome")
        for n, one in enumerate((page, other)):
            one.send("message", content=f"word {n}", message_id=f"m{n}")
        acks = [one.until("ack", "error") for one in (page, other)]
    assert sorted(ack["as"] for ack in acks) == ["input", "start"]
    assert database.value("SELECT count(*) FROM fleet.messages") == 2


def test_a_message_answers_the_one_question_that_takes_text(page: Page, work: Work) -> None:
    """And is acknowledged as the answer that it is; sent again it still is that one."""
    page.say("ask What is your name?")
    work(page)
    asked = page.until("interrupt")
    assert (asked["kind"], asked["message"]) == ("clarify", "What is your name?")
    assert (asked["phase"], asked["text"]) == ("ASKING", True)
    for duplicate in (False, True):
        page.send("message", content="Ada", message_id="m2")
        ack = page.until("ack", "error")
        assert (ack["as"], ack["question_id"]) == ("answer", asked["question_id"])
        assert ack["duplicate"] is duplicate
    work(page)
    assert page.until("complete")["message"] == "Ada"


def test_what_is_said_together_with_the_init_comes_after_it(
    gateway: Gateway, page: Page, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that comes back with an answer in hand need not wait for its welcome."""
    head = ws_connection.Connection._head

    async def late(self: ws_connection.Connection, seen: EventId) -> EventId | None:
        await asyncio.sleep(0.5)
        return await head(self, seen)

    monkeypatch.setattr(ws_connection.Connection, "_head", late)
    page.say("ask What is your name?")
    work(page)
    page.until("interrupt")
    with page.again(gateway) as back:
        back.send("message", content="Ada", message_id="m2")
        assert back.next()["type"] == "welcome"
        assert back.until("ack", "error").get("as") == "answer"


def test_other_questions_are_answered_by_their_id(gateway: Gateway, page: Page, work: Work) -> None:
    """Once: the second page is told who was first."""
    page.say("choose Which room?")
    work(page)
    asked = page.until("interrupt")
    assert asked["data"]["candidates"][1]["id"] == "r2" and asked["text"] is False
    page.send("message", content="the second one", message_id="m2")
    assert page.until("ack", "error")["code"] == "question_open"
    with Page(gateway, None, session_id=page.session_id) as other:
        batch = other.until("history_batch")
        assert [q["question_id"] for q in batch["questions"]] == [asked["question_id"]]
        answer = {"question_id": asked["question_id"], "value": "r2"}
        page.send("answer", **answer, message_id="a1")
        assert page.until("ack", "error")["as"] == "answer"
        other.send("answer", **answer, message_id="a2")
        error = other.until("ack", "error")
        assert (error["code"], error["reason"]) == ("answer_refused", "already_answered")
        assert error["message_id"] == "a2"
        work(page)
        assert other.until("complete")["message"] == "You chose r2"


def test_an_answer_by_another_door_is_the_same_answer(
    page: Page, work: Work, database: Database, broker: Broker
) -> None:
    """The page sees what became of it."""
    page.say("ask Name?")
    work(page)
    asked = page.until("interrupt")
    with Fleet(database.url, broker.url) as fleet:
        thread = page.frames[0]["thread_id"]
        fleet.answer(thread, asked["question_id"], "Grace", answered_by="cli")
    work(page)
    assert page.until("complete")["message"] == "Grace"


def test_a_turn_that_fails_is_an_error_and_the_connection_goes_on(page: Page, work: Work) -> None:
    """It has a seq, which refusals have not."""
    page.say("fail it is broken")
    work(page)
    error = page.until("error")
    assert error["code"] == "turn_dead" and error["seq"] and error["retry"] is False
    page.send("ping")
    assert page.until("pong")["timestamp"]


def test_cancel_calls_off_what_waits(page: Page, work: Work, database: Database) -> None:
    """A session in which nothing was said has nothing to call off."""
    page.send("cancel")
    assert page.until("cancelled")["outcome"] == "finished"
    page.say("ask Name?")
    work(page)
    page.until("interrupt")
    page.send("cancel")
    assert page.until("cancelled")["outcome"] == "cancelled"
    seen = database.value("SELECT fleet.session_seen(s) FROM fleet.sessions s")
    assert seen["state"] == "cancelled"


# Coming back


def test_what_was_missed_comes_as_one_batch_and_then_what_happens(
    gateway: Gateway, page: Page, work: Work
) -> None:
    """Exactly what came after the last event that the page had."""
    with Page(gateway, None, session_id=page.session_id) as other:
        other.until("welcome")
        page.say("one")
        work(page)
        page.until("complete")
        other.until("complete")
        page.close()
        other.say("two")
        work(page)
        other.until("complete")
        whole = [f for f in other.frames if "seq" in f]
        with page.again(gateway) as back:
            batch = back.until("history_batch")
            assert back.types() == ["welcome", "history_batch"]
            assert back.frames[0]["resumed"] is True
            had = next(n for n, f in enumerate(whole) if f["seq"] == page.seq)
            durable = [f for f in whole[had + 1 :] if f["type"] != "token" and "-0" not in f["seq"]]
            assert [f for f in batch["events"] if f in durable] == durable
            assert all(f in whole for f in batch["events"])
            assert batch["last_seq"] == other.seq == back.seq
            other.say("three")
            work(page)
            assert back.until("complete") == other.until("complete")


def test_a_page_that_has_nothing_gets_how_things_stand(
    gateway: Gateway, page: Page, work: Work
) -> None:
    """Messages, the open question and the state: what a reload shows."""
    page.say("hello")
    work(page)
    page.until("complete")
    page.say("ask Name?")
    work(page)
    page.until("interrupt")
    page.until("event")
    with Page(gateway, None, session_id=page.session_id) as back:
        back.until("recovery_complete")
        assert back.types() == ["welcome", "recovery_start", "history_batch", "recovery_complete"]
        start, batch = back.frames[1:3]
    assert start["reason"] == "first" and batch["state"] == "interrupted"
    texts = [(m["role"], m["text"]) for m in batch["messages"]]
    assert texts == [("user", "hello"), ("assistant", "You said hello"), ("user", "ask Name?")]
    assert batch["questions"][0]["message"] == "Name?"
    assert batch["last_seq"] == page.seq


def test_who_comes_back_after_the_window_finds_the_session_rebuilt(
    gateway: Gateway, page: Page, work: Work, database: Database
) -> None:
    """From the checkpoint, with its question, which a plain message then answers."""
    page.say("ask Name?")
    work(page)
    page.until("interrupt")
    leave(page, database)
    database.fetch("SELECT fleet.move_clock('301 s')")
    with page.again(gateway) as back:
        batch = back.until("history_batch")
        assert back.frames[1] == {"type": "recovery_start", "reason": "away"}
        assert batch["questions"][0]["message"] == "Name?"
        back.say("Ada")
        work(page)
        assert back.completed() == "Ada"


def test_a_session_outlives_its_gateway_and_the_broker_s_memory(
    gateway: Gateway, page: Page, work: Work, broker: Broker, fleet_settings: dict[str, Any]
) -> None:
    """All of it is in Postgres; and all gateways are alike."""
    page.say("ask Name?")
    work(page)
    page.until("interrupt")
    gateway.end()
    assert page.closed()[0] == 1012
    broker.client.flushdb()
    with (
        Gateway(**fleet_settings, gateway_auth="off") as another,
        page.again(another) as back,
        page.again(another, last_seq=None) as reloaded,
    ):
        assert back.until("welcome")["state"] == "interrupted"
        reloaded.until("recovery_complete")
        back.say("ask Really?")
        work(page)
        back.completed()
        reloaded.completed()


def test_a_turn_does_not_mind_that_nobody_is_there(
    gateway: Gateway, page: Page, work: Work
) -> None:
    """Said and gone: the answer is there for who comes back."""
    page.say("hello")
    page.close()
    work(page)
    with page.again(gateway) as back:
        back.shown("You said hello")


def test_a_sensitive_session_asks_for_a_fresh_token(
    guarded: Gateway, graphs_file: Path, database: Database
) -> None:
    """After a longer absence; one that was made before it is none."""
    with Page(guarded, "secret", token=token("u_1")) as page:
        page.until("welcome")
        leave(page, database)
    with page.again(guarded, token=token("u_1")) as back:
        back.until("welcome")
        leave(back, database)
    database.fetch("UPDATE fleet.sessions SET last_seen_at = fleet.now() - interval '1 hour'")
    old = token("u_1", iat=time.time() - 7200)
    with page.again(guarded, token=old) as back:
        for _ in range(2):
            assert back.next()["code"] == "fresh_token_needed"
            back.send("auth", token=old)
        assert back.next()["code"] == "fresh_token_needed"
        back.send("auth", token=token("u_1", iat=time.time()))
        assert back.next()["type"] == "welcome"


def test_a_fresh_token_of_somebody_else_opens_nothing(
    guarded: Gateway, graphs_file: Path, database: Database
) -> None:
    """Who signs in in another's place finds no session."""
    with Page(guarded, "secret", token=token("u_1")) as page:
        page.until("welcome")
        leave(page, database)
    database.fetch("UPDATE fleet.sessions SET last_seen_at = fleet.now() - interval '1 hour'")
    with page.again(guarded, token=token("u_1")) as back:
        assert back.next()["code"] == "fresh_token_needed"
        back.send("auth", token=token("u_2", iat=time.time()))
        assert back.until("error")["code"] == "unknown_session"
        assert back.closed()[0] == 1008


def test_any_way_of_losing_the_connection_gives_the_same_transcript(
    gateway: Gateway, page: Page, work: Work
) -> None:
    """However often a page comes back, and wherever it was: nothing twice, nothing missing."""
    rng = random.Random(7)
    with Page(gateway, None, session_id=page.session_id) as steady:
        steady.until("welcome")
        loose, seen = page, []
        for n in range(6):
            steady.say(f"word {n} " + " ".join("abc" * 5))
            work(page)
            for _ in range(rng.randrange(4)):
                loose = loose.again(gateway)
                seen += _some(loose, rng.randrange(6))
            steady.until("complete")
        loose = loose.again(gateway)
        while loose.seq != steady.seq:
            seen += _some(loose, 1)
        loose.close()
    whole = _durable(steady.frames)
    first = next(n for n, f in enumerate(whole) if f["seq"] == _durable(seen)[0]["seq"])
    assert _durable(seen) == whole[first:]


def _some(page: Page, count: int) -> list[dict[str, Any]]:
    """The events in so many more frames."""
    got: list[dict[str, Any]] = []
    for _ in range(count):
        try:
            frame = json.loads(page.socket.recv(timeout=0.3))
        except TimeoutError:
            break
        events = frame.get("events", [frame])
        if frame["type"] == "history_batch":
            page.seq = frame["last_seq"]
        page.seq = frame.get("seq") or page.seq
        got += events
    return got


def _durable(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        f
        for f in frames
        if "seq" in f and f["type"] != "token" and f.get("event", {}).get("type") != "turn"
    ]


# Limits


def test_a_frame_that_is_refused_costs_nothing_else(page: Page, database: Database) -> None:
    """The connection goes on, and nothing was done."""
    for text, code in (
        ("{", "invalid_json"),
        ('{"type": "shout"}', "unknown_type"),
        ('{"type": "init", "graph": "talk"}', "invalid_message"),
        ('{"type": "message", "content": "hi", "message_id": " "}', "invalid_key"),
        (json.dumps({"type": "ping", "x": "y" * MAX_FRAME}), "too_large"),
    ):
        page.socket.send(text)
        assert page.until("error")["code"] == code
    page.socket.send(b"\x00\x01")
    assert page.until("error")["code"] == "invalid_message"
    page.send("ping")
    page.until("pong")
    assert database.value("SELECT count(*) FROM fleet.messages") == 0


def test_who_sends_too_much_is_told_when_to_go_on(page: Page) -> None:
    """And the frame may be sent again."""
    for _ in range(30):
        page.send("ping")
    page.send("message", content="hi", message_id="m1")
    error = page.until("error")
    assert (error["code"], error["retry"], error["message_id"]) == ("rate_limited", True, "m1")
    assert error["retry_after"] > 0


def test_who_takes_nothing_in_is_cut_off_and_comes_back(
    gateway: Gateway, page: Page, work: Work, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """With nothing lost."""
    newest = "SELECT epoch || '-' || n FROM fleet.events ORDER BY epoch DESC, n DESC LIMIT 1"
    page.say("flood 1200")
    monkeypatch.setattr(slow, "SEND_WITHIN", 0.5)
    work(page)
    eventually(lambda: not gateway.state.presence._watched, 60)
    assert page.closed() in ((1013, "try_again"), (None, ""))
    assert "complete" not in page.types()
    monkeypatch.undo()
    with page.again(gateway) as back:
        back.shown("flooded")
        while back.seq != database.value(newest):
            back.next()


def test_a_connection_that_answers_no_ping_is_dropped(
    fleet_settings: dict[str, Any], graphs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it takes nothing in, so that not even the goodbye gets through."""
    from producers.gateway import serve

    monkeypatch.setattr(serve, "_PING_EVERY", 0.2)
    monkeypatch.setattr(serve, "_PING_WITHIN", 2.0)
    with Gateway(**fleet_settings, gateway_auth="off") as gateway:
        page = Page(gateway)
        page.until("welcome")
        there = gateway.state.presence._watched
        assert len(there) == 1
        # Its own thread answers pings as long as it reads.
        page.socket.protocol.receive_data = lambda data: None  # type: ignore[method-assign]
        eventually(lambda: not there, 30)


# Tokens


def test_an_expired_token_gets_no_event_and_the_turn_goes_on(
    guarded: Gateway, graphs_file: Path, work: Work, database: Database
) -> None:
    """With a newer one the page gets the rest."""
    with Page(guarded, token=token("u_1", expires_in=5)) as page:
        page.until("welcome")
        page.say("hello")
        assert page.until("error")["code"] == "token_expired"
        assert page.closed() == (4401, "token_expired")
    work(page)
    assert database.value("SELECT status FROM fleet.threads") == "done"
    with page.again(guarded, token=token("u_1")) as back:
        back.shown("You said hello")


def test_a_token_is_renewed_without_a_break(
    guarded: Gateway, graphs_file: Path, work: Work
) -> None:
    """By its own user only."""
    with Page(guarded, token=token("u_1", expires_in=5)) as page:
        page.until("welcome")
        for other in (token("u_2"), token("u_1", tenant="acme"), "nonsense"):
            page.send("auth", token=other)
            assert page.until("error")["code"] in ("forbidden", "unauthorized")
        page.send("auth", token=token("u_1", expires_in=600))
        assert page.until("authenticated", "error")["expires_at"]
        time.sleep(5)  # the first one's end has to pass
        page.say("hello")
        work(page)
        page.until("complete")
        assert "error" not in page.types()[page.types().index("authenticated") :]


def test_a_revoked_key_is_shut_out(
    guarded: Gateway, graphs_file: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its next act, and at the next look at it."""
    monkeypatch.setattr(ws_connection, "_LOOK_AGAIN", 0.2)
    with Page(guarded, token=guarded.key("producer")) as page:
        page.until("welcome")
        database.fetch("UPDATE fleet.api_keys SET revoked_at = fleet.now()")
        assert page.closed() == (4401, "token_expired")


# Who is there


def test_who_looks_on_is_there_until_they_leave(
    gateway: Gateway, page: Page, database: Database
) -> None:
    """Said to Postgres, so that nobody is notified of a question that they look at."""
    there = "SELECT array_agg(thread_id) FROM fleet.presence"
    with Page(gateway, None, session_id=page.session_id) as other:
        other.until("welcome")
        assert eventually(lambda: database.value(there)) == [page.frames[0]["thread_id"]]
    page.send("ping")
    page.until("pong")
    assert database.value(there)
    leave(page, database)


def test_a_session_that_was_closed_is_opened_again_by_who_comes_back(
    gateway: Gateway, page: Page, database: Database
) -> None:
    """Nothing that can be gone on with is lost by a timeout."""
    leave(page, database)
    database.fetch("SELECT fleet.move_clock('2 hours')")
    assert database.value("SELECT fleet.tend_sessions(%s)", get_settings().session_timeout) == 1
    with page.again(gateway) as back:
        assert back.until("welcome")["state"] == "active"
    assert database.value("SELECT closed_at FROM fleet.sessions") is None
