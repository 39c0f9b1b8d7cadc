"""Producers behind a transaction pooler, where others met prepared statements: docs/faults.md."""

import pytest

from producers import Fleet
from tests.acceptance.pooler import TransactionPooler
from tests.harness import Broker, Database


@pytest.mark.parametrize("takes_options", [False, True])
def test_a_producer_works_behind_a_transaction_pooler(
    takes_options: bool, database: Database, broker: Broker
) -> None:
    """It keeps nothing in a session: each transaction may run on another."""
    with (
        TransactionPooler(database.url, takes_options=takes_options) as pooler,
        Fleet(pooler.url, broker.url) as fleet,
    ):
        for n in range(20):
            assert fleet.submit("refund", f"A{n}", {"user_id": "u"}).outcome == "accepted"
        assert fleet.submit("refund", "A1", {"user_id": "u"}).outcome == "existing"
        assert fleet.status("refund:A2").status == "idle"
        assert len(fleet.threads(limit=50)) == 20
