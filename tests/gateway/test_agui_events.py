"""A thread's events as AG-UI's: every stream is valid, and the client ends with the thread's
messages, whatever happened in the run."""

import json
from typing import Any

import pytest
from ag_ui.core import AssistantMessage, UserMessage

from producers.gateway.agui_ends import End, interrupt_of
from producers.gateway.agui_events import OutOfStep, Translator
from producers.gateway.agui_messages import agui_message
from producers.status import Question
from tests.gateway.agui_streams import Client, event, question, said, snapshot, thread, valid, wire

OWN = UserMessage(id="u1", content="hello")
USER = said("u1", "user", "hello")
DONE = End("success")


def run(*told: Any, known: Any = (OWN,), end: End | None = DONE, result: Any = None) -> Any:
    """The stream of one run: snapshots and events in turn. Returns (events, the client)."""
    translator = Translator("chat:1", known)
    found = translator.begin("run-1", OWN if known else None)
    for item in told:
        found += translator.event(item) if hasattr(item, "type") else translator.snapshot(item)
    if end is not None:
        found += translator.finish(end, result)
    events = valid(wire(found))
    client = Client([m.model_dump(by_alias=True) for m in known or ()]).take(events)
    return events, client


def types(events: list[dict[str, Any]]) -> list[str]:
    return [e["type"] for e in events]


