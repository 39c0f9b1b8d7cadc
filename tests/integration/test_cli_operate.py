"""The operating commands of the command line: data, messages, exit codes, nothing half done."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from producers.runs import parted
from tests.harness import ROOT, Broker, Database, clean_environment, eventually
from tests.integration import test_cli
from tests.integration.mailbox import INPUT, settle

cli = test_cli.cli
Cli, FLEET = test_cli.Cli, test_cli.FLEET
THREAD = "refund:A1"


def dead(database: Database, thread: str = THREAD) -> None:
    """What a turn that failed for good leaves behind."""
    settle(database, thread, "failed")
    sql = "UPDATE fleet.messages SET status = 'dead', error = 'no' WHERE thread_id = %s AND seq = 1"
    database.fetch(sql, thread)


def submitted(fleet: Fleet) -> None:
    fleet.submit("refund", "A1", INPUT, message_id="m1")


def everything(database: Database) -> list[Any]:
    """All that a command could have changed."""
    return [
        database.fetch(f"SELECT * FROM fleet.{table} ORDER BY 1, 2")
        for table in ("threads", "messages", "effects", "questions", "graphs", "workers")
    ]


# Commands


def test_cancel_retry_and_drop_print_what_was_done(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """As facts, and as JSON with --json."""
    submitted(fleet)
    dead(database)
    assert cli("retry", THREAD, "--json").json() == {
        "thread_id": THREAD,
        "message_id": "m1",
        "seq": 1,
        "renewed": [],
        "published": True,
    }
    dead(database)
    assert "status: cancelled\n" in cli("drop", THREAD).out
    done = cli("cancel", THREAD, "--json").json()
    assert (done["outcome"], done["in_doubt"]) == ("cancelled", [])


def test_cancel_of_a_finished_thread_says_that_it_came_too_late(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """Which is no failure."""
    submitted(fleet)
    settle(database, THREAD, "done")
    done = cli("cancel", THREAD)
    assert done.code == 0 and "outcome: finished\n" in done.out and "already" in done.err


def test_restart_takes_the_last_input_or_another(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """And prints the receipt."""
    submitted(fleet)
    assert cli("restart", THREAD, "--json").json()["seq"] == 2
    assert cli("restart", THREAD, "--input", '{"user_id": "u_9"}').code == 0
    found = database.fetch("SELECT payload->>'user_id', restarts FROM fleet.messages ORDER BY seq")
    assert found == [("u_42", False), ("u_42", True), ("u_9", True)]


def doubtful(fleet: Fleet, database: Database) -> None:
    """A thread whose payment may have happened."""
    submitted(fleet)
    test_cli.store(database, THREAD, {}, None)
    database.fetch("UPDATE fleet.effects SET state = 'intent', result = NULL, result_type = NULL")
    settle(database, THREAD, "in_doubt")


def test_restart_wants_a_word_where_an_effect_may_have_happened(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """Where nobody can be asked it is --yes, else exit 2 and nothing is done."""
    doubtful(fleet, database)
    before = everything(database)
    for args in (("restart", THREAD), ("restart", THREAD, "--input", json.dumps(INPUT))):
        refused = cli(*args)
        assert refused.code == 2 and "pay (r1) may have happened" in refused.line()
        assert "needs --yes: " in refused.err and "Invalid value" not in refused.err
    assert everything(database) == before
    done = cli("restart", THREAD, "--yes")
    assert done.code == 0 and "seq: 2\n" in done.out and "pay (r1) may have" in done.err


def test_submit_restarts_nothing_in_doubt_without_a_word(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """One by one and from a file, whose line is named."""
    doubtful(fleet, database)
    again = ("--on-existing", "restart")
    one = ("submit", "refund", "A1", "--input", json.dumps(INPUT), *again)
    refused = cli(*one, "--json")
    assert (refused.code, refused.error()["code"]) == (1, "effect_in_doubt")
    many = ("submit", "refund", "--from", "-", *again)
    assert "line 1" in cli(*many, stdin=lines(start("A1"))).line()
    assert database.value("SELECT count(*) FROM fleet.messages") == 1
    assert cli(*one, "--yes").code == 0
    assert cli(*many, "--yes", stdin=lines(start("A1"))).code == 0


def test_restart_says_before_what_is_made_anew(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Without being asked: a restart is meant to."""
    submitted(fleet)
    test_cli.store(database, THREAD, {}, None)
    settle(database, THREAD, "done")
    done = cli("restart", THREAD)
    assert (done.code, done.err) == (0, "Effects of the run before are made anew: pay.\n")


