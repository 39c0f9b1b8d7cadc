"""Failpoints: what a spec means, and that each action does what it says."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import failpoints
from infra.errors import SettingsError
from infra.failpoints import FailpointError, arm, failpoint, on_disconnect, parse
from tests.harness import ROOT, clean_environment


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Nothing armed before and after."""
    arm("")
    on_disconnect(None)
    yield
    arm("")
    on_disconnect(None)


def run(spec: str, code: str = "failpoint('a.b')", **settings: object) -> tuple[int, str]:
    """Exit code and output of a process that passes the point with this spec armed."""
    done = subprocess.run(
        [sys.executable, "-c", f"from infra.failpoints import failpoint\n{code}\nprint('passed')"],
        env=clean_environment(failpoints=spec, **settings),
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout


def test_nothing_happens_when_nothing_is_armed() -> None:
    """The usual case."""
    failpoint("a.b")


def test_only_the_named_point_acts() -> None:
    """Others pass."""
    arm("a.b=raise")
    failpoint("a.c")
    with pytest.raises(FailpointError, match=r"a\.b"):
        failpoint("a.b")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("p=kill", ("kill", 0.0, 1.0, None)),
        ("p=kill:0.1", ("kill", 0.0, 0.1, None)),
        ("p=kill::0.1:2", ("kill", 0.0, 0.1, 2)),
        ("p=exit", ("exit", 1.0, 1.0, None)),
        ("p=exit:3:0.5:1", ("exit", 3.0, 0.5, 1)),
        ("p=sleep:0.25", ("sleep", 0.25, 1.0, None)),
        ("p=raise:1:4", ("raise", 0.0, 1.0, 4)),
        ("p=kill:::2", ("kill", 0.0, 1.0, 2)),
        ("p=stop", ("stop", 0.0, 1.0, None)),
        ("p=stop:0.5", ("stop", 0.5, 1.0, None)),
        ("p=note", ("note", 0.0, 1.0, None)),
    ],
)
def test_an_entry_reads_as_documented(
    entry: str, expected: tuple[str, float, float, int | None]
) -> None:
    """Action, argument, probability, count."""
    point = parse(entry)["p"]
    assert (point.action, point.arg, point.probability, point.left) == expected


