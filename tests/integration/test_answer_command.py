"""`fleet answer` and `fleet resolve` with --wait. Turns run in this process."""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from tests.harness import Database, Shop, eventually
from tests.integration.test_cli import Done
from workers.drain import drain
from workers.slot import Slot

Cli = Callable[..., Done]
ABOVE = "1500.00"


@pytest.fixture
def cli(slot: Slot, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Cli:
    """Runs a command in this process, with the test's settings."""

    def run(*args: str) -> Done:
        monkeypatch.setattr(sys, "stdin", None)
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def asked(slot: Slot, fleet: Fleet, database: Database, shop: Shop) -> str:
    """A refund that waits for its approval."""
    database.register(get_settings().graphs_path)
    order = shop.new_order(ABOVE)
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    assert fleet.status(thread).status == "waiting"
    return thread


def mail(database: Database, thread: str) -> int:
    """Messages of the thread that no turn has taken."""
    sql = "SELECT count(*) FROM fleet.messages WHERE thread_id = %s AND status = 'pending'"
    count: int = database.value(sql, thread)
    return count


def test_an_answer_can_wait_for_what_becomes_of_it(
    slot: Slot, database: Database, cli: Cli, asked: str
) -> None:
    """The thread in full, once the turn after the answer has ended."""
    with ThreadPoolExecutor(1) as pool:
        given = ("answer", asked, "--approve", "--wait", "20", "--json")
        command = pool.submit(cli, *given)
        eventually(lambda: mail(database, asked))
        drain(slot, asked)
        done = command.result(20)
    assert done.code == 0, done.err
    assert (done.json()["outcome"], done.json()["status"]) == ("accepted", "done")
    assert done.json()["thread"]["state"]["outcome"] == "refunded"


def test_an_answer_that_nobody_takes_in_time_is_late(cli: Cli, asked: str) -> None:
    """It is kept all the same; exit code 1 says that it has not been waited out."""
    done = cli("answer", asked, "--reject", "--wait", "0.2", "--json")
    assert done.code == 1 and '"code": "wait_timeout"' in done.err
    assert json.loads(done.out)["outcome"] == "accepted"


def test_a_resolution_that_is_refused_waits_for_nothing(cli: Cli, asked: str) -> None:
    """Where nothing is in doubt."""
    done = cli("resolve", asked, "r1", "--did-not-happen", "--wait", "20", "--json")
    assert done.code == 1 and done.error()["code"] == "not_in_doubt"
