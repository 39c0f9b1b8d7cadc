"""One-time links: what they show, that they answer once, and that opening one does nothing."""

import hashlib
import re
import secrets
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from producers import Fleet
from producers.answers import Verdict
from producers.errors import FleetUnavailable, InvalidPayload
from producers.gateway.link_forms import answer_of, form_of
from tests.gateway.serving import Gateway
from tests.harness import Database, clean_environment
from tests.integration.mailbox import APPROVE, INPUT, ask
from workers.drain import drain
from workers.slot import Slot

THREAD = "refund:A"


def link_to(database: Database, question: str = "q1", thread: str = THREAD) -> str:
    """The path of a link as the notifier makes one; the question has been sent out."""
    token = secrets.token_urlsafe(24)
    database.fetch(
        "WITH sent AS (INSERT INTO fleet.notifications (notification_id, thread_id, question_id,"
        " asked_epoch, channel, status, available_at, created_at)"
        " SELECT %s, thread_id, question_id, asked_epoch, 'webhook', 'sent', fleet.now(),"
        " fleet.now() FROM fleet.questions WHERE thread_id = %s AND question_id = %s"
        " ON CONFLICT (thread_id, question_id, asked_epoch, channel, round) DO UPDATE"
        " SET status = 'sent' RETURNING notification_id)"
        " INSERT INTO fleet.answer_links SELECT %s, notification_id, fleet.now() FROM sent",
        f"msg_{token}",
        thread,
        question,
        hashlib.sha256(token.encode()).digest(),
    )
    return f"/answer/{token}"


@pytest.fixture
def link(fleet: Fleet, database: Database) -> str:
    """To a question that asks for an approval."""
    fleet.submit("refund", "A", INPUT)
    ask(database, THREAD, "q1", expires_in=3600)
    return link_to(database)


def everything(database: Database) -> list[Any]:
    tables = ("threads", "messages", "questions", "notifications", "answer_links")
    return [database.fetch(f"SELECT * FROM fleet.{table} ORDER BY 1, 2") for table in tables]


def question_of(database: Database) -> tuple[Any, ...]:
    return database.fetch("SELECT status, answer, answered_by FROM fleet.questions")[0]


def test_opening_a_link_changes_nothing(
    client: httpx.Client, link: str, database: Database
) -> None:
    """Mail scanners open links, and some send a HEAD first."""
    before = everything(database)
    for _ in range(3):
        assert client.get(link).status_code == 200
        client.head(link)
        client.options(link)
    assert everything(database) == before


def test_the_page_shows_the_question_and_its_buttons(client: httpx.Client, link: str) -> None:
    """In words, with all of it below."""
    page = client.get(link).text
    assert "refund" in page and "1500.00" in page and THREAD in page
    assert re.findall(r"<button[^>]*>([^<]+)</button>", page) == ["Approve", "Reject"]


def test_a_button_answers(client: httpx.Client, link: str, database: Database) -> None:
    """By the link, with the note that was written; then the link says it was used."""
    done = client.post(link, data={"choice": "1", "text": "too much"})
    assert (done.status_code, "counts" in done.text) == (200, True)
    rejected = {"decisions": [{"type": "reject", "message": "too much"}]}
    assert question_of(database) == ("answered", rejected, "link:webhook")
    used = client.get(link)
    assert used.status_code == 410 and "has been used" in used.text


def test_a_double_click_counts_once(client: httpx.Client, link: str, database: Database) -> None:
    """The second is told the same as the first; another choice is told that it is too late."""
    for _ in range(2):
        assert client.post(link, data={"choice": "0"}).status_code == 200
    other = client.post(link, data={"choice": "1"})
    assert other.status_code == 409 and "used" in other.text
    assert question_of(database)[1] == {"decisions": [{"type": "approve"}]}
    assert database.value("SELECT count(*) FROM fleet.messages WHERE kind = 'answer'") == 1


