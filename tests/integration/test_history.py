"""`fleet history`, `fork` and `amend` as a person uses them. Turns run in this process."""

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from producers.errors import MessageConflict, ThreadExists, UnknownCheckpoint
from tests.harness import ROOT, Database, Shop, eventually, write_graphs
from tests.integration.mailbox import begun
from tests.integration.test_cli import Done
from workers.drain import drain
from workers.slot import Slot

CORRECTED = ROOT / "tests/graphs/corrected.py"
Cli = Callable[..., Done]


@pytest.fixture
def graphs_file(database: Database, tmp_path: Path) -> Path:
    """The refund graph and those of tests/graphs that are needed here."""
    names = ("sequence", "many", "asks", "stops")
    found = write_graphs(
        tmp_path,
        refund="graphs.refund:graph",
        parallel=f"{ROOT}/tests/graphs/parallel.py:graph",
        **{n: f"{CORRECTED}:{n}" for n in names},
    )
    database.register(found)
    return found


@pytest.fixture
def cli(
    slot: Slot, graphs_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> Callable[..., Done]:
    """Runs a command in this process, with the test's settings and graphs."""

    def run(*args: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        monkeypatch.setenv("FLEET_GRAPHS_FILE", str(graphs_file))
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def checkpoints(cli: Cli, thread: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("history", thread, "--json").json()["checkpoints"]
    return found


def at(cli: Cli, thread: str, node: str) -> str:
    """Id of the checkpoint that holds the node's work."""
    return next(c["checkpoint_id"] for c in checkpoints(cli, thread) if c["nodes"] == [node])


# History


def test_history_tells_of_each_checkpoint_its_time_its_node_and_what_changed(
    slot: Slot, fleet: Fleet, cli: Cli, shop: Shop
) -> None:
    """Oldest first; where the thread stood after each."""
    order = shop.new_order("20.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    found = checkpoints(cli, thread)
    assert [(c["nodes"], c["next"]) for c in found] == [
        ([], []),
        ([], ["load_order"]),
        (["load_order"], ["process_refund"]),
        (["process_refund"], ["notify_user"]),
        (["notify_user"], []),
    ]
    assert found[1]["changed"] == {"user_id": "u_42"}
    assert found[2]["changed"].keys() == {"order_id", "amount", "approval"}
    assert found[3]["changed"]["outcome"] == "refunded"
    assert [c["at"] for c in found] == sorted(c["at"] for c in found)
    assert [c["parent"] for c in found[1:]] == [c["checkpoint_id"] for c in found[:-1]]
    lines = [line.split("\t") for line in cli("history", thread).out.splitlines()]
    assert [line[-1] for line in lines[1:2] + lines[-1:]] == ["(start)", "(end)"]


def test_history_at_a_checkpoint_shows_the_state_there(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """All of the state as it was then."""
    thread = begun(fleet, slot, "sequence", names=["n1"])
    found = cli("history", thread, "--at", at(cli, thread, "told"), "--json").json()
    assert found["state"]["steps"] == ["first", "told"] and found["next"] == ["checked"]
    assert found["changed"] == {"steps": ["first", "told"]}


def test_history_shows_questions_failures_and_amendments(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """What a thread waits for, what broke, and who put it right."""
    waiting = checkpoints(cli, begun(fleet, slot, "asks"))[-1]
    assert waiting["next"] == ["left", "right"] and len(waiting["asks"]) == 2
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    assert "checked is broken" in checkpoints(cli, thread)[-1]["failed"][0]
    fleet.amend(thread, "checked", {"steps": ["by hand"]}, by="ann")
    drain(slot, thread)
    last = checkpoints(cli, thread)[-1]
    assert (last["nodes"], last["amended"]["by"]) == (["checked"], "ann")
    assert last["changed"] == {"steps": ["first", "told", "by hand"]}
    lines = cli("history", thread).out.splitlines()
    assert "checked (by hand: ann)" in lines[-1] and lines[0].startswith("at\tcheckpoint_id")


def test_history_names_the_nodes_of_a_fan_out(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """Sends stand beside ordinary nodes."""
    thread = begun(fleet, slot, "parallel", names=["h1", "h2"], told=[])
    assert {"each", "left", "right"} == set(checkpoints(cli, thread)[1]["next"])


def test_history_of_an_earlier_generation_can_still_be_read(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """A restart begins a new one."""
    thread = begun(fleet, slot, "sequence")
    before = checkpoints(cli, thread)
    fleet.restart(thread)
    drain(slot, thread)
    assert len(checkpoints(cli, thread)) == len(before)
    found = cli("history", thread, "--generation", "1", "--json").json()["checkpoints"]
    assert found == before != checkpoints(cli, thread)


def test_history_that_was_pruned_begins_with_what_is_left(
    slot: Slot, fleet: Fleet, cli: Cli, database: Database
) -> None:
    """The first checkpoint left does not claim what those before it did."""
    thread = begun(fleet, slot, "sequence")
    told = at(cli, thread, "told")
    database.fetch("DELETE FROM checkpoints WHERE checkpoint_id < %s", told)
    left = checkpoints(cli, thread)
    assert (left[0]["checkpoint_id"], left[0]["nodes"], left[0]["changed"]) == (told, [], {})
    assert left[1]["nodes"] == ["checked"]


@pytest.mark.parametrize("command", ["history", "fork"])
def test_an_unknown_checkpoint_is_told(
    slot: Slot, fleet: Fleet, cli: Cli, database: Database, command: str
) -> None:
    """One line that names the thread, exit code 1, and nothing written."""
    thread = begun(fleet, slot, "sequence")
    more = () if command == "history" else ("--key", "B", "--yes")
    done = cli(command, thread, "--at", "nothing", *more)
    assert done.code == 1 and f"{thread} has no checkpoint nothing" in done.line()
    assert database.value("SELECT count(*) FROM fleet.threads") == 1


# Fork


def test_a_fork_goes_on_from_the_checkpoint_and_leaves_the_thread_alone(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """Effects after the point happen anew, those before it do not."""
    thread = begun(fleet, slot, "sequence", names=["forked"])
    done = cli("fork", thread, "--at", at(cli, thread, "first"), "--key", "B", "--yes", "--json")
    assert (done.code, json.loads(done.out)["thread_id"]) == (0, "sequence:B")
    assert "happen anew in the new thread: tell" in done.err
    drain(slot, "sequence:B")
    fork = fleet.status("sequence:B")
    assert fork.status == "done" and len(fork.effects) == 1
    assert fork.effects[0].request_id != fleet.status(thread).effects[0].request_id
    assert checkpoints(cli, "sequence:B")[-1]["changed"]["steps"][-1] == "last"
    assert len(fleet.status(thread).messages) == 1
    fleet.fork(thread, at(cli, thread, "told"), "C")
    drain(slot, "sequence:C")
    later = fleet.status("sequence:C")
    assert (later.status, later.effects) == ("done", [])
    assert cli("show", "sequence:C", "--json").json()["state"]["steps"] == [
        "first",
        "told",
        "checked",
        "last",
    ]


def test_a_fork_at_a_question_asks_it_anew(slot: Slot, fleet: Fleet, shop: Shop, cli: Cli) -> None:
    """The answer of one thread is none of the other's."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    found = checkpoints(cli, thread)[-1]["checkpoint_id"]
    other = fleet.fork(thread, found, f"{order}-b").thread_id
    drain(slot, other)
    assert fleet.status(other).status == "waiting"
    fleet.answer(other, None, "rejected")
    drain(slot, other)
    assert (fleet.status(other).status, fleet.status(thread).status) == ("done", "waiting")
    fleet.answer(thread, None, "approved")
    drain(slot, thread)
    assert shop.refunds(order) == 1


def test_a_fork_of_a_fan_out_runs_all_of_it(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """Tasks that were sent are part of the checkpoint."""
    thread = begun(fleet, slot, "parallel", names=["f1", "f2"], told=[])
    other = fleet.fork(thread, checkpoints(cli, thread)[1]["checkpoint_id"], "B").thread_id
    drain(slot, other)
    state = cli("show", other, "--json").json()["state"]
    assert sorted(state["told"]) == ["f1", "f2", "left", "right"]
    assert len(fleet.status(other).effects) == 4


def test_a_fork_sent_twice_counts_once(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """By its message id; another checkpoint under the same id is a conflict."""
    thread = begun(fleet, slot, "sequence")
    first, told = at(cli, thread, "first"), at(cli, thread, "told")
    one = fleet.fork(thread, first, "B", message_id="f1")
    two = fleet.fork(thread, first, "B", message_id="f1")
    assert (one.outcome, two.outcome, one.seq) == ("accepted", "duplicate", two.seq)
    with pytest.raises(MessageConflict):
        fleet.fork(thread, told, "B", message_id="f1")
    with pytest.raises(ThreadExists, match="not in use"):
        fleet.fork(thread, first, "B")
    with pytest.raises(UnknownCheckpoint):
        fleet.fork(thread, "nothing", "D")


def test_a_fork_is_asked_about_where_nobody_can_say_yes(
    slot: Slot, fleet: Fleet, cli: Cli, database: Database
) -> None:
    """Without a terminal and without --yes it is a usage error that says what would happen."""
    thread = begun(fleet, slot, "sequence", names=["unasked"])
    done = cli("fork", thread, "--at", at(cli, thread, "first"), "--key", "B")
    assert done.code == 2 and "--yes" in done.line() and "anew" in done.err
    assert database.value("SELECT count(*) FROM fleet.threads") == 1


def test_a_fork_at_a_breakpoint_is_refused(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """The new thread would pass it unasked."""
    thread = begun(fleet, slot, "stops")
    done = cli("fork", thread, "--at", at(cli, thread, "checked"), "--key", "B", "--yes")
    assert done.code == 1 and "breakpoint" in done.line()


# Amend


def test_the_amend_command_waits_for_the_worker_and_tells_what_to_do_next(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """Its data is the receipt and the thread's status."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    worker = threading.Thread(
        target=lambda: eventually(lambda: [d for d in drain(slot, thread) if d["seq"] == 2])
    )
    worker.start()
    done = cli(
        "amend", thread, "--as-node", "checked", "--values", '{"steps": ["by hand"]}', "--json"
    )
    worker.join()
    found = json.loads(done.out)
    assert (done.code, found["seq"], found["status"]) == (0, 2, "failed")
    assert f"fleet retry {thread}" in done.err


def test_an_amendment_that_a_worker_refuses_fails_the_command(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """With the reason as an error."""
    thread = begun(fleet, slot, "sequence", names=["cli"], broken=["told"])
    given = ("amend", thread, "--as-node", "told", "--values", "{}", "--message-id", "a1")
    assert cli(*given, "--wait", "0").code == 0
    drain(slot, thread)
    done = cli(*given, "--json")
    assert done.code == 1 and done.error()["code"] == "amendment_refused"
    assert "effect tell" in done.error()["message"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--as-node", "chekced", "--values", "{}"), "did you mean 'checked'? Nothing"),
        (("--as-node", "checked", "--values", '{"stepz": 1}'), "'stepz'"),
        (("--as-node", "checked", "--values", "[1]"), "not an object"),
        (("--as-node", "checked", "--values", "{"), "not JSON"),
        (("--as-node", "checked"), "--values"),
    ],
)
def test_a_wrong_amendment_is_told_before_anything_is_sent(
    slot: Slot, fleet: Fleet, cli: Cli, more: tuple[str, ...], said: str
) -> None:
    """One line, exit code 2, no message."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    done = cli("amend", thread, *more)
    assert done.code == 2 and said in done.line()
    assert len(fleet.status(thread).messages) == 1
