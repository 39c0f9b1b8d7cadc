"""`.ci/run`: when it fails. Its steps are stand-ins here; the script is the real one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import ROOT

_REAL = ("bash", "cat", "cp", "dirname", "find", "grep", "id", "mkdir", "mktemp", "rm", "tail")
_OPTIONAL = ("chromium", "docker", "gcc", "npm", "spin")
#: Does nothing; as Python it makes environments, and the screenshot of the browser's tests.
_STAND_IN = """#!/bin/bash
case "$*" in
    *tests/browser*) mkdir -p "$CI_ARTIFACTS/browser"
        [ -z "${PICTURE+x}" ] || echo -n "$PICTURE" >"$CI_ARTIFACTS/browser/page.png" ;;
    *venv*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with hardly more than the script, and a PATH with nothing but `bin`."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "tests" / "interop").mkdir(parents=True)
    (tmp_path / "tests" / "interop" / "package.json").touch()
    for name in _REAL:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    for name in (".venv/bin/python", ".venv/bin/lint-imports", "fleet"):
        stand_in(tmp_path / name)
    for name in _OPTIONAL:
        stand_in(tmp_path / "bin" / name)
    return tmp_path


def stand_in(path: Path, fails: bool = False) -> None:
    path.write_text(_STAND_IN + f"exit {fails:d}\n")
    path.chmod(0o755)


def ci(folder: Path, **env: str) -> tuple[int, str]:
    """Exit code and last line."""
    settings = {"PATH": str(folder / "bin"), "CI_ARTIFACTS": str(folder / "artifacts"), **env}
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"],
        env={"TMPDIR": str(folder)} | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout.splitlines()[-1]


def test_all_is_checked(folder: Path) -> None:
    """Strict or not: where nothing was left out it makes no difference."""
    assert ci(folder, PICTURE="png") == (0, "all passed")
    assert ci(folder, PICTURE="png", CI_STRICT="1") == (0, "all passed")


@pytest.mark.parametrize(
    ("tool", "step"),
    [
        ("chromium", "browser"),
        ("npm", "interop"),
        ("spin", "model"),
        ("docker", "docker-compose.yml"),
    ],
)
def test_what_was_not_checked_is_named_and_fails_if_strict(
    folder: Path, tool: str, step: str
) -> None:
    """The tool is not here, and there is no apt to have it from."""
    os.unlink(folder / "bin" / tool)
    assert ci(folder, PICTURE="png") == (0, f"passed, but NOT CHECKED: {step}")
    strict = ci(folder, PICTURE="png", CI_STRICT="1")
    assert strict == (1, f"failed, as CI_STRICT=1: NOT CHECKED: {step}")
    stand_in(folder / "fleet", fails=True)
    failed = f"failed: tests,gateway,booking,bench,chaos; NOT CHECKED: {step}"
    assert ci(folder, PICTURE="png") == (1, failed)


def test_the_browser_has_to_leave_screenshots(folder: Path) -> None:
    """None, or an empty one, fails; and one of an earlier run is none."""
    assert ci(folder, PICTURE="") == (1, "failed: browser")
    assert ci(folder, PICTURE="png") == (0, "all passed")
    assert ci(folder) == (1, "failed: browser")


def test_a_step_that_fails_fails_it(folder: Path) -> None:
    """The others are run all the same, and all that failed are named."""
    for name in (".venv/bin/python", "fleet"):
        stand_in(folder / name, fails=True)
    code, last = ci(folder, PICTURE="png")
    steps = "tests,gateway,booking,bench,chaos,model,interop,browser"
    steps += ",lint,format,types,thin client wheel"
    assert (code, last) == (1, f"failed: {steps}")