def test_who_comes_second_is_told_who_was_first(
    client: httpx.Client, fleet: Fleet, link: str, database: Database
) -> None:
    """G8: the link, another link and any other door are the same answer."""
    second = link_to(database)
    fleet.answer(THREAD, "q1", "approved", answered_by="ann")
    page = client.get(link)
    assert page.status_code == 410 and "by ann" in page.text
    late = client.post(second, data={"choice": "1"})
    assert late.status_code == 409 and "by ann" in late.text
    assert question_of(database) == ("answered", {"decisions": [{"type": "approve"}]}, "ann")


def test_a_second_link_to_the_same_question_is_told_of_the_first(
    client: httpx.Client, link: str, database: Database
) -> None:
    """Each attempt and channel has one of its own."""
    second = link_to(database)
    assert client.post(link, data={"choice": "0"}).status_code == 200
    late = client.post(second, data={"choice": "0"})
    assert late.status_code == 409 and "link:webhook" in late.text


def test_a_link_expires_with_its_question(
    client: httpx.Client, link: str, database: Database
) -> None:
    """From that moment on, also before the sweep has come by."""
    database.fetch("SELECT fleet.move_clock('3601 s')")
    assert client.get(link).status_code == 410
    late = client.post(link, data={"choice": "0"})
    assert late.status_code == 410 and "expired" in late.text
    database.fetch("SELECT fleet.expire_questions()")
    assert client.get(link).status_code == 410
    assert question_of(database)[0] == "expired"


def test_a_link_of_an_earlier_asking_answers_nothing(
    client: httpx.Client, link: str, database: Database
) -> None:
    """The question was asked anew, perhaps about something else."""
    database.fetch("UPDATE fleet.questions SET asked_epoch = 99")
    assert client.get(link).status_code == 410
    assert client.post(link, data={"choice": "0"}).status_code == 410
    assert client.post(link, json={"value": "approved"}).status_code == 410
    assert question_of(database)[0] == "open"


def test_a_cancelled_threads_link_says_so(
    client: httpx.Client, fleet: Fleet, link: str, database: Database
) -> None:
    """It is not open any more."""
    fleet.cancel(THREAD)
    assert client.get(link).status_code == 410
    assert client.post(link, data={"choice": "0"}).status_code == 410


@pytest.mark.parametrize("token", ["x", "A" * 32, "..%2f..", "é" * 30, "A" * 500])
def test_an_unknown_link_is_none(client: httpx.Client, token: str, database: Database) -> None:
    """Whatever it looks like."""
    path = f"/answer/{token}"
    assert client.get(path).status_code in (404, 422)
    assert client.post(path, data={"choice": "0"}).status_code in (404, 422)
    assert client.post(path, json={"value": 1}).status_code in (404, 422)


@pytest.mark.parametrize("fields", [{}, {"choice": "9"}, {"choice": "x"}, {"text": "words"}])
def test_a_form_without_an_answer_is_asked_again(
    client: httpx.Client, link: str, database: Database, fields: dict[str, str]
) -> None:
    """With what is wrong; the link is not used up."""
    again = client.post(link, data=fields)
    assert again.status_code == 422 and 'role="alert"' in again.text
    assert question_of(database)[0] == "open"
    assert client.post(link, data={"choice": "0"}).status_code == 200


def test_bytes_that_are_no_form_are_asked_again(
    client: httpx.Client, link: str, database: Database
) -> None:
    """No traceback."""
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body in b"\xff\xfe", b"&".join(b"a=1" for _ in range(100)), b"choice=0%00":
        assert client.post(link, content=body, headers=kind).status_code == 422
    assert question_of(database)[0] == "open"


