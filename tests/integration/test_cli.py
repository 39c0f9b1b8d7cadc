"""The command line on real servers: data, messages and exit codes."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from tests.harness import ROOT, Broker, Database, clean_environment, eventually
from tests.integration.mailbox import APPROVE, INPUT, ask, nobody, settle
from tests.warm_commands import FLEET, run


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.err == "", self.err
        return json.loads(self.out)

    def error(self) -> Any:
        assert self.out == "", self.out
        return json.loads(self.err)["error"]

    def line(self) -> str:
        """The one line of an error."""
        assert self.out == "" and self.err.startswith("error: ") and self.err.count("\n") == 1
        return self.err


Cli = Callable[..., Done]


@pytest.fixture
def cli(
    settings_env: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Cli:
    """Runs a command in this process, with the test's settings."""

    def run(*args: str, stdin: bytes = b"", **settings: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name, value in settings.items():
            monkeypatch.setenv(f"FLEET_{name.upper()}", value)
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def fleet_command(*args: str, **settings: str) -> Done:
    """Runs a command as a process."""
    done = run([*FLEET, *args], env=clean_environment(**settings), cwd=ROOT)
    return Done(done.returncode, done.stdout, done.stderr)


SUBMIT = ("submit", "refund", "A1001", "--input", json.dumps(INPUT))


def store(database: Database, thread: str, values: dict[str, Any], result: Any) -> None:
    """A checkpoint and an effect's result, as a turn leaves them."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    with database.connect(row_factory=dict_row) as conn:
        versions: dict[str, str | int | float] = dict.fromkeys(values, "1")
        PostgresSaver(conn).put(
            {"configurable": {"thread_id": thread, "checkpoint_ns": ""}},
            {**empty_checkpoint(), "channel_values": values, "channel_versions": versions},
            {},
            versions,
        )
    kind, data = JsonPlusSerializer().dumps_typed(result)
    database.fetch(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            args_hash, attempts, epoch, first_started_at, started_at, result_type, result)
        VALUES (%s, 'r1', 1, 1, 'pay', 'resend', 'done', 'h', 1, 1, now(), now(), %s, %s)""",
        thread,
        kind,
        data,
    )


# Submit


def test_submit_prints_the_receipt(cli: Cli, database: Database) -> None:
    """As JSON with --json, and again the same for the same message."""
    first = cli(*SUBMIT, "--message-id", "m", "--json")
    assert first.code == 0
    assert first.json() == {
        "thread_id": "refund:A1001",
        "message_id": "m",
        "seq": 1,
        "outcome": "accepted",
        "published": True,
        "paused": False,
    }
    again = cli(*SUBMIT, "--message-id", "m")
    assert again.code == 0 and again.err == ""
    assert "thread id: refund:A1001\n" in again.out and "outcome: duplicate\n" in again.out