@pytest.mark.parametrize(
    "spec",
    [
        *("p", "p=", "=kill", "p=explode", "p=kill:2", "p=sleep:x", "p=kill:1:1:1", "p=exit:1:-1"),
        *("p=sleep:-1", "p@a/b=kill"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named(spec: str) -> None:
    """A misspelt failpoint that never fires would make a chaos test pass."""
    with pytest.raises(SettingsError, match="FLEET_FAILPOINTS"):
        arm(spec)


def test_several_entries_are_parted_by_semicolons() -> None:
    """Blanks and an empty last entry do no harm."""
    assert set(parse("a=kill; b=sleep:1;")) == {"a", "b"}


def test_a_long_spec_may_come_from_a_file(tmp_path: Path) -> None:
    """In lines, entries or both; a file that is not there is named."""
    file = tmp_path / "spec"
    file.write_text("a=kill; b=note\n\nc@x%2Fy=sleep:1\n")
    assert set(parse(f"@{file}")) == {"a", "b", "c@x%2Fy"}
    with pytest.raises(SettingsError, match="no-such"):
        arm("@no-such")


def test_a_count_limits_how_often_it_acts() -> None:
    """raise:1:2 raises twice."""
    arm("p=raise:1:2")
    for _ in range(2):
        with pytest.raises(FailpointError):
            failpoint("p")
    failpoint("p")


def test_a_probability_of_zero_never_acts() -> None:
    """And one of 0.5 sometimes."""
    arm("never=raise:0;sometimes=raise:0.5")
    raised = 0
    for _ in range(200):
        failpoint("never")
        try:
            failpoint("sometimes")
        except FailpointError:
            raised += 1
    assert 0 < raised < 200


def test_sleep_waits_for_its_seconds() -> None:
    """The argument is in seconds."""
    arm("p=sleep:0.05")
    begun = time.monotonic()
    failpoint("p")
    assert time.monotonic() - begun >= 0.05


def test_disconnect_calls_the_handler() -> None:
    """The one registered last; without any it is an error."""
    arm("p=disconnect")
    with pytest.raises(FailpointError, match="no handler"):
        failpoint("p")
    called: list[int] = []
    on_disconnect(lambda: called.append(1))
    failpoint("p")
    assert called == [1]


def test_kill_is_sigkill() -> None:
    """Armed from the environment at the first point."""
    assert run("a.b=kill") == (-signal.SIGKILL, "")


def test_exit_leaves_at_once_with_its_code() -> None:
    """No handlers run."""
    assert run("a.b=exit:7", "import atexit; atexit.register(print, 'no')\nfailpoint('a.b')") == (
        7,
        "",
    )


def test_stop_waits_for_sigcont() -> None:
    """The process stands still and goes on afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from infra.failpoints import failpoint; failpoint('a.b')"],
        env=clean_environment(failpoints="a.b=stop"),
        cwd=ROOT / "tests",
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(10) == 0


def test_stop_with_seconds_goes_on_by_itself() -> None:
    """Nobody has to resume it, and whoever does is no child of it."""
    begun = time.monotonic()
    code = "failpoint('a.b')\nimport os\ntry: os.waitpid(-1, 0)\nexcept ChildProcessError: pass"
    assert run("a.b=stop:0.3", code) == (0, "passed\n")
    assert time.monotonic() - begun >= 0.3


def test_an_armed_place_acts_there_only() -> None:
    """The place is quoted as in the log; `name@` is for all the others."""
    arm("p@a%2Fb=raise;q@=raise:1:1")
    failpoint("p")
    failpoint("p", lambda: "a/c")
    with pytest.raises(FailpointError, match=r"p@a%2Fb"):
        failpoint("p", lambda: "a/b")
    with pytest.raises(FailpointError, match=r"q@a%2Fb"):
        failpoint("q", lambda: "a/b")


def test_a_place_that_is_not_armed_is_not_asked_for() -> None:
    """It may cost something to tell."""
    arm("p=sleep:0")
    failpoint("p", lambda: pytest.fail("asked"))


def test_note_only_writes_the_log(tmp_path: Path) -> None:
    """How the places that a run has are found."""
    log = tmp_path / "log"
    assert run("a@=note", "failpoint('a', lambda: 'x y')", failpoint_log=log) == (0, "passed\n")
    assert log.read_text().split()[1:] == ["a@x%20y", "note"]


def test_the_log_has_a_line_per_hit(tmp_path: Path) -> None:
    """Also of a kill, which leaves no time afterwards."""
    log = tmp_path / "log"
    run("a.b=kill;a.c=sleep:0", "failpoint('a.c'); failpoint('a.b')", failpoint_log=log)
    assert [line.split()[1:] for line in log.read_text().splitlines()] == [
        ["a.c", "sleep"],
        ["a.b", "kill"],
    ]


def test_once_is_once_over_all_processes(tmp_path: Path) -> None:
    """The attempt after the kill passes."""
    once = tmp_path / "once"
    assert run("a.b=kill", failpoint_once=once)[0] == -signal.SIGKILL
    assert run("a.b=kill", failpoint_once=once) == (0, "passed\n")


def test_once_with_a_count_is_as_often_over_all_processes(tmp_path: Path) -> None:
    """Killed at the first and at the second attempt; the third passes. Each place counts apart."""
    settings = {"failpoint_once": tmp_path / "once"}
    long = "x" * 300
    for place in ("one", long):
        code = f"failpoint('a.b', lambda: '{place}')"
        codes = [run("a.b@=kill:::2", code, **settings)[0] for _ in range(3)]
        assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]


def test_an_unarmed_point_costs_under_a_microsecond() -> None:
    """It stands in the path of every turn."""
    assert failpoints._loaded
    rounds = 100_000
    begun = time.process_time()
    for _ in range(rounds):
        failpoint("turn.before_commit")
    assert (time.process_time() - begun) / rounds < 1e-6
