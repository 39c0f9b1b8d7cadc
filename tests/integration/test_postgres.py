"""Sessions on Postgres, straight and through poolers."""

import contextlib
import socket
import threading
from typing import Any, Self

import pytest

from infra import postgres
from infra.errors import PoolerRefused, PostgresUnavailable
from infra.postgres import connect, refuse_transaction_pooler
from tests.acceptance.pooler import TransactionPooler, greeting, packet, read_packet, started
from tests.harness import Database, eventually


class BadServer:
    """Says that it is PostgreSQL `version`, lets in as many clients as it `takes`, and
    answers each statement with an error."""

    def __init__(self, version: str, takes: int = 100) -> None:
        self._version, self._takes = version, takes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://a@127.0.0.1:{self._listener.getsockname()[1]}/a?sslmode=disable"
        self.entered = self.left = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def all_left(self) -> bool:
        return self.entered == self.left > 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client:
            start, old = started(client), int(self._version.split(".")[0]) < 14
            if old and (name := b"client_connection_check_interval") in start:
                refused = b'C42704\0Munrecognized configuration parameter "' + name + b'"'
                client.sendall(packet(b"E", b"SFATAL\0" + refused + b"\0\0"))
                return
            if self.entered == self._takes:
                client.sendall(packet(b"E", b"SFATAL\0C53300\0Mtoo many clients already\0\0"))
                return
            self.entered += 1
            client.sendall(greeting(server_version=self._version, client_encoding="UTF8"))
            try:
                while (asked := read_packet(client))[:1] != b"X":
                    if asked[:1] in (b"Q", b"S"):
                        wrong = packet(b"E", b"SERROR\0C42501\0Mpermission denied\0\0")
                        client.sendall(wrong + packet(b"Z", b"I"))
            finally:
                self.left += 1


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


@pytest.mark.parametrize(
    "open_", [lambda url: connect(url, "fleet-test"), refuse_transaction_pooler]
)
def test_a_server_that_is_too_old_is_told_with_its_version(open_: Any) -> None:
    """PostgreSQL 13 does not know one of our settings, and refuses it before we see a version."""
    with (
        BadServer("13.14") as server,
        pytest.raises(PostgresUnavailable, match=r"Postgres 13 is too old\..*14 or later"),
    ):
        open_(server.url)


@pytest.mark.parametrize("takes", [1, 100])
def test_a_check_that_fails_leaves_no_session(takes: int) -> None:
    """Neither where the second session is refused nor where its statement is."""
    with BadServer("17.2", takes) as server:
        with pytest.raises(PostgresUnavailable) as caught:
            refuse_transaction_pooler(server.url)
        assert eventually(server.all_left), caught


def test_a_session_whose_first_statement_fails_is_closed() -> None:
    """And the error is one of ours."""
    with BadServer("17.2") as server:
        with pytest.raises(PostgresUnavailable, match="permission denied") as caught:
            connect(server.url, "fleet-test")
        assert eventually(server.all_left), caught