def test_a_message_is_streamed() -> None:
    """Tokens become one message, opened once and closed by its complete text."""
    events, client = run(
        snapshot(),
        event("1-0", "turn", message_id="u1", kind="start", seq=1, attempt=1),
        event("1-1", "received", message_id="u1", kind="start", content="hello"),
        event("1-2", "token", message_id="a1", node="chat", ns="", text="Good "),
        event("1-3", "token", message_id="a1", node="chat", ns="", text="day"),
        event("1-4", "message", **said("a1", "assistant", "Good day")),
        event("1-5", "step", node="chat", ns="", keys=["messages"]),
        event("1-6", "ended", outcome="done", status="done", message_id="u1"),
        result=snapshot(messages=[USER, said("a1", "assistant", "Good day")], values={"n": 1}),
    )
    assert types(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_STARTED",
        "STEP_FINISHED",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert events[0]["protocolVersion"] == "1.0" and events[1]["timestamp"]
    assert client.texts() == [("user", "hello"), ("assistant", "Good day")]
    assert (client.state, client.outcome["type"]) == ({"n": 1}, "success")


def test_a_message_without_tokens_is_told_whole() -> None:
    """A node that answers at once, and one whose last deltas were lost."""
    _, client = run(
        snapshot(),
        event("1-1", "message", **said("a1", "assistant", "whole")),
        event("1-2", "token", message_id="a2", text="be"),
        event("1-4", "message", **said("a2", "assistant", "begun")),
    )
    assert client.texts()[1:] == [("assistant", "whole"), ("assistant", "begun")]


def test_messages_that_stream_side_by_side_stay_apart() -> None:
    """Parallel branches and subgraphs: each text in its own message."""
    events, client = run(
        snapshot(),
        event("1-1", "token", message_id="a1", text="one ", ns="left:1"),
        event("1-2", "token", message_id="a2", text="two ", ns="right:1"),
        event("1-3", "token", message_id="a1", text="1"),
        event("1-4", "message", **said("a2", "assistant", "two 2")),
        event("1-5", "message", **said("a1", "assistant", "one 1")),
        event("1-6", "step", node="say", ns="left:1c4|inner:2b", keys=[]),
    )
    assert client.texts()[1:] == [("assistant", "one 1"), ("assistant", "two 2")]
    assert events[-2]["stepName"] == "left/inner/say"


def test_tools_are_called_and_answer() -> None:
    """The call carries its arguments as JSON; the result follows the call."""
    call = {"id": "c1", "name": "search", "args": {"people": 8}}
    events, client = run(
        snapshot(),
        event("1-1", "message", **said("a1", "assistant", "", tool_calls=[call])),
        event("1-2", "message", **said("t1", "tool", "3 rooms", tool_call_id="c1")),
        event("1-3", "message", **said("a2", "assistant", "Which?")),
    )
    assert "TOOL_CALL_RESULT" in types(events)
    called = client.messages[1]["toolCalls"]
    assert called == [{"id": "c1", "name": "search", "arguments": '{"people": 8}'}]
    assert client.texts()[2:] == [("tool", "3 rooms"), ("assistant", "Which?")]


def test_a_tool_answers_in_a_later_run() -> None:
    """A call that waited for an approval: it is not called again, its result comes."""
    call = {"id": "c1", "name": "refund", "args": {}}
    asked = said("a1", "assistant", "", tool_calls=[call])
    known = [OWN, agui_message(asked)]
    result = event("2-1", "message", **said("t1", "tool", "done", tool_call_id="c1"))
    events, client = run(snapshot(messages=[USER, asked]), result, known=known)
    assert "TOOL_CALL_START" not in types(events)
    assert types(events)[-2:] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert [m["role"] for m in client.messages] == ["user", "assistant", "tool"]
    back = Translator("chat:1", None)
    with pytest.raises(OutOfStep):
        back.event(result)


def test_a_result_without_a_call_is_valid_too() -> None:
    """A graph that writes one by itself."""
    message = event("2-1", "message", **said("t1", "tool", "x", tool_call_id="c1", name="look"))
    events, _ = run(snapshot(messages=[USER]), message)
    assert types(events)[1:3] == ["TOOL_CALL_START", "TOOL_CALL_END"]


def test_what_a_crash_undid_is_taken_back() -> None:
    """The open message is ended, a snapshot follows, and only the new text stands."""
    crashed = snapshot("2-0", reason="retracted", messages=[USER], values={"n": 0})
    events, client = run(
        snapshot(messages=[USER]),
        event("1-2", "token", message_id="a1", text="I refu"),
        event("1-3", "custom", node="chat", ns="", data={"name": "app.hint", "value": 1}),
        crashed,
        event("2-1", "token", message_id="a2", text="No."),
        event("2-2", "message", **said("a2", "assistant", "No.")),
        result=snapshot(messages=[USER, said("a2", "assistant", "No.")], values={"n": 0}),
    )
    kinds = types(events)
    assert kinds.index("TEXT_MESSAGE_END") < kinds.index("MESSAGES_SNAPSHOT")
    assert client.texts() == [("user", "hello"), ("assistant", "No.")]


def test_the_same_message_may_come_again_after_a_crash() -> None:
    """Recorded answers keep their ids: a message is not opened twice in a run."""
    call = {"id": "c1", "name": "look", "args": {}}
    _, client = run(
        snapshot(messages=[USER]),
        event("1-2", "token", message_id="a1", text="Goo"),
        event("1-3", "message", **said("a0", "assistant", "", tool_calls=[call])),
        snapshot("2-0", reason="retracted", messages=[USER]),
        event("2-1", "message", **said("a9", "assistant", "", tool_calls=[call])),
        event("2-2", "token", message_id="a1", text="Good"),
        event("2-3", "message", **said("a1", "assistant", "Good day")),
    )
    assert client.texts() == [("user", "hello"), ("assistant", ""), ("assistant", "Good day")]
    assert [c["id"] for m in client.messages for c in m.get("toolCalls", ())] == ["c1"]


def test_a_retraction_where_the_state_has_nothing_yet_keeps_the_persons_message() -> None:
    """The first turn crashed before a checkpoint was written."""
    _, client = run(
        snapshot(),
        event("1-1", "received", message_id="u1", kind="start", content="hello"),
        event("1-2", "token", message_id="a1", text="He"),
        snapshot("2-0", reason="retracted"),
    )
    assert client.texts() == [("user", "hello")]


def test_a_message_that_reads_otherwise_is_put_right() -> None:
    """A node that changes what its model said."""
    _, client = run(
        snapshot(),
        event("1-1", "token", message_id="a1", text="darn"),
        event("1-2", "message", **said("a1", "assistant", "d***")),
        event("1-3", "message", **said("a1", "assistant", "d*** it")),
    )
    assert client.texts() == [("user", "hello"), ("assistant", "d*** it")]


def called(args: dict[str, Any], name: str = "book") -> dict[str, Any]:
    """The data of a message that calls a tool so."""
    return said("a1", "assistant", "", tool_calls=[{"id": "c1", "name": name, "args": args}])


@pytest.mark.parametrize("other", [called({"people": 9}), called({"people": 8}, "hold")])
def test_a_call_that_reads_otherwise_is_put_right(other: Any) -> None:
    """A node corrects the arguments, or the tool, under the same ids: at once, after a break, and
    at the end of a run whose client holds the old ones."""
    first, [call] = called({"people": 8}), other["tool_calls"]
    wanted = {"id": "c1", "name": call["name"], "arguments": json.dumps(call["args"])}
    old, now = [OWN, agui_message(first)], snapshot(messages=[USER, other])
    at_once = [snapshot(), event("1-1", "message", **first), event("1-2", "message", **other)]
    for told, known, result in (
        (at_once, [OWN], None),
        ([now], old, None),
        ([event("1-1", "turn", message_id="u1")], old, now),
    ):
        events, client = run(*told, known=known, result=result)
        assert types(events).count("MESSAGES_SNAPSHOT") == 1
        assert client.messages[1]["toolCalls"] == [wanted]


def test_a_result_of_another_call_is_put_right() -> None:
    """Its text is the same, what it answers is not."""
    results = [said("t1", "tool", "done", tool_call_id=name) for name in ("c1", "c2")]
    known = [OWN, *map(agui_message, [called({}), results[0]])]
    _, client = run(snapshot(messages=[USER, called({}), results[1]]), known=known)
    assert client.messages[2]["toolCallId"] == "c2"


def test_arguments_that_a_client_writes_otherwise_are_the_same() -> None:
    """Without spaces, say, as JSON.stringify does."""
    call = {"id": "c1", "function": {"name": "book", "arguments": '{"b":"\\u00e9","a":1}'}}
    held = AssistantMessage.model_validate({"id": "a1", "toolCalls": [call]})
    ours = called({"a": 1, "b": "é"})
    events, _ = run(snapshot(messages=[USER, ours]), known=[OWN, held])
    assert "MESSAGES_SNAPSHOT" not in types(events)


def test_a_removed_message_goes_and_what_streams_meanwhile_stays() -> None:
    """RemoveMessage beside another branch that is speaking."""
    _, client = run(
        snapshot(messages=[USER, said("a1", "assistant", "old")]),
        event("1-1", "token", message_id="a2", text="new "),
        event("1-2", "message", removed="a1"),
        event("1-3", "token", message_id="a2", text="text"),
        event("1-4", "message", **said("a2", "assistant", "new text")),
        event("1-5", "message", removed="unknown"),
    )
    assert client.texts() == [("user", "hello"), ("assistant", "new text")]


def test_a_join_opens_what_is_under_way() -> None:
    """Snapshot, the text so far, the running tool, then the live tail."""
    tool = {"id": "c1", "name": "book", "args": {"room": "A"}}
    events, client = run(
        snapshot(
            messages=[USER],
            partial=[{"message_id": "a1", "node": "chat", "text": "so f"}],
            running_tools=[tool],
            values={"phase": "x"},
        ),
        event("1-7", "token", message_id="a1", text="ar"),
        event("1-8", "message", **said("a1", "assistant", "so far")),
        known=(),
    )
    assert types(events)[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START"]
    assert client.texts()[:2] == [("user", "hello"), ("assistant", "so far")]
    assert '{"room": "A"}' in str(client.messages)


def test_a_running_tool_that_the_snapshot_has_is_not_told_twice() -> None:
    """Its arguments would stand there twice."""
    tool = {"id": "c1", "name": "book", "args": {"room": "A"}}
    asked = said("a1", "assistant", "", tool_calls=[tool])
    _, client = run(snapshot(messages=[USER, asked], running_tools=[tool]), known=())
    assert str(client.messages).count('{"room": "A"}') == 1


def test_a_snapshot_in_the_middle_goes_on_with_what_is_open() -> None:
    """The stream was trimmed while a message was being said."""
    events, client = run(
        snapshot(),
        event("1-1", "token", message_id="a1", text="one "),
        snapshot("1-5", reason="gone", partial=[{"message_id": "a1", "text": "one two "}]),
        event("1-6", "token", message_id="a1", text="three"),
        event("1-7", "message", **said("a1", "assistant", "one two three")),
    )
    assert types(events).count("TEXT_MESSAGE_START") == 1
    assert client.texts()[-1] == ("assistant", "one two three")


def test_nothing_is_told_that_the_client_has() -> None:
    """Its own message, and a snapshot of what it holds already."""
    events, client = run(
        snapshot(messages=[USER]),
        event("1-1", "received", message_id="u1", kind="input", content="hello"),
        event("1-2", "message", **USER),
        result=snapshot(messages=[USER]),
    )
    assert types(events) == ["RUN_STARTED", "RUN_FINISHED"]
    assert client.texts() == [("user", "hello")]


def test_other_tabs_messages_are_told() -> None:
    """What a person said elsewhere; an answer to a question as a CUSTOM event."""
    events, client = run(
        snapshot(messages=[USER]),
        event("1-1", "received", message_id="u2", kind="input", content="me too"),
        event("1-2", "received", message_id="x", kind="answer", content={"ok": True}),
    )
    assert client.texts() == [("user", "hello"), ("user", "me too")]
    assert events[-2]["name"] == "fleet.received"


def test_what_was_left_open_is_closed_and_put_right_at_the_end() -> None:
    """A turn that died in the middle of a message."""
    events, client = run(
        snapshot(messages=[USER]),
        event("1-1", "token", message_id="a1", text="half"),
        end=End("error", code="failed", message="the node raised ValueError"),
        result=snapshot(messages=[USER]),
    )
    assert types(events)[-2:] == ["MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert (client.texts(), client.error) == ([("user", "hello")], "failed")


def test_a_graph_that_keeps_no_messages_leaves_the_clients_alone() -> None:
    """There is nothing to put in their place."""
    _, client = run(
        snapshot(values={"n": 1}),
        event("1-1", "custom", node="n", ns="", data={"progress": 1}),
        result=snapshot(values={"n": 2}),
    )
    assert (client.texts(), client.state) == ([("user", "hello")], {"n": 2})


def test_a_chat_that_was_emptied_is_empty_at_the_client_too() -> None:
    """Its state keeps messages and has none: for who joins, and at the end of a run."""
    old = UserMessage(id="u0", content="old")
    _, client = run(snapshot(chat=True), known=(old, OWN))
    assert client.texts() == [("user", "hello")]
    _, client = run(
        snapshot(messages=[USER], chat=True),
        event("1-1", "message", **said("a1", "assistant", "forgotten")),
        result=snapshot(chat=True),
    )
    assert client.texts() == []


def test_one_who_comes_back_goes_on_in_the_middle_of_a_message() -> None:
    """The message is opened again, and what it says is added to what the client has."""
    back = Translator("chat:1", None)
    told = back.event(event("1-4", "token", message_id="a1", text=" day"))
    told += back.event(event("1-5", "message", **said("a1", "assistant", "Good day")))
    events = valid(wire([*told, *back.finish(DONE)]))
    before = [{"id": "a1", "role": "assistant", "content": "Good"}]
    assert Client(before).take(events).texts() == [("assistant", "Good day")]


@pytest.mark.parametrize(
    "missed",
    [
        event("1-5", "message", **said("a1", "assistant", "Good day")),
        event("1-5", "message", removed="a0"),
        event("2-1", "received", message_id="u2", kind="input", content="more"),
    ],
    ids=["whole", "removed", "received"],
)
def test_one_who_comes_back_gets_a_snapshot_where_its_messages_matter(missed: Any) -> None:
    """Whether it has the beginning is not known, so all of it is told anew; nothing twice."""
    back = Translator("chat:1", None)
    told = back.event(event("1-4", "step", node="a", ns="", keys=[]))
    with pytest.raises(OutOfStep):
        back.event(missed)
    whole = [USER, said("a1", "assistant", "Good day")]
    told += back.snapshot(snapshot("1-5", messages=whole))
    told += back.event(event("3-1", "message", **said("a2", "assistant", "Bye")))
    events = valid(wire([*told, *back.finish(DONE)]))
    before = [{"id": "a1", "role": "assistant", "content": "Good day"}]
    client = Client(before).take(events)
    assert sorted(client.texts()) == [
        ("assistant", "Bye"),
        ("assistant", "Good day"),
        ("user", "hello"),
    ]


def test_out_of_step_in_an_open_message_closes_it() -> None:
    """The message that was opened again reads otherwise."""
    back = Translator("chat:1", None)
    told = back.event(event("1-4", "token", message_id="a1", text=" day"))
    with pytest.raises(OutOfStep):
        back.event(event("1-5", "message", **said("a1", "assistant", "Good night")))
    told += back.snapshot(snapshot("1-5", messages=[said("a1", "assistant", "Good night")]))
    client = Client().take(valid(wire([*told, *back.finish(DONE)])))
    assert client.texts() == [("assistant", "Good night")]


def test_runs_follow_each_other_in_one_stream() -> None:
    """A stream of events: each run has its id, and may say again what an earlier one said."""
    translator = Translator("chat:1", ())
    told = translator.snapshot(snapshot(thread=thread("done"), messages=[USER]))
    told += translator.finish(DONE)
    for epoch, name in ((2, "u2"), (3, "u3")):
        told += translator.event(event(f"{epoch}-0", "turn", message_id=name, attempt=1))
        told += translator.event(
            event(f"{epoch}-1", "received", message_id=name, kind="input", content="go")
        )
        told += translator.finish(DONE)
    told += translator.event(event("4-0", "status", status="cancelled", reason="cancelled"))
    told += translator.finish(End("cancelled"))
    events = valid(wire(told))
    runs = [e["runId"] for e in events if e["type"] == "RUN_STARTED"]
    assert runs[1:3] == ["u2", "u3"] and events[-1]["outcome"] == {"type": "cancelled"}


def test_all_open_questions_are_told() -> None:
    """Two at once: each with its id, kind, text and payload."""
    asked = [
        question("q1", "confirm", {"kind": "confirm", "message": "Book A?", "data": {"room": "A"}}),
        question("q2", "approve", {"action_requests": [{"name": "x", "description": "Do x"}]}),
    ]
    interrupts = tuple(interrupt_of(Question.model_validate(q)) for q in asked)
    _, client = run(snapshot(), end=End("interrupt", interrupts))
    first, second = client.outcome["interrupts"]
    assert (first["id"], first["reason"], first["message"]) == ("q1", "confirmation", "Book A?")
    assert first["metadata"]["payload"]["data"] == {"room": "A"}
    assert (second["id"], second["message"]) == ("q2", "Do x")
    assert second["responseSchema"]["required"] == ["approved"]


def test_a_run_that_asks_tells_all_that_the_next_one_starts_from() -> None:
    """MESSAGES_SNAPSHOT and STATE_SNAPSHOT before the end, also where nothing has changed."""
    asked = interrupt_of(Question.model_validate(question("q1", "clarify", {"message": "When?"})))
    for result in (None, snapshot(messages=[USER], values={"n": 1})):
        first = snapshot(messages=[USER], values={"n": 1})
        events, client = run(first, end=End("interrupt", (asked,)), result=result)
        assert types(events)[-3:] == ["MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]
        assert client.state == {"n": 1}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("approve", "confirmation"),
        ("confirm", "confirmation"),
        ("clarify", "input_required"),
        ("value", "input_required"),
        ("select_room", "fleet:select_room"),
    ],
)
def test_kinds_of_questions_have_agui_s_reasons(kind: str, reason: str) -> None:
    """Clients show their own dialogs for those; the kind is in the metadata."""
    found = interrupt_of(Question.model_validate(question("q1", kind, {"message": "?"})))
    assert (found.reason, (found.metadata or {})["kind"]) == (reason, kind)


def test_an_approval_of_a_tool_call_names_it() -> None:
    """Where exactly one call is like the action that it asks about."""
    action = {"name": "refund", "args": {"id": 1}}
    config = {"action_name": "refund", "allowed_decisions": ["approve", "edit"]}
    payload = {"action_requests": [action], "review_configs": [config]}
    asked = Question.model_validate(question("q1", "approve", payload))
    call = {"id": "c1", **action}
    found = interrupt_of(asked, [call, {"id": "c2", "name": "refund", "args": {"id": 2}}])
    assert (found.reason, found.tool_call_id) == ("tool_call", "c1")
    assert "editedArgs" in (found.response_schema or {})["properties"]
    assert interrupt_of(asked, [call, {**call, "id": "c3"}]).reason == "confirmation"


def test_half_a_surrogate_pair_breaks_nothing() -> None:
    """Text that is none in UTF-8 is replaced, not a reason to stop."""
    _, client = run(
        snapshot(),
        event("1-1", "token", message_id="a1", text="\ud83d"),
        event("1-2", "message", **said("a1", "assistant", "\ud83d")),
    )
    assert client.texts()[-1] == ("assistant", "�")


def test_media_of_a_message_come_back_as_they_were_sent() -> None:
    """Parts of AG-UI's become LangChain's blocks and are told as the same parts."""
    from producers.gateway.agui_messages import agui_message, blocks

    parts = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "url", "value": "https://x.test/a.pdf"}},
    ]
    sent = UserMessage.model_validate({"id": "u1", "role": "user", "content": parts})
    assert isinstance(sent.content, list)
    data = said("u1", "user", "look", content=blocks(sent.content))
    assert agui_message(data).model_dump(by_alias=True)["content"] == parts
    _, client = run(snapshot(), event("1-1", "message", **{**data, "message_id": "u2"}))
    assert client.messages[-1]["content"] == parts
