"""AG-UI's doors: runs, joins, questions, cancellation, events from any id on; whatever becomes
of a stream, the run is the worker's."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui_validate.pytest_plugin import assert_valid_agui_endpoint

from producers import Fleet
from producers.gateway.agui_input import Door
from tests.gateway.agui_streams import Client, valid
from tests.gateway.agui_turns import Working, asked, follow, run, streaming, write_agui_graphs
from tests.gateway.serving import Gateway, problem, token
from tests.harness import Broker, Database, Shop, eventually
from tests.worker_processes import Workers
from workers.drain import drain
from workers.slot import Slot

TALK = "talk:1"


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `held` waits for after its first word."""
    monkeypatch.setenv("AGUI_GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working


def types(events: list[dict[str, Any]]) -> list[str]:
    return [e["type"] for e in events]


def refused(client: httpx.Client, given: Any) -> str:
    """The code of a run that is refused as a whole."""
    started, error = run(client, given)
    assert started["type"] == "RUN_STARTED" and error["message"]
    return str(error["code"])


def test_a_run_streams_what_the_worker_says(client: httpx.Client, working: Working) -> None:
    """Tokens, custom events, steps, the state, and its end; nothing is kept back by proxies."""
    with streaming(client, "POST", "/agent/run", json=asked(TALK, "r1", ("u1", "hi"))) as stream:
        head = stream.response.headers
        events = list(stream)
    assert head["content-type"].startswith("text/event-stream")
    assert (head["cache-control"], head["x-accel-buffering"]) == ("no-cache", "no")
    told = Client([{"id": "u1", "role": "user", "content": "hi"}]).take(events)
    assert told.texts() == [("user", "hi"), ("assistant", "You said hi.")]
    assert told.outcome["type"] == "success" and events[0]["protocolVersion"] == "1.0"
    assert [e["value"] for e in events if e["type"] == "CUSTOM"] == [{"hard": True}]
    assert stream.last_id


def test_a_conversation_goes_on(client: httpx.Client, working: Working) -> None:
    """The second run sends what the client holds; only the new message is the thread's."""
    first = run(client, asked(TALK, "r1", ("u1", "one")))
    held = Client([{"id": "u1", "role": "user", "content": "one"}]).take(first)
    more = {"id": "u2", "role": "user", "content": "two"}
    second = run(client, {**asked(TALK, "r2"), "messages": [*held.messages, more]})
    told = Client([*held.messages, more]).take(second)
    assert [text for _, text in told.texts()] == ["one", "You said one.", "two", "You said two."]
    assert types(second).count("CUSTOM") == 1 and "MESSAGES_SNAPSHOT" not in types(second)


def test_a_message_that_is_sent_again_counts_once(client: httpx.Client, working: Working) -> None:
    """A run that is sent again joins what became of it, also with another context."""
    run(client, asked(TALK, "r1", ("u1", "hi")))
    note = [{"description": "now", "value": "12:00"}]
    again = run(client, asked(TALK, "r2", ("u1", "hi"), context=note))
    assert Client().take(again).texts() == [("user", "hi"), ("assistant", "You said hi.")]
    assert refused(client, asked(TALK, "r3", ("u1", "something else"))) == "message_conflict"


def test_tools_are_told(client: httpx.Client, working: Working) -> None:
    """The call, its arguments, its result."""
    events = run(client, asked("tools:1", "r1", ("u1", "8 people")))
    told = Client([{"id": "u1", "role": "user", "content": "8 people"}]).take(events)
    assert told.messages[1]["toolCalls"][0]["arguments"] == '{"people": 8}'
    assert [role for role, _ in told.texts()] == ["user", "assistant", "tool", "assistant"]


def test_two_questions_are_asked_and_answered_at_once(
    client: httpx.Client, working: Working, fleet: Fleet
) -> None:
    """Both interrupts in the outcome; one resume with both answers ends the run."""
    events = run(client, asked("both:1", "r1", ("u1", "book")))
    asks = events[-1]["outcome"]["interrupts"]
    assert {(i["metadata"]["kind"], i["message"]) for i in asks} == {
        ("clarify", "Which day?"),
        ("select_room", "Which room?"),
    }
    answers = {"clarify": "Monday", "select_room": "B"}
    resume = [
        {"interruptId": i["id"], "status": "resolved", "payload": answers[i["metadata"]["kind"]]}
        for i in asks
    ]
    done = run(client, asked("both:1", "r2", ("u1", "book"), resume=resume))
    told = Client().take(done)
    assert told.outcome["type"] == "success" and told.texts()[-1] == ("assistant", "Monday in B.")
    assert told.state["left"] == "Monday"
    again = run(client, asked("both:1", "r3", resume=resume))
    assert again[-1]["outcome"]["type"] == "success"
    resume[0]["payload"] = "something else"
    assert refused(client, asked("both:1", "r4", resume=resume)) == "already_answered"


def test_one_answer_of_two_is_refused(client: httpx.Client, working: Working) -> None:
    """AG-UI answers all that is open at once; `/agent/resume` answers one alone."""
    asks = run(client, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": asks[0]["id"], "status": "resolved", "payload": "x"}]
    assert refused(client, asked("both:1", "r2", resume=resume)) == "question_open"
    alone = {"thread_id": "both:1", "question_id": asks[0]["id"], "value": "x"}
    assert client.post("/agent/resume", json=alone).status_code == 202
    resume[0]["interruptId"] = asks[1]["id"]
    assert run(client, asked("both:1", "r3", resume=resume))[-1]["outcome"]["type"] == "success"


@pytest.mark.parametrize("status", ["resolved", "cancelled"])
def test_a_wrong_interrupt_id_changes_nothing(
    client: httpx.Client, working: Working, fleet: Fleet, status: str
) -> None:
    """Refused as a whole, also beside a right one (others approve the pending question)."""
    asks = run(client, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
    resume = [
        {"interruptId": asks[0]["id"], "status": "resolved", "payload": "x"},
        {"interruptId": "wrong", "status": status, "payload": None},
    ]
    before = fleet.status("both:1")
    assert refused(client, asked("both:1", "r2", resume=resume)) == "stale_question"
    after = fleet.status("both:1")
    assert after.questions == before.questions and after.messages == before.messages


def test_new_input_before_the_answer_is_refused(client: httpx.Client, working: Working) -> None:
    """Also beside an answer to one of two: nothing is accepted then."""
    asks = run(client, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
    given = asked("both:1", "r2", ("u2", "now"))
    assert refused(client, given) == "question_open"
    given["resume"] = [{"interruptId": asks[0]["id"], "status": "resolved", "payload": "x"}]
    assert refused(client, given) == "question_open"
    state = client.get("/agent/state", params={"thread_id": "both:1"}).json()
    assert len(state["questions"]) == 2


def test_cancelled_interrupts_call_the_thread_off(client: httpx.Client, working: Working) -> None:
    """Nobody answers them any more; the run ends as cancelled."""
    asks = run(client, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": i["id"], "status": "cancelled"} for i in asks]
    events = run(client, asked("both:1", "r2", resume=resume))
    assert events[-1]["outcome"] == {"type": "cancelled"}
    mixed = [{**resume[0], "status": "resolved", "payload": "x"}, resume[1]]
    assert refused(client, asked("both:1", "r3", resume=mixed)) == "finished"


@pytest.mark.parametrize(
    ("entry", "refunds"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, 1),
        ({"status": "resolved", "payload": {"approved": False, "message": "no"}}, 0),
        ({"status": "cancelled"}, 0),
    ],
    ids=["approved", "denied", "cancelled"],
)
def test_an_approval_is_decided(
    client: httpx.Client, working: Working, shop: Shop, entry: Any, refunds: int
) -> None:
    """In AG-UI's form; one that is cancelled is a refusal, with which the graph goes on.
    `forwardedProps.input` starts any graph, and only a thread that is new."""
    order = shop.new_order("1500.00")
    props = {"input": {"user_id": "u_42"}}
    for name in ("r1", "r2"):
        events = run(client, asked(f"refund:{order}", name, forwardedProps=props))
    asks = events[-1]["outcome"]["interrupts"]
    assert asks[0]["reason"] == "confirmation" and asks[0]["metadata"]["payload"]
    resume = [{"interruptId": asks[0]["id"], **entry}]
    events = run(client, asked(f"refund:{order}", "r3", resume=resume, forwardedProps=props))
    assert events[-1]["outcome"]["type"] == "success" and shop.refunds(order) == refunds


def test_a_wrong_shape_is_refused(client: httpx.Client, working: Working, shop: Shop) -> None:
    """Nothing is decided by it."""
    order = shop.new_order("1500.00")
    start = asked(f"refund:{order}", "r1", forwardedProps={"input": {"user_id": "u_42"}})
    asks = run(client, start)[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": asks[0]["id"], "status": "resolved", "payload": {"yes": 1}}]
    assert refused(client, asked(f"refund:{order}", "r2", resume=resume)) == "wrong_shape"
    resume[0]["payload"] = "approved"
    done = run(client, asked(f"refund:{order}", "r3", resume=resume))
    assert done[-1]["outcome"]["type"] == "success"


def test_an_input_that_does_not_fit_is_refused(client: httpx.Client, working: Working) -> None:
    """With the reason, and no thread is begun."""
    bad = asked("refund:1", "r1", forwardedProps={"input": {"user_id": 7}})
    assert refused(client, bad) == "invalid_input"
    problem(client.get("/agent/state", params={"thread_id": "refund:1"}), 404, "unknown_thread")
    props = {"forwardedProps": {"input": 1}}
    problem(client.post("/agent/run", json=asked("talk:1", **props)), 400, "invalid_payload")


def test_the_validator_finds_nothing_against_the_door(gateway: Gateway, working: Working) -> None:
    """ag-ui-validate with an input of its own: also framing and content type."""
    url = f"{gateway.url}/agent/run?graph=talk"
    asyncio.run(assert_valid_agui_endpoint(url, max_warnings=0))


def test_an_error_is_told(client: httpx.Client, working: Working) -> None:
    """What was half said is taken back, and the reason is given."""
    events = run(client, asked("breaks:1", "r1", ("u1", "hi")))
    told = Client([{"id": "u1", "role": "user", "content": "hi"}]).take(events)
    assert told.error == "failed" and "no such room" in events[-1]["message"]
    assert told.texts() == [("user", "hi")]


def test_a_closed_response_changes_nothing(
    client: httpx.Client, working: Working, fleet: Fleet
) -> None:
    """The client goes as soon as the run has begun; the question is there when it comes back."""
    with streaming(client, "POST", "/agent/run", json=asked("both:1", "r1", ("u1", "go"))) as s:
        s.until("RUN_STARTED")
    assert len(fleet.wait("both:1", 20).questions) == 2
    back = run(client, asked("both:1", "r2", ("u1", "go")))
    assert len(back[-1]["outcome"]["interrupts"]) == 2


def test_all_of_a_new_thread_is_told_however_fast_it_was(
    client: httpx.Client, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is at its end before the stream is watched."""
    hand_over = Door.hand_over

    def and_done(door: Door, thread: str, *args: Any, **more: Any) -> Any:
        handed = hand_over(door, thread, *args, **more)
        drain(slot, thread)
        assert slot.publisher.flush(5)
        return handed

    monkeypatch.setattr(Door, "hand_over", and_done)
    events = run(client, asked(TALK, "r1", ("u1", "hi")))
    told = types(events)
    assert told[0] == "RUN_STARTED" and told[-1] == "RUN_FINISHED"
    assert {"STEP_STARTED", "STEP_FINISHED", "CUSTOM", "TEXT_MESSAGE_CONTENT"} <= {*told}
    assert Client([{"id": "u1", "role": "user", "content": "hi"}]).take(events).texts() == [
        ("user", "hi"),
        ("assistant", "You said hi."),
    ]


def test_a_run_without_anything_new_joins(client: httpx.Client, working: Working) -> None:
    """A second page in the middle of a run: what was said so far, then the rest."""
    slow = asked(TALK, "r1", ("u1", "a b c d e f g h"), forwardedProps={"input": {"pause": 0.1}})
    with streaming(client, "POST", "/agent/run", json=slow) as stream:
        began = stream.until("TEXT_MESSAGE_CONTENT")
        joined = run(client, asked(TALK, "r2"))
        rest = list(stream)
    whole = ("assistant", "You said a b c d e f g h.")
    assert Client().take(joined).texts()[-1] == whole
    own = Client([{"id": "u1", "role": "user", "content": "a b c d e f g h"}])
    assert own.take([*began, *rest]).texts()[-1] == whole


def test_events_go_on_where_the_client_was(client: httpx.Client, working: Working) -> None:
    """Cut at any place: what came before and what comes after make the whole, once."""
    slow = asked(TALK, "r1", ("u1", "a b c d e f"), forwardedProps={"input": {"pause": 0.05}})
    told = Client([{"id": "u1", "role": "user", "content": "a b c d e f"}])
    with streaming(client, "POST", "/agent/run", json=slow) as stream:
        told.take(stream.until("TEXT_MESSAGE_CONTENT"))
        last = stream.last_id
    while told.outcome is None:
        events, last = follow(client, TALK, "TEXT_MESSAGE_CONTENT", "RUN_FINISHED", after=last)
        told.take(events)
    assert told.texts()[-1] == ("assistant", "You said a b c d e f.")


def test_events_without_an_id_begin_with_all_there_is(
    client: httpx.Client, working: Working
) -> None:
    """And go on over the next runs; Last-Event-ID counts before the query."""
    run(client, asked(TALK, "r1", ("u1", "one")))
    told = Client()
    query = {"thread_id": TALK}
    with streaming(client, "GET", "/agent/events", params=query) as stream:
        told.take(stream.until("RUN_FINISHED"))
        assert told.texts() == [("user", "one"), ("assistant", "You said one.")]
        last = str(stream.last_id)
        run(client, asked(TALK, "r2", ("u2", "two")))
        second = stream.until("RUN_FINISHED")
        told.take(second)
    assert told.texts()[2:] == [("user", "two"), ("assistant", "You said two.")]
    assert second[0]["runId"] == "u2"
    more = {"params": {**query, "from_event_id": "0-1"}, "headers": {"Last-Event-ID": last}}
    with streaming(client, "GET", "/agent/events", **more) as stream:
        again = stream.until("RUN_FINISHED")
    assert types(again).count("RUN_STARTED") == 1


def test_a_quiet_stream_shows_that_it_lives(
    client: httpx.Client, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment, so that no proxy takes it for dead."""
    monkeypatch.setattr("producers.gateway.agui_watch.HEARTBEAT", 0.05)
    run(client, asked(TALK, "r1", ("u1", "hi")))
    with streaming(client, "GET", "/agent/events", params={"thread_id": TALK}) as stream:
        stream.until("RUN_FINISHED")
        assert stream.comment().startswith(":")


def test_open_streams_leave_room_for_an_answer(gateway: Gateway, working: Working) -> None:
    """Eight tabs, each with its own stream; an answer is taken at once, and all are told."""
    with ExitStack() as stack:
        tabs = [stack.enter_context(gateway.client()) for _ in range(8)]
        asks = run(tabs[0], asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
        query = {"thread_id": "both:1"}
        streams = [
            stack.enter_context(streaming(tab, "GET", "/agent/events", params=query))
            for tab in tabs
        ]
        for stream in streams:
            stream.until("RUN_FINISHED")
        for name, value in zip([i["id"] for i in asks], "xy", strict=True):
            body = {**query, "question_id": name, "value": value}
            assert tabs[0].post("/agent/resume", json=body).status_code == 202
        ends = [stream.until("RUN_FINISHED")[-1]["outcome"]["type"] for stream in streams]
        assert set(ends) <= {"success", "interrupt"} and len(ends) == 8


def test_the_state_has_questions_and_what_comes_next(
    client: httpx.Client, working: Working
) -> None:
    """Read without a stream, and events go on from its id."""
    run(client, asked("both:1", "r1", ("u1", "book")))
    state = client.get("/agent/state", params={"thread_id": "both:1"}).json()
    assert (state["status"], state["next"]) == ("waiting", ["left", "right"])
    assert {q["kind"] for q in state["questions"]} == {"clarify", "select_room"}
    assert state["messages"][0]["content"] == "book" and state["last_event_id"]


def test_a_question_is_answered_without_a_stream(client: httpx.Client, working: Working) -> None:
    """`/agent/resume`; late and wrong ones are told so."""
    asks = run(client, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
    body = {"thread_id": "both:1", "question_id": asks[0]["id"], "value": "x", "message_id": "a"}
    for _ in range(2):
        assert client.post("/agent/resume", json=body).status_code == 202
    late = client.post("/agent/resume", json={**body, "message_id": "b"})
    assert problem(late, 409, "answer_refused")["reason"] == "already_answered"
    wrong = client.post("/agent/resume", json={**body, "question_id": "no", "message_id": "c"})
    problem(wrong, 404, "answer_refused")


@pytest.mark.parametrize(("action", "refunds"), [("approve", 1), ("reject", 0)])
def test_approvals_have_actions_of_their_own(
    client: httpx.Client, working: Working, fleet: Fleet, shop: Shop, action: str, refunds: int
) -> None:
    """approve and reject, with a note as the value."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    question = fleet.wait(thread, 20).question
    assert question is not None
    body = {"thread_id": thread, "question_id": question.question_id, "action": action}
    assert client.post("/agent/resume", json={**body, "value": "so be it"}).status_code == 202
    assert fleet.wait(thread, 20, until={"done"}).status == "done"
    assert shop.refunds(order) == refunds
    answer = fleet.questions(thread)[0]["answer"]
    assert answer == {"decisions": [{"type": action, "message": "so be it"}]}


def test_a_running_thread_is_cancelled(client: httpx.Client, working: Working) -> None:
    """The run that watches it ends as cancelled."""
    run(client, asked("both:1", "r1", ("u1", "book")))
    query = {"thread_id": "both:1"}
    with streaming(client, "GET", "/agent/events", params=query) as stream:
        stream.until("RUN_FINISHED")
        assert client.post("/agent/cancel", json=query).json()["outcome"] == "cancelled"
        assert stream.until("RUN_FINISHED")[-1]["outcome"] == {"type": "cancelled"}


def test_what_is_not_there_is_said(client: httpx.Client, working: Working) -> None:
    """Unknown threads and graphs, names that are none, ids that are none."""
    for path in ("/agent/state", "/agent/events"):
        problem(client.get(path, params={"thread_id": "talk:none"}), 404, "unknown_thread")
    problem(client.post("/agent/run", json=asked("talk:none")), 404, "unknown_thread")
    problem(client.post("/agent/run", json=asked("no:1", "r", ("u1", "x"))), 404, "unknown_graph")
    problem(client.post("/agent/run", json=asked("nocolon", "r", ("u1", "x"))), 400, "invalid_key")
    run(client, asked(TALK, "r1", ("u1", "hi")))
    query = {"thread_id": TALK, "from_event_id": "yesterday"}
    problem(client.get("/agent/events", params=query), 400, "invalid_event_id")
    assert client.post("/agent/run", json={"threadId": 1}).status_code == 422


def test_the_graph_may_be_named_beside_the_key(client: httpx.Client, working: Working) -> None:
    """For clients whose threadId is a name of their own."""
    given = asked("a:b", "r1", ("u1", "hi"), forwardedProps={"graph": "talk"})
    assert run(client, given)[0]["threadId"] == "a:b"
    again = run(client, asked("talk:a:b", "r2"), "/agent/run?graph=talk")
    assert Client().take(again).texts()[-1] == ("assistant", "You said hi.")


# Who may


def test_others_threads_do_not_exist(guarded: Gateway, working: Working, fleet: Fleet) -> None:
    """Every door with the wrong tenant or user answers as for a thread that is not there."""
    with guarded.client(guarded.key("operator")) as owner:
        run(owner, asked("both:1", "r1", ("u1", "book")))
    asks = fleet.status("both:1").questions[0].question_id
    strangers = [guarded.key("operator", tenant="acme"), token("u_9"), token("u_9", tenant="acme")]
    answer = {"interruptId": asks, "status": "resolved", "payload": "x"}
    for stranger in strangers:
        with guarded.client(stranger) as client:
            for thread in ("both:1", "both:none"):
                query = {"thread_id": thread}
                resume = {**query, "question_id": asks, "value": "x"}
                answers = [
                    client.get("/agent/state", params=query),
                    client.get("/agent/events", params=query),
                    client.post("/agent/cancel", json=query),
                    client.post("/agent/resume", json=resume),
                    client.post("/agent/run", json=asked(thread)),
                    client.post("/agent/run", json=asked(thread, "r", resume=[answer])),
                ]
                assert {a.status_code for a in answers} == {404}, [a.text for a in answers]
    assert len(fleet.status("both:1").questions) == 2


def test_roles_may_what_they_may(guarded: Gateway, working: Working) -> None:
    """A viewer reads, a producer says, an approver answers."""
    with guarded.client(guarded.key("producer")) as producer:
        asks = run(producer, asked("both:1", "r1", ("u1", "book")))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": i["id"], "status": "resolved", "payload": "x"} for i in asks]
        given = asked("both:1", "r2", ("u1", "book"), resume=resume)
        problem(producer.post("/agent/run", json=given), 403, "forbidden")
    with guarded.client(guarded.key("viewer")) as viewer:
        assert follow(viewer, "both:1", "RUN_FINISHED")[0]
        said = asked("both:1", "r3", ("u9", "x"))
        problem(viewer.post("/agent/run", json=said), 403, "forbidden")
        problem(viewer.post("/agent/cancel", json={"thread_id": "both:1"}), 403, "forbidden")
    with guarded.client(guarded.key("approver")) as approver:
        assert run(approver, given)[-1]["outcome"]["type"] == "success"
    assert guarded.client().post("/agent/run", json=given).status_code == 401


def test_a_user_talks_in_a_session_of_their_own(guarded: Gateway, working: Working) -> None:
    """Its thread exists for nobody else."""
    with guarded.client(token("u_1")) as client:
        thread = client.post("/sessions", json={"graph": "talk"}).json()["thread_id"]
        assert run(client, asked(thread, "r1", ("u1", "hi")))[-1]["outcome"]["type"] == "success"
        own = client.post("/agent/run", json=asked("talk:free", "r1", ("u1", "hi")))
        problem(own, 404, "unknown_thread")
    with guarded.client(token("u_2")) as other:
        problem(other.get("/agent/state", params={"thread_id": thread}), 404, "unknown_thread")


def test_a_token_that_expires_ends_the_stream_and_not_the_run(
    guarded: Gateway, working: Working, fleet: Fleet
) -> None:
    """No event comes after it; with a new one the rest is read."""
    props = {"input": {"pause": 0.8}}
    words = "a b c d e f"
    with guarded.client(guarded.key("producer")) as producer:
        run(producer, asked(TALK, "r0", ("u0", "hi")))
    soon = token("u_1", roles=["operator"], expires_in=5)
    with guarded.client(soon) as client:
        events = run(client, asked(TALK, "r1", ("u1", words), forwardedProps=props))
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "token_expired")
    with guarded.client(token("u_1", roles=["operator"])) as client:
        rest = run(client, asked(TALK, "r2"))
    assert Client().take(rest).texts()[-1] == ("assistant", f"You said {words}.")


def test_a_key_that_is_taken_back_ends_the_stream(
    guarded: Gateway, working: Working, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, whether anything happens or not."""
    monkeypatch.setattr("producers.gateway.agui_watch.HEARTBEAT", 0.05)
    key = guarded.key("operator")
    with guarded.client(key) as client:
        run(client, asked(TALK, "r1", ("u1", "hi")))
        query = {"thread_id": TALK}
        with streaming(client, "GET", "/agent/events", params=query) as stream:
            stream.until("RUN_FINISHED")
            database.fetch("UPDATE fleet.api_keys SET revoked_at = fleet.now()")
            assert stream.until("RUN_ERROR")[-1]["code"] == "token_expired"


def test_a_gateway_that_ends_says_so(
    fleet_settings: dict[str, Any], working: Working, gate: Path
) -> None:
    """The stream ends in order; the run goes on, and another gateway has the rest."""
    given = asked("held:1", "r1", ("u1", "hi there"))
    with (
        Gateway(**fleet_settings, gateway_auth="off") as first,
        first.client() as client,
        streaming(client, "POST", "/agent/run", json=given) as stream,
    ):
        stream.until("TEXT_MESSAGE_CONTENT")
        first.end()
        assert list(stream)[-1]["code"] == "gateway_closing"
    gate.touch()
    with Gateway(**fleet_settings, gateway_auth="off") as second, second.client() as client:
        told = Client().take(run(client, asked("held:1", "r2")))
    assert told.texts()[-1] == ("assistant", "You said hi there.")


def test_who_watches_is_known(
    gateway: Gateway, client: httpx.Client, working: Working, database: Database
) -> None:
    """While a stream is open somebody is there; afterwards nobody is."""
    run(client, asked(TALK, "r1", ("u1", "hi")))
    there = "SELECT count(*) FROM fleet.presence WHERE thread_id = %s"
    eventually(lambda: database.value(there, TALK) == 0)
    with streaming(client, "GET", "/agent/events", params={"thread_id": TALK}) as stream:
        stream.until("RUN_FINISHED")
        eventually(lambda: database.value(there, TALK) == 1)
    eventually(lambda: database.value(there, TALK) == 0)


@pytest.mark.parametrize("victim", ["worker", "broker"])
def test_a_kill_in_the_middle_leaves_no_trace(
    client: httpx.Client,
    workers: Workers,
    graphs_file: Path,
    broker: Broker,
    gate: Path,
    victim: str,
) -> None:
    """What the killed attempt said is taken back, and the transcript is that of a run without
    faults; a broker that forgets all changes nothing for it either."""
    first = workers.start()
    own = {"id": "u1", "role": "user", "content": "hi there"}
    with streaming(
        client, "POST", "/agent/run", json=asked("held:1", "r1", ("u1", "hi there"))
    ) as s:
        events = s.until("TEXT_MESSAGE_CONTENT")
        if victim == "worker":
            workers.start()
            first.kill()
        else:
            broker.client.flushdb()
        gate.touch()
        events += list(s)
    told = Client([own]).take(valid(events))
    assert told.texts() == [("user", "hi there"), ("assistant", "You said hi there.")]
    assert told.outcome["type"] == "success"
    if victim == "worker":
        assert "MESSAGES_SNAPSHOT" in types(events)
