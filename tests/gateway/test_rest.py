"""REST: messages, threads, questions, cancelling, and what is said against a request."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from producers import Fleet
from tests.gateway.serving import Gateway, problem
from tests.harness import Database, Shop, eventually
from tests.integration.mailbox import APPROVE, INPUT, accepted, ask, settle
from workers.drain import drain
from workers.slot import Slot

A1 = "/threads/refund/A1"


def sent(client: httpx.Client, path: str = A1, key: str | None = "m1", **body: Any) -> Any:
    """POST of a message."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"{path}/messages", json={"input": INPUT} | body, headers=headers)


def test_a_start_is_accepted_once(client: httpx.Client, database: Database) -> None:
    """202 with the receipt once it is committed; sent again, the same receipt."""
    first, again = sent(client), sent(client)
    assert (first.status_code, again.status_code) == (202, 202)
    receipt = first.json()
    assert receipt["thread_id"] == "refund:A1" and receipt["outcome"] == "accepted"
    assert again.json() == {**receipt, "outcome": "duplicate"}
    assert first.headers["location"] == A1 and accepted(database) == 1


def test_an_idempotency_key_may_have_the_quotes_of_a_structured_header(
    client: httpx.Client, database: Database
) -> None:
    """`"m1"` and `m1` are the same message."""
    sent(client, key='"m1"')
    assert sent(client, key="m1").json()["outcome"] == "duplicate"
    assert accepted(database) == 1


def test_a_start_without_a_name_is_refused(client: httpx.Client, database: Database) -> None:
    """400; an empty one too, and one that can't name anything."""
    problem(sent(client, key=None), 400, "missing_idempotency_key")
    problem(sent(client, key=""), 400, "invalid_key")
    problem(sent(client, key="x" * 256), 400, "invalid_key")
    assert accepted(database) == 0


def test_the_same_name_with_another_payload_is_refused(
    client: httpx.Client, database: Database
) -> None:
    """422, and nothing is overwritten."""
    sent(client)
    found = problem(sent(client, input={"user_id": "u_7"}), 422, "message_conflict")
    assert found["message_id"] == "m1" and accepted(database) == 1


def test_while_the_first_is_under_way_another_payload_has_to_wait(
    gateway: Gateway, client: httpx.Client, database: Database
) -> None:
    """409: it is not known yet which of the two counts. The same payload is no matter."""
    with database.connect() as conn:
        conn.execute("BEGIN")
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('refund:A1', 1))")
        answers: list[Any] = []
        first = threading.Thread(target=lambda: answers.append(sent(client)))
        first.start()
        eventually(lambda: gateway.state.in_flight._under_way)
        problem(sent(client, input={"user_id": "u_7"}), 409, "in_flight")
        conn.execute("COMMIT")
    first.join(20)
    assert answers[0].status_code == 202 and accepted(database) == 1
    problem(sent(client, input={"user_id": "u_7"}), 422, "message_conflict")


def test_a_start_meets_the_thread_that_is_there(client: httpx.Client, database: Database) -> None:
    """Its receipt with 200; refused, or begun anew, where that is asked for."""
    sent(client)
    met = sent(client, key="m2")
    assert (met.status_code, met.json()["message_id"]) == (200, "m1")
    problem(sent(client, key="m3", on_existing="reject"), 409, "thread_exists")
    assert accepted(database) == 1
    assert sent(client, key="m4", on_existing="restart").status_code == 202


def test_input_goes_to_a_thread_that_exists(client: httpx.Client, database: Database) -> None:
    """404 else; it needs no name, but has one where it is given."""
    problem(sent(client, kind="input"), 404, "unknown_thread")
    sent(client)
    assert sent(client, key=None, kind="input").json()["seq"] == 2
    assert sent(client, key="m2", kind="input").json()["seq"] == 3
    assert sent(client, key="m2", kind="input").json()["outcome"] == "duplicate"


def test_a_chat_sends_without_knowing_whether_it_is_the_first(
    client: httpx.Client, database: Database
) -> None:
    """`on_existing: send` starts the thread or is input for it; each counts once either way."""
    for key in ("m1", "m2", "m1", "m2"):
        assert sent(client, key=key, on_existing="send").status_code == 202
    kinds = database.fetch("SELECT message_id, kind FROM fleet.messages ORDER BY seq")
    assert kinds == [("m1", "start"), ("m2", "input")]
    changed = sent(client, key="m2", on_existing="send", input={"user_id": "u_7"})
    problem(changed, 422, "message_conflict")