def test_restart_of_a_fork_asks_for_an_input(cli: Cli, fleet: Fleet, database: Database) -> None:
    """It never had one, and what it was made of is none."""
    forked = {"forked_from": {"thread_id": "refund:A0", "checkpoint_id": "c1"}}
    submitted(fleet)
    database.fetch("UPDATE fleet.messages SET payload = %s", json.dumps(forked))
    refused = cli("restart", THREAD)
    assert refused.code == 1 and "forked from refund:A0" in refused.line()
    assert f"fleet restart {THREAD} --input JSON" in refused.err
    assert cli("restart", THREAD, "--input", json.dumps(INPUT)).code == 0


def test_lists_of_effects_are_told_in_words(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Not as JSON, which is what --json is for."""
    doubtful(fleet, database)
    done = cli("cancel", THREAD)
    assert "in doubt: pay (r1)\n" in done.out and "may have happened: pay (r1)." in done.err


def test_what_is_left_in_doubt_by_a_cancel_needs_no_record(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """The command says so, and so does `fleet resolve`, which has nothing to settle."""
    doubtful(fleet, database)
    assert "nothing needs to be recorded" in cli("cancel", THREAD).err
    refused = cli("resolve", THREAD, "r1", "--did-not-happen")
    assert refused.code == 1 and "nothing needs to be recorded" in refused.err


def test_waiting_for_a_held_thread_says_how_it_goes_on(cli: Cli) -> None:
    """Not that it goes on: its graph is paused."""
    cli("pause", "refund")
    wait = ("--wait", "0.1", "--json")
    late = cli("submit", "refund", "A1", "--input", json.dumps(INPUT), *wait)
    assert late.code == 1
    error = json.loads(late.err.splitlines()[-1])["error"]
    assert error["code"] == "wait_timeout" and "fleet resume refund" in error["hint"]
    assert "It goes on" not in late.err


def test_show_keeps_generations_apart(cli: Cli, fleet: Fleet, database: Database) -> None:
    """The present one; all with --all and in JSON, where each says which it is of."""
    submitted(fleet)
    test_cli.store(database, THREAD, {}, None)
    database.fetch("UPDATE fleet.messages SET status = 'done', claimed_epoch = 1")
    fleet.restart(THREAD, message_id="m2")
    database.fetch("UPDATE fleet.messages SET claimed_epoch = 2 WHERE seq = 2")
    database.fetch("UPDATE fleet.threads SET generation = 2")
    shown = cli("show", THREAD)
    assert "\tm2\t" in shown.out and "\tm1\t" not in shown.out and "pay" not in shown.out
    assert shown.err == "1 message and 1 effect of earlier generations: `--all` shows them too.\n"
    every = cli("show", THREAD, "--all")
    assert "\n1\t1\tstart\t" in every.out and "\n2\t2\tstart\t" in every.out
    assert "\n1\tpay\t" in every.out and every.err == ""
    found = cli("show", THREAD, "--json").json()
    assert [m["generation"] for m in found["messages"]] == [1, 2]
    assert [e["generation"] for e in found["effects"]] == [1]


def test_times_look_the_same_everywhere(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Local, with their offset, to the second; in JSON as ISO 8601."""
    submitted(fleet)
    when = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"
    assert re.search(f"updated at: {when}\n", cli("show", THREAD).out)
    assert re.search(f"\t{when}\t", cli("threads").out)
    assert "T" in cli("show", THREAD, "--json").json()["updated_at"]


def test_pause_and_resume_say_what_waits(cli: Cli, fleet: Fleet, database: Database) -> None:
    """And submitting to a paused graph tells how it goes on."""
    submitted(fleet)
    assert cli("pause", "refund", "--json").json() == {
        "graph": "refund",
        "paused": True,
        "waiting": 1,
        "running": 0,
    }
    receipt = cli("submit", "refund", "A2", "--input", json.dumps(INPUT))
    assert receipt.code == 0 and "fleet resume refund" in receipt.err
    assert "paused: false\nwaiting: 2\n" in cli("resume", "refund").out


def worker(database: Database, name: str, draining: bool = False, silent: float = 0) -> None:
    database.fetch(
        """INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at,
            draining)
        VALUES (%s, '{fleet}', 2, 8, 'prefork', fleet.now(),
            fleet.now() - %s * interval '1 s', %s)""",
        name,
        silent,
        draining,
    )


def test_workers_are_listed_with_what_they_run(cli: Cli, fleet: Fleet, database: Database) -> None:
    """ready, drained, silent; threads by their owner."""
    submitted(fleet)
    worker(database, "w1@a")
    worker(database, "w2@a", draining=True)
    worker(database, "w3@a", silent=60)
    database.fetch("UPDATE fleet.threads SET status = 'running', owner = 'w1@a:17:99'")
    found = cli("workers", "--json").json()["workers"]
    states = [(w["worker"], w["state"], [r["thread_id"] for r in w["runs"]]) for w in found]
    assert states == [("w1@a", "ready", [THREAD]), ("w2@a", "drained", []), ("w3@a", "silent", [])]
    lines = cli("workers").out.splitlines()
    assert lines[0].startswith("worker\tstate\t") and lines[1].startswith("w1@a\tready\t")


def test_drain_asks_the_worker_and_undo_takes_it_back(cli: Cli, database: Database) -> None:
    """The worker itself does it; --wait says when it has not yet."""
    worker(database, "w1@a")
    asked = "SELECT drain_requested FROM fleet.workers"
    assert cli("drain", "w1@a", "--json").json()["state"] == "draining"
    assert database.value(asked)
    late = cli("drain", "w1@a", "--wait", "0.2", "--json")
    assert (late.code, late.error()["code"]) == (1, "wait_timeout")
    assert cli("drain", "w1@a", "--undo").code == 0
    assert not database.value(asked)


def test_what_can_not_be_done_is_exit_1_and_changes_nothing(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """With a code for machines and a sentence for people."""
    submitted(fleet)
    before = everything(database)
    refusals = {
        "unknown_thread": [(c, "refund:B") for c in ("cancel", "retry", "drop", "restart")],
        "nothing_to_do": [("retry", THREAD), ("retry", THREAD, "--new-request"), ("drop", THREAD)],
        "invalid_input": [("restart", THREAD, "--input", '{"user_id": 1}')],
    }
    for code, commands in refusals.items():
        for command in commands:
            plain, machine = cli(*command), cli(*command, "--json")
            assert plain.code == 1 and plain.line(), command
            assert (machine.code, machine.error()["code"]) == (1, code), command
    assert everything(database) == before


def test_a_name_that_nothing_is_registered_under_is_exit_2(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """A graph or a worker, in whichever command; the known ones are named."""
    submitted(fleet)
    worker(database, "w1@a")
    before = everything(database)
    graphs = [
        ("submit", "nope", "A1"),
        ("pause", "nope"),
        ("resume", "nope"),
        ("threads", "--graph", "nope"),
        ("threads", "--graph", "nope", "--watch"),
    ]
    workers = [("drain", "nope"), ("drain", "nope", "--undo")]
    for code, known, commands in (
        ("unknown_graph", "refund", graphs),
        ("unknown_worker", "w1@a", workers),
    ):
        for command in commands:
            plain, machine = cli(*command), cli(*command, "--json")
            assert plain.code == 2 and known in plain.line(), command
            assert (machine.code, machine.error()["code"]) == (2, code), command
    assert everything(database) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("cancel",), "'thread'"),
        (("cancel", "refund"), "not a thread_id"),
        (("cancel", THREAD, "--wait", "-1"), "--wait"),
        (("retry", "refund"), "not a thread_id"),
        (("drop", "a\nb:c"), "control character"),
        (("restart", THREAD, "--input", "{"), "not JSON"),
        (("pause",), "'graph'"),
        (("pause", "a/b"), "holds '/'"),
        (("drain",), "'worker'"),
        (("drain", "w", "--undo", "--wait", "1"), "--undo"),
        (("threads", "--watch", "--every", "0"), "--every"),
        (("submit", "--from", "nowhere.jsonl"), "nowhere.jsonl"),
        (("submit", "refund", "A1", "--from", "f.jsonl"), "key"),
        (("submit", "refund", "--from", "f.jsonl", "--input", "{}"), "--input"),
        (("submit", "refund", "--from", "f.jsonl", "--wait", "1"), "--wait"),
        (("submit", "refund", "--from", "f.jsonl", "--message-id", "m"), "--message-id"),
        (("submit",), "--from"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    cli: Cli, args: tuple[str, ...], says: str
) -> None:
    """It says what is wrong; stdout stays empty."""
    plain, machine = cli(*args), cli(*args, "--json")
    assert (plain.code, machine.code) == (2, 2)
    assert says in plain.line() and says in machine.error()["message"]


# Submit from a file


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def start(key: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "input": INPUT, **fields}


def counts(done: Any) -> tuple[int, ...]:
    found = done.json()
    return tuple(found[n] for n in ("lines", "accepted", "duplicate", "existing"))


def test_a_file_is_submitted_and_can_be_submitted_again(
    cli: Cli, database: Database, tmp_path: Path
) -> None:
    """Each line once, whichever run accepted it; more lines go on where it stopped."""
    file = tmp_path / "orders.jsonl"
    file.write_bytes(lines(start("A1"), start("A2")) + b"\n")
    args = ("submit", "refund", "--from", str(file), "--json")
    assert counts(cli(*args)) == (2, 2, 0, 0)
    file.write_bytes(file.read_bytes() + lines(start("A3"), start("A1")))
    assert counts(cli(*args)) == (4, 1, 3, 0)
    assert database.value("SELECT count(*) FROM fleet.messages") == 3


def test_a_line_may_bring_context_and_config(cli: Cli, database: Database, tmp_path: Path) -> None:
    """They are part of what makes two lines the same."""
    file = tmp_path / "orders.jsonl"
    given = {"context": {"user": "u1"}, "config": {"tags": ["batch"]}}
    file.write_bytes(lines(start("A1", **given), start("A2"), start("A1", **given)))
    assert counts(cli("submit", "refund", "--from", str(file), "--json")) == (3, 2, 1, 0)
    sent = "SELECT payload FROM fleet.messages WHERE thread_id = 'refund:A1'"
    assert parted(database.value(sent)) == (INPUT, given)
    file.write_bytes(lines(start("A1", context={"user": "u2"})))
    assert counts(cli("submit", "refund", "--from", str(file), "--json")) == (1, 0, 0, 1)


def test_a_bar_is_shown_on_a_terminal(database: Database, tmp_path: Path) -> None:
    """On stderr, so that stdout stays data; it is full at the end."""
    file = tmp_path / "orders.jsonl"
    file.write_bytes(lines(*(start(f"A{n}") for n in range(3))))
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*FLEET, "submit", "refund", "--from", str(file), "--json"],
        env=clean_environment(postgres_url=database.url) | {"TERM": "xterm-256color"},
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=ROOT,
    )
    os.close(follower)
    out, _ = process.communicate(timeout=60)
    shown = os.read(leader, 65536).decode(errors="replace")
    os.close(leader)
    assert (process.returncode, json.loads(out)["accepted"]) == (0, 3)
    assert "accepting" in shown and "3/3" in shown