def test_a_program_answers_by_json(client: httpx.Client, link: str, database: Database) -> None:
    """And gets a receipt, or a problem."""
    wrong = client.post(link, json={"value": 7})
    assert wrong.status_code == 422 and wrong.json()["code"] == "answer_refused"
    for body in {"values": 7}, [1], {"value": 1, "by": "me"}:
        assert client.post(link, json=body).json()["code"] == "invalid_request"
    kind = {"content-type": "application/json"}
    for text in b'{"value": NaN}', b'{"value": 1, "value": 2}', b"\xff", b"[" * 100_000, b"":
        assert client.post(link, content=text, headers=kind).status_code in (400, 422)
    given = client.post(link, json={"value": "approved"})
    assert given.status_code == 202 and given.json()["outcome"] == "accepted"
    other = client.post(link, json={"value": "rejected"})
    assert (other.status_code, other.json()["code"]) == (409, "link_used")
    unknown = client.post("/answer/" + "A" * 32, json={"value": 1})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_link")


def test_the_pages_are_kept_by_nobody_and_load_nothing(client: httpx.Client, link: str) -> None:
    """No cache, no referrer that has the token, no script, no frame."""
    # With "no-referrer" a browser would send the form with the Origin "null".
    for response, referrer in (
        (client.get(link), "strict-origin"),
        (client.post(link, data={}), "strict-origin"),
        (client.get("/answer/x"), "no-referrer"),
    ):
        headers = response.headers
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"].split(", ")[-1] == referrer
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "script" not in response.text
        (style,) = re.findall(r"<style>(.*?)</style>", response.text, re.DOTALL)
        digest = hashlib.sha256(style.encode()).digest()
        assert f"sha256-{b64encode(digest).decode()}" in policy


def test_what_is_asked_is_text_and_no_markup(
    client: httpx.Client, fleet: Fleet, database: Database
) -> None:
    """It may come from outside."""
    evil = '<img src=x onerror="alert(1)">'
    fleet.submit("refund", "A", INPUT)
    payload = {"kind": "clarify", "message": evil, "options": [evil]}
    ask(database, THREAD, "q1", kind="clarify", payload=payload)
    page = client.get(link_to(database)).text
    assert "<img" not in page and page.count("&lt;img") == 4


