"""Sessions on Postgres, straight and through poolers."""

import pytest

from infra import postgres
from infra.errors import PoolerRefused
from infra.postgres import connect, refuse_transaction_pooler
from tests.acceptance.pooler import TransactionPooler
from tests.harness import Database


def settings(url: str) -> tuple[str, str]:
    """Two of the settings that a session of ours has."""
    with connect(url, "fleet-test") as conn:
        row = conn.execute(
            "SELECT current_setting('tcp_user_timeout'), current_setting('plan_cache_mode')"
        ).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("takes_options", [True, False])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_backends_is_refused(
    mode: str, takes_options: bool, size: int, database: Database
) -> None:
    """However many sessions it has, and whatever it makes of options: PoolerRefused."""
    with TransactionPooler(
        database.url, takes_options=takes_options, mode=mode, size=size
    ) as pooler:
        with pytest.raises(PoolerRefused, match="FLEET_POSTGRES_URL"):
            refuse_transaction_pooler(pooler.url)
        with pytest.raises(PoolerRefused):
            connect(pooler.url, "fleet-test")


@pytest.mark.parametrize("takes_options", [True, False])
def test_a_pooler_in_session_mode_is_accepted(takes_options: bool, database: Database) -> None:
    """And the session has our settings, which no option could bring there."""
    with TransactionPooler(database.url, takes_options=takes_options, mode="session") as pooler:
        refuse_transaction_pooler(pooler.url)
        assert settings(pooler.url)[1] == "force_generic_plan"
        assert pooler.url in postgres._session_poolers
        assert settings(pooler.url)[1] == "force_generic_plan"


def test_the_server_itself_is_accepted(database: Database) -> None:
    """With the settings given as options."""
    refuse_transaction_pooler(database.url)
    assert settings(database.url) == ("15000", "force_generic_plan")
    assert database.url not in postgres._session_poolers