def test_input_comes_from_a_file_or_stdin(cli: Cli, database: Database, tmp_path: Path) -> None:
    """@file and -."""
    (tmp_path / "input.json").write_text('{"user_id": "ü"}')
    assert cli("submit", "refund", "A1", "--input", "@input.json").code == 0
    assert cli("submit", "refund", "A2", "--input", "-", stdin=b'{"user_id": "y"}').code == 0
    found = database.fetch("SELECT payload->>'user_id' FROM fleet.messages ORDER BY thread_id")
    assert found == [("ü",), ("y",)]


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (("submit", "refund"), b"", "'key'"),
        (("submit", "refund", "A1", "--input", "{"), b"", "not JSON"),
        (("submit", "refund", "A1", "--input", '{"a":1,"a":2}'), b"", "twice"),
        (("submit", "refund", "A1", "--input", "@nowhere.json"), b"", "nowhere.json"),
        (("submit", "refund", "A1", "--input", "-"), b"\xff", "UTF-8"),
        (("submit", "refund", "A1", "--input", "[" * 100_000), b"", "nested"),
        (("submit", "refund", "A1", "--input", "[]"), b"", "not an object"),
        (("submit", "refund", "A1", "--input", '{"user_id": NaN}'), b"", "user_id is nan"),
        (("submit", "refund", "A1", "--input", '{"user_id": "\\u0000"}'), b"", "NUL"),
        (("submit", "refund", "A1", "--input", '{"user_id": "\\ud800"}'), b"", "surrogate"),
        (("submit", "refund", "A1", "--on-existing", "maybe"), b"", "use_existing"),
        (("submit", "refund", "A1", "--wait", "soon"), b"", "--wait"),
        (("submit", "refund", "", "--input", "{}"), b"", "key is empty"),
        (("submit", "refund", "x" * 256), b"", "256 characters"),
        (("submit", "refund", "a\nb"), b"", "control character"),
        (("show", "refund"), b"", "not a thread_id"),
        (("threads", "--status", "lost"), b"", "waiting"),
        (("threads", "--limit", "0"), b"", "--limit"),
        (("answer", "refund:A1"), b"", "exactly one"),
        (("answer", "refund:A1", "--approve", "--reject"), b"", "exactly one"),
        (("answer", "refund:A1", "--approve", "--value", "1"), b"", "exactly one"),
        (("answer", "refund:A1", "--value", "1", "--note", "n"), b"", "--note"),
        (("resolve", "refund:A1", "r"), b"", "exactly one"),
        (("resolve", "refund:A1", "r", "--happened", "1", "--did-not-happen"), b"", "exactly"),
        (("nonsense",), b"", "nonsense"),
        (("shwo",), b"", "Did you mean 'show'?"),
        (("amend", "refund:A1", "--as-node", "n", "--values", "[]"), b"", "values are a list"),
        (("threads", "--watch", "--every", "inf"), b"", "--every"),
        (("threads", "--nonsense"), b"", "nonsense"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    cli: Cli, args: tuple[str, ...], stdin: bytes, says: str
) -> None:
    """It says what is wrong; with --json as an object; stdout stays empty."""
    plain = cli(*args, stdin=stdin)
    assert plain.code == 2 and says in plain.line() and "?." not in plain.err
    machine = cli(*args, "--json", stdin=stdin)
    assert machine.code == 2 and says in machine.error()["message"]


def test_a_group_without_its_command_says_so(cli: Cli) -> None:
    """As for every other part that is missing."""
    assert "Missing command" in cli("bench").line()


