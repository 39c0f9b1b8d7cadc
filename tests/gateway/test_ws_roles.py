"""What a role may say over a WebSocket in a session of somebody else's."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.gateway.pages import Page
from tests.gateway.serving import Gateway, token
from tests.harness import Database, registered_graphs
from workers.drain import drain
from workers.slot import Slot

#: By frame, whom it is allowed to. `said`: a message while nothing is asked; `text`: one that is
#: the answer to the open question.
MAY = {
    "said": {"producer", "operator"},
    "text": {"approver", "operator"},
    "answer": {"approver", "operator"},
    "cancel": {"producer", "operator"},
}
ROLES = ["viewer", "producer", "approver", "operator"]


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return registered_graphs(tmp_path, database, {"talk": "chatter.py:graph"})


@pytest.fixture
def anns(guarded: Gateway, graphs_file: Path) -> Iterator[Page]:
    """Ann's page, of the tenant acme."""
    with Page(guarded, token=token("ann", tenant="acme")) as page:
        page.until("welcome")
        yield page


def prepared(anns: Page, slot: Slot, frame: str) -> dict[str, Any]:
    """What is sent, to a session in which it makes sense."""
    anns.say("hello" if frame == "said" else "ask Name?")
    drain(slot, anns.frames[0]["thread_id"])
    if frame == "cancel":
        return {"type": "cancel"}
    named = {"message_id": "theirs"}
    if frame == "answer":
        asked = anns.until("interrupt")["question_id"]
        return {"type": "answer", "question_id": asked, "value": "Ada", **named}
    return {"type": "message", "content": "Ada", **named}


def standing(database: Database) -> list[Any]:
    sql = """SELECT t.status, t.cancel_requested, array_agg(m.message_id ORDER BY m.seq)
        FROM fleet.threads t JOIN fleet.messages m USING (thread_id) GROUP BY 1, 2"""
    return database.fetch(sql)


def replied(page: Page, sent: dict[str, Any]) -> dict[str, Any]:
    """What is replied to the frame by who has been shown how things stand."""
    page.until("recovery_complete")
    page.send(**sent)
    return page.until("ack", "cancelled", "error")


@pytest.mark.parametrize("frame", MAY)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_in_another_s_session_what_it_may_elsewhere(
    guarded: Gateway, anns: Page, slot: Slot, database: Database, role: str, frame: str
) -> None:
    """Who may not is told so under the frame's own name, and nothing has changed."""
    sent = prepared(anns, slot, frame)
    before = standing(database)
    key = guarded.key(role, tenant="acme")
    with Page(guarded, None, session_id=anns.session_id, token=key) as page:
        told = replied(page, sent)
    if role in MAY[frame]:
        done = {"cancel": "cancelled"}.get(frame, "ack")
        assert (told["type"], told.get("message_id")) == (done, sent.get("message_id"))
        assert standing(database) != before
    else:
        assert (told["type"], told["code"], told["retry"]) == ("error", "forbidden", False)
        assert told.get("message_id") == sent.get("message_id")
        assert standing(database) == before


@pytest.mark.parametrize("frame", MAY)
def test_the_owner_may_all_of_it(guarded: Gateway, anns: Page, slot: Slot, frame: str) -> None:
    """Also one whose role alone would not do."""
    sent = prepared(anns, slot, frame)
    mine = token("ann", tenant="acme", roles=["viewer"])
    with Page(guarded, None, session_id=anns.session_id, token=mine) as page:
        assert replied(page, sent)["type"] in ("ack", "cancelled")


@pytest.mark.parametrize(
    "who",
    [
        {"user": "bob", "tenant": "acme"},
        {"user": "ann"},
        {"user": "bob", "roles": ["operator"]},
        {"user": "ann", "tenant": "other", "roles": ["operator"]},
    ],
    ids=lambda who: ",".join(map(str, who.values())),
)
@pytest.mark.parametrize("frame", MAY)
def test_nobody_else_gets_a_frame_in(
    guarded: Gateway, anns: Page, slot: Slot, database: Database, who: dict[str, Any], frame: str
) -> None:
    """Another user, and the roles of other tenants: whatever they send right after the init."""
    sent = prepared(anns, slot, frame)
    before = standing(database)
    with Page(guarded, None, session_id=anns.session_id, token=token(**who)) as page:
        with suppress(ConnectionClosed):
            page.send(**sent)
        assert page.closed() == (1008, "unknown_session")
        assert page.types() == ["error"]
    assert standing(database) == before