def test_input_while_a_question_waits_is_refused(client: httpx.Client, database: Database) -> None:
    """409 with the question's id."""
    sent(client)
    ask(database, "refund:A1", "q1")
    found = problem(sent(client, key="m2", kind="input"), 409, "question_open")
    assert found["open"] == ["q1"]


def test_unknown_graphs_and_inputs_that_do_not_fit_are_told_apart(client: httpx.Client) -> None:
    """404 with the known ones; 422 with what is wrong where."""
    assert "refund" in problem(sent(client, "/threads/nope/A1"), 404, "unknown_graph")["known"]
    assert problem(sent(client, input={}), 422, "invalid_input")["graph"] == "refund"


@pytest.mark.parametrize("key", ["a/b", "50%", "a%2Fb", "ä ö", "a?b#c", "x/messages", "..", "a:b"])
def test_a_key_may_hold_anything(client: httpx.Client, database: Database, key: str) -> None:
    """Percent-encoded, slashes too; the Location leads to the thread."""
    from urllib.parse import quote

    receipt = sent(client, f"/threads/refund/{quote(key, safe='').replace('.', '%2E')}")
    assert receipt.status_code == 202, receipt.text
    assert database.value("SELECT key FROM fleet.threads") == key
    place = receipt.headers["location"].replace("..", "%2E%2E")
    assert client.get(place).json()["key"] == key


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b'{"input": {"a": 1, "a": 2}}', 400, "invalid_json"),
        (b'{"input": {"a": NaN}}', 400, "invalid_json"),
        (b'{"input": {"a": "\xff"}}', 400, "invalid_json"),
        (b'{"input": {"a": %s}}' % (b"1" * 5000), 400, "invalid_json"),
        (b"[" * 100_000, 400, "bad_request"),
        (b'{"input": {"a": "\\u0000"}}', 400, "invalid_payload"),
        (b'{"input": {"a": "\\ud800"}}', 400, "invalid_payload"),
        (b'{"input": {"a": %d}}' % 2**64, 400, "invalid_payload"),
        (b'{"input": %s1%s}' % (b'{"a":' * 70, b"}" * 70), 400, "invalid_payload"),
        (b'{"input": {"a": "%s"}}' % (b"x" * 300_000), 400, "invalid_payload"),
        (b'{"input": 1}', 422, "invalid_request"),
        (b'{"input": {}, "kin": "start"}', 422, "invalid_request"),
        (b'{"input": {}, "priority": true}', 422, "invalid_request"),
        (b"", 422, "invalid_request"),
        (b'{"input": {"a": "%s"}}' % (b"x" * (2 << 20)), 413, "body_too_large"),
    ],
)
def test_a_body_that_is_none_changes_nothing(
    client: httpx.Client, database: Database, body: bytes, status: int, code: str
) -> None:
    """What is wrong is said; what was given is not repeated."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": "m1"}
    answer = client.post(f"{A1}/messages", content=body, headers=headers)
    found = problem(answer, status, code)
    assert len(json.dumps(found)) < 1000 and accepted(database) == 0


def test_a_body_that_does_not_say_its_size_is_cut_off(
    client: httpx.Client, database: Database
) -> None:
    """Sent in chunks, it is 413 all the same."""
    chunks = (b" " * 65536 for _ in range(40))
    headers = {"Content-Type": "application/json", "Idempotency-Key": "m1"}
    problem(client.post(f"{A1}/messages", content=chunks, headers=headers), 413, "body_too_large")
    assert sent(client).status_code == 202 and accepted(database) == 1


def test_a_body_of_another_type_is_refused(client: httpx.Client, database: Database) -> None:
    """A form of a foreign page can send text, and never application/json."""
    headers = {"Content-Type": "text/plain", "Idempotency-Key": "m1"}
    answer = client.post(f"{A1}/messages", content=json.dumps({"input": INPUT}), headers=headers)
    problem(answer, 422, "invalid_request")
    assert accepted(database) == 0


# Looking


def test_a_thread_is_shown_with_its_state(client: httpx.Client, slot: Slot, shop: Shop) -> None:
    """After a real turn; its history page by page."""
    order = shop.new_order("10.00")
    sent(client, f"/threads/refund/{order}")
    drain(slot, f"refund:{order}")
    found = client.get(f"/threads/refund/{order}").json()
    assert found["status"] == "done" and found["state"]["user_id"] == "u_42"
    assert "state" not in client.get(f"/threads/refund/{order}?state=false").json()
    whole = client.get(f"/threads/refund/{order}/history").json()
    ids = [entry["checkpoint_id"] for entry in whole["checkpoints"]]
    assert ids == sorted(ids) and len(ids) > 2 and whole["before"] is None
    pages: list[str] = []
    before = ""
    while before is not None:
        page = client.get(f"/threads/refund/{order}/history?limit=2&before={before}").json()
        pages = [entry["checkpoint_id"] for entry in page["checkpoints"]] + pages
        before = page["before"]
    assert pages == ids


def test_threads_are_listed(client: httpx.Client, fleet: Fleet, database: Database) -> None:
    """By status and graph; of the default tenant only, for a caller of it."""
    for key in ("A1", "A2"):
        sent(client, f"/threads/refund/{key}")
    settle(database, "refund:A2", "done")
    Fleet(database.url, tenant="acme").submit("refund", "A3", INPUT)

    def listed(query: str = "") -> list[str]:
        return [row["thread_id"] for row in client.get(f"/threads{query}").json()["threads"]]

    assert sorted(listed()) == ["refund:A1", "refund:A2"]
    assert listed("?status=done") == ["refund:A2"] and len(listed("?limit=1")) == 1
    assert listed("?graph=other") == []
    problem(client.get("/threads?status=nope"), 422, "invalid_request")
    problem(client.get("/threads?limit=0"), 422, "invalid_request")


@pytest.mark.parametrize("path", ["", "/history", "/questions"])
def test_what_is_not_there_is_404(client: httpx.Client, path: str) -> None:
    """Each view of a thread."""
    found = problem(client.get(A1 + path), 404, "unknown_thread")
    assert found["thread_id"] == "refund:A1"


# Answers


@pytest.fixture
def asked(client: httpx.Client, database: Database) -> Iterator[str]:
    """The path of an open approval, q1 of A1."""
    sent(client)
    ask(database, "refund:A1", "q1")
    yield f"{A1}/questions/q1/answer"


def test_an_answer_is_accepted_once(client: httpx.Client, asked: str, database: Database) -> None:
    """202; a second one is told by whom and when the first was."""
    first = client.post(asked, json={"value": "approved", "answered_by": "ann"})
    assert (first.status_code, first.json()["outcome"]) == (202, "accepted")
    found = problem(client.post(asked, json={"value": "rejected"}), 409, "answer_refused")
    assert found["reason"] == "already_answered" and found["answered_by"] == "ann (local)"
    assert found["answered_at"] and accepted(database) == 2
    [question] = client.get(f"{A1}/questions").json()["questions"]
    assert question["status"] == "answered" and question["answered_by"] == "ann (local)"
    assert question["payload"] == APPROVE


def test_the_same_answer_sent_again_is_the_same(client: httpx.Client, asked: str) -> None:
    """By its Idempotency-Key."""
    for outcome in ("accepted", "duplicate"):
        answer = client.post(asked, json={"value": "yes"}, headers={"Idempotency-Key": "a1"})
        if outcome == "accepted":
            problem(answer, 422, "answer_refused")
        answer = client.post(asked, json={"value": "approved"}, headers={"Idempotency-Key": "a1"})
        assert answer.json()["outcome"] == outcome


def test_late_old_and_unknown_answers_are_told_so(
    client: httpx.Client, asked: str, database: Database
) -> None:
    """410 expired, 409 of a question that was superseded, 404 of one that never was."""
    value = {"value": "approved"}
    problem(client.post(f"{A1}/questions/q9/answer", json=value), 404, "answer_refused")
    problem(
        client.post("/threads/refund/A9/questions/q1/answer", json=value), 404, "unknown_thread"
    )
    ask(database, "refund:A1", "q0", status="superseded")
    old = client.post(f"{A1}/questions/q0/answer", json=value)
    assert problem(old, 409, "answer_refused")["open"] == ["q1"]
    database.fetch("SELECT fleet.move_clock('1 hour')")
    database.fetch("UPDATE fleet.questions SET expires_at = fleet.now() - interval '1 s'")
    assert problem(client.post(asked, json=value), 410, "answer_refused")["reason"] == "expired"
    assert accepted(database) == 1


def test_a_thread_is_cancelled(client: httpx.Client, asked: str) -> None:
    """And its question asks nothing any more."""
    assert client.post(f"{A1}/cancel").json()["outcome"] == "cancelled"
    assert client.get(A1).json()["status"] == "cancelled"
    found = problem(client.post(asked, json={"value": "approved"}), 409, "answer_refused")
    assert found["reason"] in ("finished", "stale_question")
    problem(client.post("/threads/refund/A9/cancel"), 404, "unknown_thread")