def test_help_breaks_lines_where_the_terminal_does(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where a docstring does, which leaves stumps in a narrow one."""
    monkeypatch.setenv("COLUMNS", "300")
    for command, line in (
        ("up", "these servers are used and none is started; with FLEET_SHOP_URL, that shop."),
        ("demo", "Exits with 0 only if the shop's own books say that each order was refunded"),
    ):
        assert line in cli(command, "--help").out


def test_what_the_fleet_refuses_is_exit_1(cli: Cli, database: Database) -> None:
    """With a code for machines, and nothing written."""
    cli(*SUBMIT, "--message-id", "m")
    refusals = {
        "message_conflict": (*SUBMIT[:-1], '{"user_id": "other"}', "--message-id", "m"),
        "thread_exists": (*SUBMIT, "--on-existing", "reject"),
        "invalid_input": ("submit", "refund", "A2"),
        "unknown_thread": ("show", "refund:A2"),
        "answer_refused": ("answer", "refund:A1001", "--approve"),
        "not_in_doubt": ("resolve", "refund:A1001", "r", "--did-not-happen"),
    }
    for code, args in refusals.items():
        assert cli(*args).code == 1
        refused = cli(*args, "--json")
        assert (refused.code, refused.error()["code"]) == (1, code)
    assert database.value("SELECT count(*) FROM fleet.messages") == 1


def test_servers_that_are_down(cli: Cli, database: Database) -> None:
    """No broker: accepted, said so, exit 0. No Postgres: nothing accepted, exit 1."""
    with nobody() as port:
        accepted = cli(*SUBMIT, "--json", redis_url=f"redis://127.0.0.1:{port}/0")
        assert accepted.code == 0 and json.loads(accepted.out)["published"] is False
        assert "when the broker is back" in accepted.err
        for args in (SUBMIT, ("show", "refund:A1"), ("threads",), ("migrate",)):
            url = f"postgresql://x@127.0.0.1:{port}/x"
            down = cli(*args, postgres_url=url, graphs_file=str(ROOT / "langgraph.json"))
            assert down.code == 1 and "Postgres" in down.line()


def test_without_an_address_it_says_what_to_set(cli: Cli) -> None:
    """No Postgres anywhere."""
    for args in (SUBMIT, ("threads",)):
        assert "FLEET_POSTGRES_URL" in cli(*args, postgres_url="").line()


def test_missing_migrations_are_told_and_migrate_applies_them(
    cli: Cli, empty_database: Database
) -> None:
    """`fleet migrate` names what it applied, and nothing the second time."""
    url = empty_database.url
    missing = cli(*SUBMIT, postgres_url=url)
    assert missing.code == 1 and "fleet migrate" in missing.line()
    graphs = {"graphs_file": str(ROOT / "langgraph.json")}
    applied = cli("migrate", "--json", postgres_url=url, **graphs).json()
    assert "functions" in applied["applied"] and applied["graphs"] == ["booking", "refund"]
    assert cli("migrate", "--json", postgres_url=url, **graphs).json()["applied"] == []
    assert cli(*SUBMIT, postgres_url=url).code == 0


# Send


def test_send_takes_more_input_for_a_thread(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Once for each message_id; after the mail that is there."""
    fleet.submit("refund", "A1", INPUT)
    send = ("send", "refund", "A1", "--input", '{"user_id": "u_9"}', "--message-id", "m")
    first = cli(*send, "--json").json()
    assert (first["thread_id"], first["seq"], first["outcome"]) == ("refund:A1", 2, "accepted")
    assert "outcome: duplicate\n" in cli(*send).out
    found = database.fetch("SELECT kind, payload FROM fleet.messages WHERE seq > 1")
    assert found == [("input", {"user_id": "u_9"})]


def test_send_carries_context_and_config(cli: Cli, fleet: Fleet, database: Database) -> None:
    """And goes to the tenant that is named."""
    with Fleet(database.url, tenant="acme") as acme:
        acme.submit("refund", "A1", INPUT)
    run = ("--context", '{"user": "ann"}', "--config", '{"tags": ["vip"]}')
    assert cli("send", "refund", "A1", "--input", "{}", "--tenant", "acme", *run).code == 0
    found = database.value("SELECT payload->'__run__' FROM fleet.messages WHERE seq = 2")
    assert found == {"context": {"user": "ann"}, "config": {"tags": ["vip"]}}


def test_send_waits_for_what_becomes_of_it(cli: Cli, fleet: Fleet, database: Database) -> None:
    """As submit does, with the same exit codes."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    fleet.send(thread, INPUT, message_id="m")
    settle(database, thread, "done")
    send = ("send", "refund", "A1", "--input", json.dumps(INPUT), "--wait", "0.2", "--json")
    done = cli(*send, "--message-id", "m")
    assert (done.code, done.json()["status"]) == (0, "done")
    late = cli(*send)
    assert (late.code, json.loads(late.err)["error"]["code"]) == (1, "wait_timeout")


def test_send_takes_the_id_in_place_of_graph_and_key(cli: Cli, fleet: Fleet) -> None:
    """As all commands that look at a thread print it, with its tenant."""
    threads = (fleet.submit("refund", key, INPUT).thread_id for key in ("A1", "a:b"))
    with Fleet(tenant="acme") as acme:
        threads = [*threads, acme.submit("refund", "A1", INPUT).thread_id]
    for thread in threads:
        sent = cli("send", thread, "--input", json.dumps(INPUT), "--json").json()
        assert (sent["thread_id"], sent["seq"]) == (thread, 2)


def test_send_starts_no_thread_and_answers_no_question(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """Refused with what is wrong, and nothing is written."""
    ask(database, fleet.submit("refund", "A1", INPUT).thread_id, "q1")
    for code, error, args in (
        (1, "question_open", ("refund", "A1")),
        (1, "unknown_thread", ("refund", "A2")),
        (2, "unknown_graph", ("nope", "A1")),
        (2, "invalid_key", ("refund", "")),
    ):
        refused = cli("send", *args, "--input", "{}", "--json")
        assert (refused.code, refused.error()["code"]) == (code, error)
    assert cli("send", "refund", "A1").code == 2
    assert "'key'" in cli("send", "refund", "--input", "{}").line()
    both = cli("send", "acme/refund:A1", "--tenant", "acme", "--input", "{}")
    assert both.code == 2 and "--tenant" in both.line()
    assert cli("send", "refund", "A1", "--input", "[]").code == 2
    assert database.value("SELECT count(*) FROM fleet.messages") == 1


# Waiting


def test_wait_prints_what_became_of_it(cli: Cli, fleet: Fleet, database: Database) -> None:
    """Exit 0 when done or asking; 1 when it failed or had not ended in time."""
    thread = fleet.submit("refund", "A1001", INPUT, message_id="m").thread_id
    wait = (*SUBMIT, "--message-id", "m", "--wait", "0.2", "--json")
    for status, code in {"done": 0, "waiting": 0, "failed": 1, "in_doubt": 1}.items():
        settle(database, thread, status)
        done = cli(*wait)
        assert done.code == code
        assert done.json()["status"] == done.json()["thread"]["status"] == status
    database.fetch("UPDATE fleet.messages SET status = 'pending'")
    late = cli(*wait)
    assert late.code == 1 and json.loads(late.out)["message_id"] == "m"
    assert json.loads(late.err)["error"]["code"] == "wait_timeout"


def test_a_thread_that_ends_as_the_wait_does_is_not_called_late(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """What is shown and the exit code say the same."""
    thread = fleet.submit("refund", "A1001", INPUT, message_id="m").thread_id
    with (
        psycopg.connect(database.url) as conn,
        ThreadPoolExecutor(1) as pool,
    ):
        # It is waited for without the effects, and shown with them.
        conn.execute("LOCK TABLE fleet.effects")
        done = pool.submit(cli, *SUBMIT, "--message-id", "m", "--wait", "0", "--json")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: database.value(waits) == 1, timeout=30)
        settle(database, thread, "done")
        conn.commit()
        assert (done.result().code, done.result().json()["status"]) == (0, "done")


def test_late_without_a_worker_names_the_command_that_tells(cli: Cli) -> None:
    """Nobody takes the mail: that it goes on would not be true."""
    assert "`fleet ready`" in cli(*SUBMIT, "--wait", "0").err


# Looking on


def test_show_has_state_question_messages_and_effects(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """Everything the issue names; internal channels are left out, odd values made readable."""
    from decimal import Decimal

    thread = fleet.submit("refund", "A1001", INPUT).thread_id
    ask(database, thread, "q1")
    values = {
        "amount": Decimal("1500.00"),
        "__start__": 1,
        "branch:to:x": None,
        "bad": [float("nan")],
    }
    store(database, thread, values, {"refund_id": "R1", "amount": Decimal("1500.00")})
    found = cli("show", thread, "--json").json()
    assert (found["thread_id"], found["graph"], found["key"]) == (thread, "refund", "A1001")
    assert (found["generation"], found["status"], found["epoch"]) == (1, "waiting", 0)
    assert found["state"] == {"amount": "1500.00", "bad": [None]}
    assert found["question"].keys() >= {"question_id", "kind", "payload", "expires_at"}
    assert found["question"]["payload"] == APPROVE
    (message,) = found["messages"]
    assert message.keys() >= {
        "seq",
        "message_id",
        "kind",
        "status",
        "crashes",
        "failures",
        "error",
    }
    (effect,) = found["effects"]
    assert effect["result"] == {"refund_id": "R1", "amount": "1500.00"}
    assert (effect["request_id"], effect["name"], effect["state"]) == ("r1", "pay", "done")
    assert effect["attempts"] == 1


def test_the_state_is_that_of_the_present_generation(
    cli: Cli, fleet: Fleet, database: Database
) -> None:
    """A restarted thread does not show what the one before it knew."""
    thread = fleet.submit("refund", "A1001", INPUT).thread_id
    store(database, thread, {"n": 1}, None)
    database.fetch("UPDATE fleet.threads SET generation = 2")
    assert cli("show", thread, "--json").json()["state"] == {}


def test_show_for_people_says_how_to_answer(cli: Cli, fleet: Fleet, database: Database) -> None:
    """And nothing that a graph stored can move the terminal's cursor."""
    thread = fleet.submit("refund", "A1001", INPUT).thread_id
    ask(database, thread, "q1", payload={**APPROVE, "note": "\x1b[2J\nx"})
    store(database, thread, {"text": "\x1b]0;owned\x07"}, "\x1b[31m")
    shown = cli("show", thread)
    assert shown.code == 0 and f"fleet answer {thread} --approve" in shown.out
    assert "\x1b" not in shown.out and "\x07" not in shown.out


def test_threads_are_listed(cli: Cli, fleet: Fleet, database: Database) -> None:
    """{"threads": [...]} for machines, tab-separated lines in a pipe."""
    for key in ("A1", "A2"):
        fleet.submit("refund", key, INPUT)
    settle(database, "refund:A1", "waiting")
    found = cli("threads", "--status", "waiting", "--graph", "refund", "--json").json()
    (thread,) = found["threads"]
    assert thread["thread_id"] == "refund:A1"
    assert (thread["graph"], thread["key"], thread["status"]) == ("refund", "A1", "waiting")
    lines = [line.split("\t") for line in cli("threads").out.splitlines()]
    assert lines[0][:2] == ["thread_id", "status"]
    assert {line[0] for line in lines[1:]} == {"refund:A1", "refund:A2"}
    empty = ("threads", "--graph", "refund", "--status", "failed")
    assert cli(*empty, "--json").json() == {"threads": []}


# Deciding


@pytest.mark.parametrize(
    ("args", "decision"),
    [
        (("--approve",), {"type": "approve"}),
        (("--reject",), {"type": "reject"}),
        (("--reject", "--note", "too much"), {"type": "reject", "message": "too much"}),
        (("--question", "q1", "--approve"), {"type": "approve"}),
        (("--value", '{"decisions": [{"type": "reject"}]}'), {"type": "reject"}),
    ],
)
def test_answers_reach_the_question(
    cli: Cli, fleet: Fleet, database: Database, args: tuple[str, ...], decision: Any
) -> None:
    """With the note, and with who answered."""
    thread = fleet.submit("refund", "A1001", INPUT).thread_id
    ask(database, thread, "q1")
    done = cli("answer", thread, *args, "--by", "ann", "--json")
    assert (done.code, done.json()["outcome"]) == (0, "accepted")
    assert database.fetch("SELECT answer, answered_by FROM fleet.questions") == [
        ({"decisions": [decision]}, "ann")
    ]
    late = cli("answer", thread, *args, "--json")
    assert (late.code, late.error()["reason"]) == (1, "already_answered")


def test_an_effect_in_doubt_is_resolved(cli: Cli, fleet: Fleet, database: Database) -> None:
    """With what a person found out."""
    thread = fleet.submit("refund", "A1001", INPUT).thread_id
    store(database, thread, {}, None)
    database.fetch("UPDATE fleet.effects SET state = 'intent', result = NULL, result_type = NULL")
    database.fetch("UPDATE fleet.threads SET status = 'in_doubt'")
    assert cli("resolve", thread, "r1", "--happened", '{"refund_id": "R1"}').code == 0
    payload = database.value("SELECT payload FROM fleet.messages WHERE kind = 'resolve'")
    assert payload == {"request_id": "r1", "happened": True, "result": {"refund_id": "R1"}}


# As a process


def test_version_and_submit_load_what_they_need_only() -> None:
    """--version loads no server's client, submit neither Celery nor LangGraph."""
    code = (
        "import sys; from producers.cli import main; main({args}); "
        "print([m for m in {names} if m in sys.modules], file=sys.stderr)"
    )
    heavy = ["celery", "kombu", "langgraph", "rich.table", "typer.testing"]
    light = [*heavy, "psycopg", "redis", "pydantic_settings"]
    for args, names in ((["--version"], light), ([*SUBMIT], heavy)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(args=args, names=names)],
            env=clean_environment(postgres_url="postgresql://x@127.0.0.1:1/x"),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
        assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_a_reader_that_goes_away_is_no_failure_worth_words(database: Database) -> None:
    """`fleet threads | head`."""
    with Fleet(database.url) as fleet:
        fleet.submit_many([("refund", f"k{n}", INPUT) for n in range(2000)])
    process = subprocess.Popen(
        [*FLEET, "threads", "--limit", "2000"],
        env=clean_environment(postgres_url=database.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(30) in (0, 1) and said == b""
    process.stderr.close()


@pytest.mark.parametrize("no_color", [None, "1"])
def test_a_terminal_gets_a_table(database: Database, no_color: str | None) -> None:
    """Without colours if NO_COLOR says so."""
    with Fleet(database.url) as fleet:
        fleet.submit("refund", "A1001", INPUT)
    leader, follower = pty.openpty()
    environment = clean_environment(postgres_url=database.url) | {"TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = no_color
    process = subprocess.Popen(
        [*FLEET, "threads"], env=environment, stdout=follower, stderr=follower, cwd=ROOT
    )
    os.close(follower)
    shown = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and select.select([leader], [], [], 30)[0]:
        try:
            shown += os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
    os.close(leader)
    assert process.wait(30) == 0
    text = shown.decode()
    assert "refund:A1001" in text and "│" in text
    if no_color:
        assert "\x1b[3" not in text


def test_ctrl_c_while_waiting_ends_it_quietly(database: Database, broker: Broker) -> None:
    """No traceback; what was accepted stays accepted."""
    environment = clean_environment(postgres_url=database.url, redis_url=broker.url)
    process = subprocess.Popen(
        [*FLEET, *SUBMIT, "--wait", "60"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    eventually(lambda: database.value("SELECT count(*) FROM fleet.messages") == 1, timeout=30)
    process.send_signal(2)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