def test_more_lines_than_a_transaction_takes(cli: Cli, database: Database, broker: Broker) -> None:
    """From stdin, without a word on stderr when nobody looks; workers are woken up to a limit."""
    many = lines(*(start(f"A{n}") for n in range(1100)))
    done = cli("submit", "refund", "--from", "-", "--json", stdin=many)
    assert counts(done) == (1100, 1100, 0, 0)
    assert database.value("SELECT count(*) FROM fleet.threads") == 1100
    assert broker.client.llen("fleet") == 16


def test_a_killed_command_is_continued_by_the_same_one(
    cli: Cli, database: Database, broker: Broker, tmp_path: Path
) -> None:
    """What had been accepted counts once."""
    file = tmp_path / "orders.jsonl"
    file.write_bytes(lines(*(start(f"A{n}") for n in range(700))))
    args = ("submit", "refund", "--from", str(file), "--json")
    killed = test_cli.fleet_command(
        *args,
        postgres_url=database.url,
        redis_url=broker.url,
        failpoints="accept.after_commit=kill",
    )
    assert killed.code == -signal.SIGKILL
    assert counts(cli(*args)) == (700, 200, 500, 0)
    assert database.value("SELECT count(*) FROM fleet.messages") == 700


def test_a_line_may_name_what_the_command_does_not(cli: Cli, database: Database) -> None:
    """Its own graph, message_id and priority; the command's are for the others."""
    sent = lines(
        start("A1", graph="refund", message_id="m1", priority=7),
        start("A2", graph="refund", on_existing="reject"),
    )
    assert cli("submit", "--priority", "3", "--from", "-", stdin=sent).code == 0
    found = database.fetch("SELECT message_id, priority FROM fleet.messages ORDER BY thread_id")
    assert found[0] == ("m1", 7) and found[1][0].startswith("line-") and found[1][1] == 3


