"""Names at the doors: what can't be a name is told so, before anything else is done with it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.main import get_command

from producers import Fleet
from producers.cli import app
from producers.errors import InvalidKey
from tests.harness import Broker, Database
from tests.integration import test_cli
from tests.integration.mailbox import INPUT, ask

cli = test_cli.cli
Cli = test_cli.Cli

#: What an argument that is not UTF-8 becomes (PEP 383), and what Postgres can't store.
NOT_UTF8, NUL = "A\udcff1", "A\x001"

#: What each parameter takes, where it is needed.
GOOD = {
    "thread": "refund:A1",
    "graph": "refund",
    "key": "A1",
    "input": '{"user_id": "u_42"}',
    "worker": "celery@a",
    "request_id": "r1",
    "as_node": "notify_user",
    "values": "{}",
    "at": "1f0",
}
#: What a command needs beside its required parameters to get as far as its names.
MORE = {"answer": ["--approve"], "resolve": ["--did-not-happen"], "fork": ["--yes"]}
#: They ask nothing of a fleet that runs, or take no names.
APART = {"up", "demo", "bench", "chaos", "doctor", "migrate", "prune", "graphs"} | {
    "gateway",
    "keys",
}


def _lines() -> Iterator[tuple[str, ...]]:
    """Every command, once for each of its texts, with that one not UTF-8."""
    group: Any = get_command(app)
    for name, command in group.commands.items():
        if name in APART:
            continue
        texts = [p for p in command.params if p.type_descriptor.annotation is str]
        for bad in texts:
            words, options = [], [*MORE.get(name, [])]
            for param in texts:
                if param is not bad and not param.required and param.name not in ("graph", "key"):
                    continue
                value = NOT_UTF8 if param is bad else GOOD[param.name]
                if not param.opts[0].startswith("-"):
                    words.append(value)
                else:
                    options += [param.opts[0], value]
            if bad.name == "value":
                options.remove("--approve")
            yield (name, *words, *options)


@pytest.mark.parametrize("args", [*_lines()], ids=ascii)
def test_no_command_takes_an_argument_that_is_not_utf8(
    cli: Cli, fleet: Fleet, database: Database, args: tuple[str, ...]
) -> None:
    """Whichever it is: one line that can be printed, exit 2, and no traceback."""
    ask(database, fleet.submit("refund", "A1", INPUT).thread_id, "q1")
    done = cli(*args)
    assert done.code == 2 and done.line().rstrip("\n").isprintable()


CALLS: dict[str, Callable[[Fleet, str], Any]] = {
    "answer: question": lambda fleet, bad: fleet.answer("refund:A1", bad, "approved"),
    "answer: message": lambda fleet, bad: fleet.answer(
        "refund:A1", None, "approved", message_id=bad
    ),
    "threads: graph": lambda fleet, bad: fleet.threads(graph=bad),
    "threads: status": lambda fleet, bad: fleet.threads(status=bad),
    "drain": lambda fleet, bad: fleet.drain(bad),
    "pause": lambda fleet, bad: fleet.pause(bad),
    "status": lambda fleet, bad: fleet.status(f"refund:{bad}"),
    "wait": lambda fleet, bad: fleet.wait(f"refund:{bad}", 0),
    "fork": lambda fleet, bad: fleet.fork("refund:A1", bad, "A2"),
    "effects_after": lambda fleet, bad: fleet.effects_after("refund:A1", bad),
    "resolve": lambda fleet, bad: fleet.resolve("refund:A1", bad, happened=False),
    "send": lambda fleet, bad: fleet.send("refund:A1", {}, message_id=bad),
}


@pytest.mark.parametrize("bad", [NOT_UTF8, NUL], ids=["not UTF-8", "NUL"])
@pytest.mark.parametrize("call", CALLS)
def test_the_client_refuses_what_can_not_be_a_name(fleet: Fleet, call: str, bad: str) -> None:
    """InvalidKey, with the character shown as it can be printed."""
    fleet.submit("refund", "A1", INPUT)
    with pytest.raises(InvalidKey) as refused:
        CALLS[call](fleet, bad)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("bad", [NOT_UTF8, NUL, "a/b"])
def test_a_client_is_of_a_tenant_that_can_be_one(
    database: Database, broker: Broker, bad: str
) -> None:
    """Refused when it is made, not at its first call."""
    with pytest.raises(InvalidKey):
        Fleet(database.url, broker.url, tenant=bad)
