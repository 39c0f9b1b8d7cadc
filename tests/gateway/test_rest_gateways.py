"""One idempotency key at two gateways at once: what counts is in Postgres alone."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.gateway.serving import Gateway, problem
from tests.gateway.test_rest import sent
from tests.harness import Database, eventually
from tests.integration.mailbox import accepted

WAITING = """SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""


def test_another_gateway_s_request_under_way_is_waited_for(
    client: httpx.Client, fleet_settings: dict[str, Any], database: Database
) -> None:
    """A gateway knows its own requests only: the second payload gets 422 once the first is
    committed, and the same payload the first one's receipt. One message was accepted."""
    with (
        Gateway(**fleet_settings, gateway_auth="off") as another,
        another.client() as other,
        ThreadPoolExecutor(3) as pool,
        database.connect() as conn,
    ):
        conn.execute("BEGIN")
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('refund:A1', 1))")
        first = pool.submit(sent, client)
        eventually(lambda: database.value(WAITING) == 1)
        second = pool.submit(sent, other, input={"user_id": "u_7"})
        eventually(lambda: database.value(WAITING) == 2)
        conn.execute("COMMIT")
        assert first.result(20).json()["outcome"] == "accepted"
        found = problem(second.result(20), 422, "message_conflict")
        assert (found["thread_id"], found["message_id"]) == ("refund:A1", "m1")
        assert sent(other).json()["outcome"] == "duplicate"
    assert accepted(database) == 1