def test_another_input_for_a_known_key_starts_nothing(cli: Cli, database: Database) -> None:
    """It is told as existing; with restart it would begin anew."""
    cli("submit", "refund", "--from", "-", stdin=lines(start("A1")))
    other = lines(start("A1") | {"input": {"user_id": "u_43"}})
    assert counts(cli("submit", "refund", "--from", "-", "--json", stdin=other)) == (1, 0, 0, 1)


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (b"{", 2, "not JSON"),
        (b"[]", 2, "not a JSON object"),
        (b"\xff", 2, "UTF-8"),
        (b"[" * 100_000, 2, "nested"),
        (b'{"key": "A", "key": "B"}', 2, "twice"),
        (b'{"input": {}}', 2, "no key"),
        (b'{"key": "A", "tenant": "acme"}', 2, "'tenant'"),
        (b'{"key": 7, "input": {}}', 2, "not text"),
        (b'{"key": "A", "priority": 1000}', 2, "priority"),
        (b'{"key": "A", "priority": true}', 2, "priority"),
        (b'{"key": "A", "delay": true}', 2, "delay"),
        (b'{"key": "A", "delay": "1"}', 2, "delay"),
        (b'{"key": "A", "input": {"user_id": NaN}}', 2, "nan"),
        (b'{"key": "A", "input": {"user_id": 1}}', 1, "does not fit"),
        (b'{"key": "A", "graph": "refunds"}', 2, "No graph"),
        (b'{"key": "A1", "input": {"user_id": "x"}, "message_id": "m1"}', 1, "another payload"),
        (b'{"key": "A1", "input": {"user_id": "x"}, "on_existing": "reject"}', 1, "exists already"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_accepted(
    bad: bytes, code: int, says: str, cli: Cli, fleet: Fleet, database: Database
) -> None:
    """However far down the file it stands."""
    submitted(fleet)
    sent = lines(*(start(f"B{n}") for n in range(600))) + b"\n" + bad + b"\n"
    done = cli("submit", "refund", "--from", "-", stdin=sent)
    assert done.code == code and "stdin, line 602: " in done.line() and says in done.err
    assert database.value("SELECT count(*) FROM fleet.messages") == 1
    machine = cli("submit", "refund", "--from", "-", "--json", stdin=sent)
    assert machine.error()["line"] == 602


# Watch


def test_watch_prints_a_line_for_each_change(fleet: Fleet, database: Database) -> None:
    """Until Ctrl-C, which is how it ends: exit code 0."""
    submitted(fleet)
    argv = [*FLEET, "threads", "--watch", "--every", "0.1", "--json"]
    process = subprocess.Popen(
        argv,
        env=clean_environment(postgres_url=database.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["status"] == "idle"
    database.fetch("UPDATE fleet.threads SET status = 'done', updated_at = fleet.now()")
    assert json.loads(process.stdout.readline())["status"] == "done"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_watch_keeps_a_table_on_a_terminal(fleet: Fleet, database: Database) -> None:
    """In place, without colours if NO_COLOR says so."""
    submitted(fleet)
    leader, follower = pty.openpty()
    environment = clean_environment(postgres_url=database.url)
    process = subprocess.Popen(
        [*FLEET, "threads", "--watch", "--every", "0.1"],
        env=environment | {"TERM": "xterm-256color", "NO_COLOR": "1"},
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
    )
    os.close(follower)
    shown = ""

    def shows(text: str) -> bool:
        nonlocal shown
        while select.select([leader], [], [], 0)[0]:
            shown += os.read(leader, 65536).decode(errors="replace")
        return text in shown

    eventually(lambda: shows("refund:A1"), 30)
    database.fetch("UPDATE fleet.threads SET status = 'waiting', updated_at = fleet.now()")
    eventually(lambda: shows("waiting"), 10)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    os.close(leader)
    assert not re.search(r"\x1b\[[0-9;]*[34][0-8]m", shown)
