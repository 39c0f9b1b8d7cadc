"""Commands for many threads at once, and the queues in which their mail lies."""

import pytest

from producers import Fleet
from tests.harness import Database
from tests.integration import test_cli, test_cli_operate
from tests.integration.mailbox import INPUT
from tests.integration.test_cli_operate import dead, everything, worker

cli, Cli = test_cli.cli, test_cli_operate.Cli
THREADS = ["refund:A1", "refund:A2", "refund:A3"]


@pytest.fixture
def failed(fleet: Fleet, database: Database) -> None:
    """The first two have a dead message; the third has nothing to be retried."""
    for thread in THREADS:
        fleet.submit("refund", thread.partition(":")[2], INPUT)
    for thread in THREADS[:2]:
        dead(database, thread)


def statuses(database: Database) -> list[str]:
    return [s for (s,) in database.fetch("SELECT status FROM fleet.messages ORDER BY thread_id")]


@pytest.mark.usefixtures("failed")
def test_several_threads_are_retried(cli: Cli, database: Database) -> None:
    """A line for each, or an object in a list; one that is named twice once."""
    done = cli("retry", *THREADS[:2], THREADS[0])
    assert done.code == 0
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["thread_id", *THREADS[:2]]
    assert statuses(database) == ["pending"] * 3
    dead(database, THREADS[0])
    (only,) = cli("retry", "-", "--json", stdin=THREADS[0].encode()).json()["threads"]
    assert only["thread_id"] == THREADS[0]


@pytest.mark.usefixtures("failed")
def test_what_lists_threads_names_them_to_what_retries_them(cli: Cli, database: Database) -> None:
    """`fleet threads --status failed | fleet retry -`; also where there is none."""
    listed = cli("threads", "--status", "failed").out
    assert cli("retry", "-", stdin=listed.encode()).code == 0
    assert statuses(database) == ["pending"] * 3
    nothing = cli("retry", "-", "--json", stdin=cli("threads", "--status", "failed").out.encode())
    assert (nothing.code, nothing.json()) == (0, {"threads": []})


@pytest.mark.usefixtures("failed")
def test_one_that_is_refused_holds_up_no_other(cli: Cli, database: Database) -> None:
    """It is told, and the exit code is 1."""
    done = cli("drop", THREADS[2], "refund:none", *THREADS[:2])
    assert done.code == 1
    assert "refund:A3 is idle" in done.err and "refund:none" in done.err
    assert statuses(database) == ["dropped", "dropped", "pending"]
    assert cli("cancel", *THREADS).code == 0
    assert statuses(database)[2] == "cancelled"


@pytest.mark.usefixtures("failed")
@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (("retry", THREADS[0], "refund"), b"", "not a thread_id"),
        (("drop", "-"), b"refund:A1\nrefund\n", "not a thread_id"),
        (("retry", "-"), b"\xff", "not UTF-8"),
        (("cancel", *THREADS[:2], "--wait", "1"), b"", "--wait"),
    ],
)
def test_a_wrong_list_changes_nothing(
    cli: Cli, database: Database, args: tuple[str, ...], stdin: bytes, says: str
) -> None:
    """All ids are looked at first: exit code 2."""
    before = everything(database)
    refused = cli(*args, stdin=stdin)
    assert refused.code == 2 and says in refused.line()
    assert everything(database) == before


def test_queues_are_listed_with_their_work(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Who serves them, what runs, is due, waits, or is held by a pause."""
    for key in ("A1", "A2", "A3", "A4"):
        fleet.submit("refund", key, INPUT)
    fleet.send("refund:A1", {"user_id": "u_43"})
    later = "UPDATE fleet.messages SET available_at = fleet.now() + interval '1 h'"
    database.fetch(f"{later} WHERE thread_id = 'refund:A3'")
    database.fetch("UPDATE fleet.messages SET status = 'claimed' WHERE thread_id = 'refund:A4'")
    worker(database, "w1@a")
    worker(database, "w2@a", draining=True)
    worker(database, "w3@a", silent=60)
    (found,) = cli("queues", "--json").json()["queues"]
    assert 0 <= found.pop("oldest_due_for") < 60
    assert "refund" in found.pop("graphs")
    served = {"queue": "fleet", "workers": 1, "slots": 2, "running": 1}
    assert found == served | {"due": 2, "waiting": 4, "held": 0, "paused": []}
    fleet.pause("refund")
    header, row = (line.split("\t") for line in cli("queues").out.splitlines())
    told = dict(zip(header, row, strict=True))
    assert told["oldest"] == "" and told["paused"] == "refund"
    assert [told[name] for name in ("due", "waiting", "held", "running")] == ["0", "0", "4", "1"]


def test_a_queue_that_nobody_serves_is_listed(cli: Cli, database: Database) -> None:
    """With no worker, for its graph's sake."""
    (found,) = cli("queues", "--json").json()["queues"]
    assert (found["queue"], found["workers"], found["oldest_due_for"]) == ("fleet", 0, None)