def test_people_are_told_when_the_fleet_is_away(
    client: httpx.Client, gateway: Gateway, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page, not a problem for machines; the link is as good as before."""

    async def away(*_: Any, **__: Any) -> Any:
        raise FleetUnavailable("Postgres is not reachable.")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.state.database, "row", away)
        for response in client.get(link), client.post(link, data={"choice": "0"}):
            assert response.status_code == 503 and "<h1>Not now</h1>" in response.text
    assert client.post(link, data={"choice": "0"}).status_code == 200


def test_a_form_of_another_page_is_refused(client: httpx.Client, link: str) -> None:
    """By its Origin, as at every door; the page's own passes."""
    foreign = client.post(link, data={"choice": "0"}, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403
    own = str(client.base_url).rstrip("/")
    assert client.post(link, data={"choice": "0"}, headers={"origin": own}).status_code == 200


def test_the_link_is_enough_where_others_need_a_key(guarded: Gateway, link: str) -> None:
    """It was sent to whoever may answer."""
    with guarded.client() as client:
        assert client.get("/threads").status_code == 401
        assert client.post(link, data={"choice": "0"}).status_code == 200


def test_a_link_of_another_tenants_thread_answers_that_one(
    guarded: Gateway, database: Database
) -> None:
    """The tenant is the link's, nobody says it."""
    with Fleet(guarded.settings.postgres_url, guarded.settings.redis_url, tenant="acme") as acme:
        acme.submit("refund", "A", INPUT)
        ask(database, "acme/refund:A", "q1")
        path = link_to(database, thread="acme/refund:A")
        with guarded.client() as client:
            assert client.post(path, data={"choice": "0"}).status_code == 200
        assert acme.status("refund:A").question is None


def test_the_graph_goes_on_with_the_links_answer(
    client: httpx.Client, fleet: Fleet, slot: Slot, shop: Any, database: Database
) -> None:
    """As with any other: the refund is made."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    question = fleet.status(thread).question
    assert question is not None
    path = link_to(database, question.question_id, thread)
    assert client.post(path, data={"choice": "0"}).status_code == 200
    drain(slot, thread)
    assert fleet.status(thread).status == "done" and shop.refunds(order) == 1


_SERVE = """
from infra.settings import get_settings
from producers.gateway.serve import serve

serve(get_settings(), "127.0.0.1", 0, lambda url: print(url, flush=True))
"""


def test_an_answer_whose_gateway_dies_before_it_wakes_anybody_is_carried_out(
    workers: Any,
    fleet: Fleet,
    shop: Any,
    database: Database,
    fleet_settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    """F133: accepted, then kill -9 before the wake-up: the sweep finds it; once."""
    workers.start()
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    question = fleet.wait(thread, 60, until={"waiting"}).question
    assert question is not None
    path = link_to(database, question.question_id, thread)
    environment = clean_environment(
        **fleet_settings, gateway_auth="off", failpoints="accept.after_commit=kill"
    )
    argv = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(
        argv, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().strip()
        with pytest.raises(httpx.TransportError):
            httpx.post(url + path, data={"choice": "0"}, timeout=30)
        assert gateway.wait(30) == -9
    done = fleet.wait(thread, 60, until={"done", "failed"})
    assert done.status == "done" and shop.refunds(order) == 1


# Forms


def asked(payload: Any, kind: str = "value", schema: Any = None) -> dict[str, Any]:
    return {"kind": kind, "payload": payload, "response_schema": schema}


@pytest.mark.parametrize(
    ("question", "buttons", "typed"),
    [
        (asked(APPROVE, "approve"), ["Approve", "Reject"], "note"),
        (asked({"next": ["n"]}, "continue"), ["Continue"], None),
        (asked({"message": "When?"}, "clarify"), [], "text"),
        (asked({"message": "Sure?"}, "confirm"), ["Yes", "No"], None),
        (asked({"message": "Sure?", "text": True}, "confirm"), ["Yes", "No"], "text"),
        (asked({"options": ["a", {"label": "B", "id": 2}, 3]}), ["a", "B", "3"], None),
        (asked("?", schema={"type": "boolean"}), ["Yes", "No"], None),
        (asked("?", schema={"enum": ["x", 2, None]}), ["x", "2", "null"], None),
        (asked("?", schema={"type": "string"}), [], "text"),
        (asked("?", schema={"type": "object"}), [], "json"),
        (asked(["odd"]), [], "json"),
        (asked({"data": {"candidates": [{"name": "n"}]}}, "select_room"), [], "json"),
    ],
)
def test_the_form_is_of_the_questions_kind(question: Any, buttons: Any, typed: Any) -> None:
    """Buttons for what can be picked, a field for what has to be said."""
    form = form_of(question)
    assert ([button.label for button in form.buttons], form.typed) == (buttons, typed)


def test_rooms_are_picked_by_their_id() -> None:
    """As the booking assistant takes it; words do as well."""
    rooms = {"candidates": [{"id": "R1", "name": "Oak"}, {"id": "R2", "name": "Elm"}]}
    question = asked({"message": "Which?", "text": True, "data": rooms}, "select_room")
    assert [button.label for button in form_of(question).buttons] == ["Oak", "Elm"]
    assert answer_of(question, {"choice": "1"}) == {"room_id": "R2"}
    assert answer_of(question, {"text": " the second one "}) == "the second one"


def test_what_is_typed_is_json_or_words() -> None:
    """Where the question asks for any value."""

    def take(text: str) -> Any:
        return answer_of(asked("?"), {"text": text})

    assert [take('{"a": 1}'), take("5"), take("five"), take("{no")] == [{"a": 1}, 5, "five", "{no"]
    with pytest.raises(InvalidPayload):
        take("  ")


def test_a_note_goes_with_the_verdict() -> None:
    """An empty one is none."""
    question = asked(APPROVE, "approve")
    assert answer_of(question, {"choice": "0", "text": " "}) == Verdict(True)
    assert answer_of(question, {"choice": "1", "text": "no"}) == Verdict(False, "no")
