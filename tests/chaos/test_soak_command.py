"""`fleet chaos --minutes N`, as a user runs it."""

import json
import signal
from pathlib import Path

from tests.acceptance.commands import Command, gone, temporary_folder_of


def test_it_prints_its_numbers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Kills by kind, what was accepted, and what was lost, done twice or forked: nothing."""
    command = Command("chaos", "--minutes", "0.1", "--seed", "3", "--json", cwd=tmp_path)
    try:
        command.says("Fire for 6 s; --seed 3 repeats its plan.")
        family = command.family()
        assert command.ends(110) == 0, command.messages()
        found = json.loads(command.output.read_text())
        gone(family, 3.0)
    finally:
        command.close()
    assert (found["ok"], found["seed"], found["findings"]) == (True, 3, [])
    faults = ("lost", "duplicate_effects", "forked_threads", "all_faults")
    assert [found[name] for name in faults] == [0, 0, 0, 0]
    assert found["kills"]["total"] == sum(found["kills"].values()) / 2 > 0
    assert found["accepted"] >= found["threads"] > 0
    assert {"count", "p50_s", "p99_s"} <= found["takeover_under_fire"].keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stderr", "stdout"]


def test_it_is_stopped_in_the_middle(tmp_path: Path) -> None:
    """By SIGTERM: servers, workers and their folder are gone with it, stopped ones included."""
    command = Command("chaos", "--minutes", "5", cwd=tmp_path)
    try:
        command.says("Fire for 300 s")
        family = command.family()
        folder = temporary_folder_of(family)
        command.send(signal.SIGTERM)
        assert command.ends(30) == 128 + signal.SIGTERM
        assert "Nothing is left running" in command.messages()
        gone(family, 3.0)
        assert not folder.exists()
    finally:
        command.close()


def test_ctrl_c_puts_the_fire_out_early(tmp_path: Path) -> None:
    """What was done by then is judged and its numbers are printed."""
    command = Command("chaos", "--minutes", "5", "--json", cwd=tmp_path)
    try:
        command.says("Fire for 300 s")
        command.send(signal.SIGINT)
        command.says("Stopped early")
        assert command.ends(110) == 0, command.messages()
        found = json.loads(command.output.read_text())
    finally:
        command.close()
    assert found["ok"] and found["fire_seconds"] < 100
    assert found["accepted"] >= found["threads"] > 0


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """Without numbers, and with nothing left."""
    command = Command("chaos", "--minutes", "5", "--json", cwd=tmp_path)
    try:
        command.says("Fire for 300 s")
        family = command.family()
        command.send(signal.SIGINT)
        command.says("Stopped early")
        command.send(signal.SIGINT)
        assert command.ends(30) == 130
        assert "Nothing is left running" in command.messages()
        assert command.output.read_text() == ""
        gone(family, 3.0)
    finally:
        command.close()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    """Exit code 2, and nothing is started."""
    for args in (("--seed", "3"), ("refund", "--inputs", "x.jsonl", "--seed", "3")):
        command = Command("chaos", *args, cwd=tmp_path)
        assert command.ends(20) == 2, command.messages()
        assert "Traceback" not in command.messages()
