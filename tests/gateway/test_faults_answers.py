"""What others met with people's answers: late ones, older ones, ones given at once by two, ones
whose server died; at every door that takes them."""

import json
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from infra.settings import get_settings
from producers import Fleet
from tests.gateway.agui_turns import asked, streaming
from tests.gateway.conftest import Serve
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.gateway.test_links import link_to
from tests.harness import ROOT, Database, Shop, eventually
from tests.worker_processes import Workers
from workers.drain import drain
from workers.slot import Slot
from workers.sweeper import Sweeper

GRAPHS = ROOT / "tests" / "graphs"
PLACES = {
    "talk": "chatter.py:graph",
    "deadline": "deadline.py:graph",
    "asking": "faults.py:asking",
}


@pytest.fixture
def graphs_file(
    settings_env: None, tmp_path: Path, database: Database, fleet_settings: dict[str, Any]
) -> Path:
    file = tmp_path / "langgraph.json"
    graphs = {name: f"{GRAPHS}/{place}" for name, place in PLACES.items()}
    graphs["refund"] = f"{ROOT}/graphs/refund.py:graph"
    file.write_text(json.dumps({"dependencies": [str(ROOT)], "graphs": graphs}))
    database.register(file)
    return file


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    yield made
    made.session.drop()


class Place(NamedTuple):
    """A session's thread, and the gateway at which it is asked for."""

    url: str
    session: str
    thread: str
    database: Database

    @property
    def ws_url(self) -> str:
        return f"{self.url.replace('http', 'ws')}/ws"

    @property
    def path(self) -> str:
        return "/threads/{}/{}".format(*self.thread.split(":"))

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)


def opened(url: str, graph: str, database: Database) -> Place:
    found = httpx.post(f"{url}/sessions", json={"graph": graph}, timeout=30).json()
    return Place(url, found["session_id"], found["thread_id"], database)


def by_rest(place: Place, question: str, value: Any, name: str) -> str:
    with place.client() as client:
        url = f"{place.path}/questions/{question}/answer"
        answer = client.post(url, json={"value": value}, headers={"Idempotency-Key": name})
        return _outcome(answer)


def by_resume(place: Place, question: str, value: Any, name: str) -> str:
    body = {"thread_id": place.thread, "question_id": question, "value": value}
    with place.client() as client:
        return _outcome(client.post("/agent/resume", json={**body, "message_id": name}))


def by_run(place: Place, question: str, value: Any, name: str) -> str:
    entry = {"interruptId": question, "status": "resolved", "payload": value}
    given = asked(place.thread, name, resume=[entry])
    with place.client() as client, streaming(client, "POST", "/agent/run", json=given) as stream:
        _, second = (event for _, event in zip(range(2), stream, strict=False))
    return str(second["code"]) if second["type"] == "RUN_ERROR" else "accepted"


def by_page(place: Place, question: str, value: Any, name: str) -> str:
    with Page(place, None, session_id=place.session) as page:  # type: ignore[arg-type]
        page.until("welcome")
        page.send("answer", question_id=question, value=value, message_id=name)
        ack = page.until("ack", "error")
    if ack["type"] == "error":
        return str(ack.get("reason", ack["code"]))
    return "duplicate" if ack["duplicate"] else "accepted"


def by_link(place: Place, question: str, value: Any, name: str) -> str:
    link = link_to(place.database, question, place.thread)
    with place.client() as client:
        return _outcome(client.post(link, json={"value": value}))


Answer = Callable[[Place, str, Any, str], str]
DOORS: list[Answer] = [by_rest, by_resume, by_run, by_page, by_link]
each_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


def _outcome(answer: httpx.Response) -> str:
    found = answer.json()
    if answer.status_code == 202 or answer.is_success:
        return str(found["outcome"])
    assert (answer.status_code == 410) == (found.get("reason") == "expired"), answer.text
    return str(found.get("reason", found["code"]))


def question_of(fleet: Fleet, thread: str) -> str:
    question = fleet.status(thread).question
    assert question is not None
    return question.question_id


@each_door
def test_an_older_decision_is_never_taken_for_a_newer_question(
    gateway: Gateway, slot: Slot, fleet: Fleet, database: Database, door: Answer
) -> None:
    """F130: the answer to the first question comes again, under its name and another; the second
    stays open until it has one of its own."""
    place = opened(gateway.url, "talk", database)
    questions = []
    with Page(gateway, None, session_id=place.session) as page:
        page.until("welcome")
        for _ in range(2):
            page.say("choose Which room?")
            drain(slot, place.thread)
            questions.append(page.asked())
            if len(questions) == 1:
                assert door(place, questions[0], "r1", "a1") == "accepted"
                drain(slot, place.thread)
                assert page.completed() == "You chose r1"
    first, second = questions
    assert door(place, first, "r1", "a1") in ("accepted", "duplicate", "already_answered")
    assert door(place, first, "r2", "a2") == "already_answered"
    drain(slot, place.thread)
    found = fleet.status(place.thread)
    assert (found.status, [q.question_id for q in found.questions]) == ("waiting", [second])
    assert door(place, second, "r2", "a3") == "accepted"
    drain(slot, place.thread)
    with place.client() as client:
        told = client.get(f"{place.path}/messages").json()["messages"]
    assert [m["text"] for m in told if m["role"] == "assistant"] == ["You chose r1", "You chose r2"]


