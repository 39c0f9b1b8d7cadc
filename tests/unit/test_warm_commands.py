"""Commands that tests fork are like those that are started."""

import json
import signal
from pathlib import Path

import pytest

from tests.harness import clean_environment, eventually
from tests.warm_commands import CELERY, FLEET, run, start


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ([*FLEET, "--version"], 0),
        ([*FLEET, "threads", "--no-such-option"], 2),
        ([*FLEET, "threads", "--json"], 1),
        ([*CELERY, "-A", "no_such_module", "worker"], 2),
    ],
)
def test_a_forked_command_says_and_returns_the_same(
    argv: list[str], code: int, tmp_path: Path
) -> None:
    """On both streams."""
    forked, real = (
        run(argv, cwd=tmp_path, env=clean_environment(), real=real) for real in (False, True)
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (code, real.stdout, real.stderr)
    assert real.returncode == code and forked.stdout + forked.stderr


def test_a_forked_command_has_its_own_folder_variables_and_session(tmp_path: Path) -> None:
    """A graphs file in its folder is found; its module tells what it sees."""
    (tmp_path / "told.py").write_text(
        "import json, os, sys\n"
        "seen = [os.getcwd(), os.environ.get('TOLD'), sys.argv[1:], os.getsid(0) == os.getpid()]\n"
        "open('seen', 'w').write(json.dumps(seen))\n"
    )
    (tmp_path / "langgraph.json").write_text('{"graphs": {"told": "./told.py:graph"}}')
    seen = []
    for real in False, True:
        with open(tmp_path / "out", "wb") as out:
            process = start(
                [*FLEET, "graphs", "--json"],
                cwd=tmp_path,
                env=clean_environment() | {"TOLD": "so"},
                streams=(0, out.fileno(), out.fileno()),
                new_session=True,
                real=real,
            )
            process.wait(30)
        seen.append(json.loads((tmp_path / "seen").read_text()))
        (tmp_path / "seen").unlink()
    assert seen[0] == seen[1] == [str(tmp_path), "so", ["graphs", "--json"], True]


def test_a_signal_ends_a_forked_command(tmp_path: Path) -> None:
    """With the code that a subprocess has."""
    (tmp_path / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    (tmp_path / "langgraph.json").write_text('{"graphs": {"slow": "./slow.py:graph"}}')
    with open(tmp_path / "out", "wb") as out:
        streams = 0, out.fileno(), out.fileno()
        argv, env = [*FLEET, "graphs"], clean_environment()
        process = start(argv, cwd=tmp_path, env=env, streams=streams)
    eventually((tmp_path / "begun").exists, 30)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(10) == process.returncode == -signal.SIGKILL
