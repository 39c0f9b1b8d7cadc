"""Completion in the shells themselves, as far as they are installed."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from producers import Fleet
from tests.harness import ROOT, Database, clean_environment
from tests.integration.mailbox import INPUT

#: Runs the words of $1, a line as it is typed, and prints what the shell offers for its end.
ASK = {
    # What readline makes of a line: words, taken apart at colons too.
    "bash": r"""
source ./script; line=${1//:/ : }; read -ra COMP_WORDS <<<"$line"
[[ $line == *" " && $line != *": " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _fleet_completion fleet
printf '%s\n' "${COMPREPLY[@]}"
""",
    # compsys needs a terminal: its one builtin that we use stands in for it.
    "zsh": r"""
compdef() { }; _files() { }; _arguments() { print -r -- "$@" }
source ./script; words=(${=1}); [[ $1 == *" " ]] && words+=(""); CURRENT=$#words
_fleet_completion
""",
    "fish": r"source ./script; complete -C $argv[1]",
}


@dataclass(frozen=True)
class Shell:
    """One that has read our script, in a folder of its own."""

    name: str
    folder: Path
    database: Database

    def offers(self, line: str, known: bool = True) -> str:
        """What it says when the line is to be completed; without a database if told so."""
        environment = clean_environment(postgres_url=self.database.url if known else None)
        environment["PATH"] = f"{self.folder}{os.pathsep}{environment['PATH']}"
        environment["HOME"] = str(self.folder)
        done = subprocess.run(
            [self.name, "-c", ASK[self.name], *([] if self.name == "fish" else ["ask"]), line],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(params=ASK)
def shell(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Shell:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: its completion is NOT tested here")
    command = "import sys; from producers.cli import main; sys.exit(main())"
    program = tmp_path / "fleet"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{command}" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(script(name))
    return Shell(name, tmp_path, database)


def script(shell: str) -> str:
    """What --show-completion prints in that shell."""
    done = subprocess.run(
        [sys.executable, "-c", "from producers.cli import main; main()"],
        env=clean_environment() | {"_FLEET_COMPLETE": f"source_{shell}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", ["bash", "zsh", "fish", "pwsh"])
def test_each_shell_gets_a_script_that_it_can_read(name: str, tmp_path: Path) -> None:
    """It names the command, and the shell itself finds nothing wrong with it."""
    (tmp_path / "script").write_text(script(name))
    assert "fleet" in (tmp_path / "script").read_text()
    if shutil.which(name) is None or name == "pwsh":
        pytest.skip(f"{name} is not installed, or can't read without running: NOT read here")
    read = subprocess.run([name, "-n", tmp_path / "script"], capture_output=True, timeout=60)
    assert (read.returncode, read.stderr) == (0, b"")


def test_the_shell_offers_commands_and_names(
    shell: Shell, fleet: Fleet, database: Database
) -> None:
    """Threads, graphs and workers from the database."""
    fleet.submit("refund", "A1", INPUT)
    database.fetch(
        """INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at)
        VALUES ('w1@a', '{fleet}', 2, 8, 'prefork', fleet.now(), fleet.now())"""
    )
    assert "cancel" in shell.offers("fleet can")
    assert "--new-request" in shell.offers("fleet retry --")
    assert "A1" in shell.offers("fleet cancel ref")
    assert "refund" in shell.offers("fleet pause r")
    assert "w1@a" in shell.offers("fleet drain w")


def test_a_thread_is_completed_past_its_colon(shell: Shell, fleet: Fleet) -> None:
    """At which bash takes a line apart: of the id it is given what is still missing."""
    fleet.submit("refund", "A1", INPUT)
    for line in ("fleet show refund:", "fleet show refund:A"):
        offered = re.findall("[a-zA-Z0-9:]*A1", shell.offers(line).replace("\\", ""))
        assert offered == ["A1" if shell.name == "bash" else "refund:A1"]


def test_without_a_database_nothing_is_offered(shell: Shell) -> None:
    """And nothing is said, least of all on stderr."""
    assert "refund" not in shell.offers("fleet cancel ref", known=False)