@each_door
def test_an_answer_and_its_expiry_are_one_or_the_other_at_every_door(
    gateway: Gateway,
    slot: Slot,
    fleet: Fleet,
    sweeper: Sweeper,
    database: Database,
    door: Answer,
) -> None:
    """F131: 50 ms before the time, at it and after it; what the door said, the question's row and
    the thread agree, and a late one is 410."""
    for number, early in enumerate((50, 0, -50) * 2):
        database.fetch("SELECT fleet.move_clock('0 s')")
        place = opened(gateway.url, "deadline", database)
        key = place.thread.partition(":")[2]
        fleet.submit("deadline", key, {"user_id": "u_42", "on_expiry": "cancel"})
        drain(slot, place.thread)
        question = question_of(fleet, place.thread)
        database.fetch(f"SELECT fleet.move_clock('{3600_000 - early} ms')")
        both = threading.Barrier(2)
        with ThreadPoolExecutor(1) as pool:
            person = pool.submit(lambda: (both.wait(), door(place, question, "yes", "a"))[1])  # noqa: B023
            both.wait()
            sweeper.tick()
            said = person.result()
        database.fetch("SELECT fleet.move_clock('3601 s')")
        sweeper.tick()
        drain(slot, place.thread)
        ((status, answer),) = database.fetch(
            "SELECT status, answer FROM fleet.questions WHERE thread_id = %s", place.thread
        )
        if said == "accepted":
            assert early >= 0, number
            assert (status, answer, fleet.status(place.thread).status) == (
                "answered", "yes", "done"
            )  # fmt: skip
        else:
            assert said == "expired", number
            assert (status, fleet.status(place.thread).status) == ("expired", "cancelled")
        assert door(place, question, "no", "b") in ("expired", "already_answered", "finished")


def test_an_answer_whose_gateway_dies_at_once_is_carried_out_at_every_door(
    serve: Serve,
    workers: Workers,
    graphs_file: Path,
    fleet: Fleet,
    shop: Shop,
    database: Database,
) -> None:
    """F133: committed, then kill -9 before anybody is woken: the sweep finds it, and what was
    approved happens once."""
    workers.start()
    for door in DOORS:
        child, url = serve(gateway_auth="off", failpoints="accept.after_commit=kill")
        place = opened(url, "refund", database)
        order = place.thread.partition(":")[2]
        shop.call("PUT", f"/admin/orders/{order}", user_id="u_42", amount="1500.00")
        fleet.submit("refund", order, {"user_id": "u_42"})
        fleet.wait(place.thread, 60, until={"waiting"})
        question = question_of(fleet, place.thread)
        with pytest.raises((httpx.TransportError, ConnectionClosed)):
            door(place, question, "approved", "a")
        assert child.wait(30) == -9
        assert fleet.wait(place.thread, 60, until={"done", "failed"}).status == "done"
        assert shop.refunds(order) == 1


def test_two_calls_of_one_tool_are_answered_by_two_people_at_once(
    gateway: Gateway, slot: Slot, fleet: Fleet, shop: Shop, database: Database
) -> None:
    """F137: one over WebSocket, one as AG-UI, in the other order; each call is made once, with its
    own arguments and its own answer."""
    for one, other in (by_page, by_resume), (by_run, by_page):
        place = opened(gateway.url, "asking", database)
        user = f"u_{secrets.token_hex(4)}"
        fleet.submit("asking", place.thread.partition(":")[2], {"messages": user})
        drain(slot, place.thread)
        questions = {
            q.payload["about"]: q.question_id for q in fleet.status(place.thread).questions
        }
        assert sorted(questions) == ["first", "second"]
        with ThreadPoolExecutor(2) as pool:
            said = [
                pool.submit(one, place, questions["second"], "two", "a2"),
                pool.submit(other, place, questions["first"], "one", "a1"),
            ]
            outcomes = [answer.result() for answer in said]
        if one is by_run:  # AG-UI answers all that is open, or nothing
            assert outcomes[0] in ("question_open", "accepted")
            if outcomes[0] == "question_open":
                assert by_resume(place, questions["second"], "two", "a2") == "accepted"
        else:
            assert outcomes == ["accepted", "accepted"]
        drain(slot, place.thread)
        assert fleet.status(place.thread).status == "done"
        calls = shop.books()["notifications"]
        told = sorted(n["text"] for n in calls if n["user_id"] == user)
        assert told == ["first one", "second two", "third"]


def test_kills_around_a_question_ask_it_once(
    gateway: Gateway,
    workers: Workers,
    graphs_file: Path,
    fleet: Fleet,
    database: Database,
) -> None:
    """F140: five processes die before, in and after the turn that asks; one row, and the page
    that looks on is asked once."""
    points = ["turn.at_interrupt=kill", "turn.before_commit=kill", "turn.after_commit=kill"]
    workers.start(failpoints=";".join(points))
    place = opened(gateway.url, "talk", database)
    with Page(gateway, None, session_id=place.session) as page:
        page.until("welcome")
        page.say("choose Which room?")
        fleet.wait(place.thread, 60, until={"waiting"})
        question = page.asked()
        eventually(lambda: len(workers.hits()) == 3, 30)
        for _ in range(2):
            another = workers.start()
            os.kill(another.pool_pids()[0], signal.SIGKILL)
        sql = "SELECT question_id, status FROM fleet.questions"
        assert database.fetch(sql) == [(question, "open")]
        assert by_rest(place, question, "r1", "a1") == "accepted"
        assert page.completed() == "You chose r1"
    shown = [f["question_id"] for f in page.frames if f["type"] == "interrupt"]
    assert {*shown} <= {question} and len(shown) <= 1
    snapshots = [q["question_id"] for f in page.frames for q in f.get("questions", ())]
    assert {*snapshots} <= {question}
