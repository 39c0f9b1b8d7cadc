"""`fleet demo`, as a user runs it: what it shows, and that nothing of it stays behind."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.commands import Command, gone, temporary_folder_of
from tests.harness import eventually


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `fleet demo --yes --json` printed, its settings being full of traps."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "fleet.toml").write_text('queue = "elsewhere"\napproval_limit = 5\n')
    command = Command("demo", "--yes", "--json", cwd=folder, failpoints="claim.after_lock=kill")
    try:
        assert command.ends() == 0, command.messages()
        yield json.loads(command.output.read_text())
    finally:
        command.close()


def test_each_order_is_refunded_once_and_the_rejected_one_never(shown: dict[str, Any]) -> None:
    """The shop's books say so, and the exit code with them."""
    assert shown["ok"] and shown["problems"] == []
    refunds = {o["order"]: o["refunds"] for o in shown["orders"]}
    rejected = [o["order"] for o in shown["orders"] if o["decision"] == "rejected"]
    assert len(refunds) == 8 and len(rejected) == 1
    assert refunds == {order: 0 if order in rejected else 1 for order in refunds}
    assert {o["status"] for o in shown["orders"]} == {"done"}


def test_half_of_the_orders_ask_a_person(shown: dict[str, Any]) -> None:
    """The other half is small and goes through by itself."""
    assert [o["decision"] for o in shown["orders"]].count("automatic") == 4


def test_the_kill_comes_between_paid_and_recorded(shown: dict[str, Any]) -> None:
    """What the killed worker held was begun twice, called twice and paid once."""
    caught = shown["killed"]["orders"]
    rows = {o["order"]: o for o in shown["orders"]}
    assert len(caught) >= 2
    assert [(rows[o]["attempts"], rows[o]["calls"], rows[o]["refunds"]) for o in caught] == [
        (2, 2, 1)
    ] * len(caught)
    others = [o for o in shown["orders"] if o["order"] not in caught]
    assert {o["calls"] for o in others if o["decision"] != "rejected"} == {1}


def test_the_takeover_is_a_measured_time(shown: dict[str, Any]) -> None:
    """Seconds from the kill to the next claim of all that was caught."""
    assert 0.01 < shown["takeover_s"] < 5


def test_a_person_decides_in_the_terminal(tmp_path: Path) -> None:
    """One answer per order; what can't be understood is asked again."""
    command = Command("demo", "--orders", "4", cwd=tmp_path, terminal=True, real=True)
    try:
        command.says("A1002")
        command.says("(a/r/all)")
        command.type("perhaps")
        command.type("r")
        command.type("a")
        assert command.ends() == 0, command.messages()
        table = command.output.read_text()
    finally:
        command.close()
    rows = {line.split("│")[1].strip(" *"): line for line in table.splitlines() if "A10" in line}
    assert "rejected" in rows["A1002"] and "approved" in rows["A1004"]
    assert rows["A1002"].split("│")[-2].strip() == "0"
    assert "By the shop's own books 3 orders were refunded exactly once" in table


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_however_it_is_ended(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Servers, workers and the folder go, by Ctrl-C as by kill -9."""
    command = Command("demo", "--yes", cwd=tmp_path, real=True)
    try:
        command.says("Starting two Celery workers")
        family = command.family()
        folder = temporary_folder_of(family)
        assert folder.exists() and len(family) > 5
        command.send(number)
        assert command.ends(15) == code
        gone(family, 2.0)
        assert not folder.exists()
    finally:
        command.close()


@pytest.mark.parametrize("victim", ["valkey", "postgres", "shop", "worker-2"])
def test_an_early_death_is_told(tmp_path: Path, victim: str) -> None:
    """Who died and what it said last, exit code 1, and nothing is left."""
    command = Command("demo", "--yes", cwd=tmp_path)
    try:
        command.says("Starting two Celery workers")
        family = command.family()
        folder = temporary_folder_of(family)
        eventually(lambda: kill_one(command.family(), victim), 20)
        assert command.ends(60) == 1
        error = command.messages().splitlines()[-1]
        name = {"valkey": "Broker", "postgres": "Postgres"}.get(victim, victim)
        assert error.startswith(f"error: {name} was ended by SIGKILL; its last words: "), error
        assert error.endswith("Nothing is left running: run the same command again.")
        gone(family, 2.0)
        assert not folder.exists()
    finally:
        command.close()


def kill_one(family: list[psutil.Process], name: str) -> bool:
    """kill -9 of the server, the shop or the worker of this name."""
    lines = {process: " ".join(process.cmdline()) for process in family}
    marks = {"shop": "infra.shop", "worker-2": "-n worker-2@", "valkey": "valkey.conf"}
    mark = marks.get(name, "unix_socket_directories")
    found = [p for p, line in lines.items() if mark in line and "guard.py" not in line]
    if found:
        # The parent of the others of its kind.
        min(found, key=lambda p: p.create_time()).kill()
    return bool(found)


def test_without_a_terminal_it_says_to_pass_yes(tmp_path: Path) -> None:
    """One sentence, exit code 2, and nothing was started."""
    command = Command("demo", cwd=tmp_path)
    assert command.ends(15) == 2
    assert command.messages().startswith("error: There is no terminal")
    assert "--yes" in command.messages() and command.messages().count("\n") == 1
