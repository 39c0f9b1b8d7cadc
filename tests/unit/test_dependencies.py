"""What is imported is declared: nothing comes by way of another package's needs."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.harness import ROOT

OURS = ("workers", "producers", "graphs", "infra")
#: Runs before anything is installed for it, or in the image alone.
ELSEWHERE = (ROOT / "infra" / "docker",)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(pyproject: Path) -> set[str]:
    wanted = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    return {canonical(re.split(r"[\[<>=!~; ]", line)[0]) for line in wanted}


def imported(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(module, file) of each absolute import of what is neither Python's nor ours."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top not in OURS:
                    yield top, str(file.relative_to(ROOT))


def full() -> list[Path]:
    files = [file for package in OURS for file in (ROOT / package).rglob("*.py")]
    return [file for file in files if not any(e in file.parents for e in ELSEWHERE)]


def thin() -> list[Path]:
    return [*(ROOT / "producers").glob("*.py")]


@pytest.mark.parametrize(
    ("pyproject", "files"),
    [(ROOT / "pyproject.toml", full()), (ROOT / "producers" / "pyproject.toml", thin())],
    ids=["threadfleet", "threadfleet-client"],
)
def test_what_is_imported_is_declared(pyproject: Path, files: list[Path]) -> None:
    """Of each package at least one distribution that provides it."""
    providers, wanted = packages_distributions(), declared(pyproject)
    missing = {
        (module, file)
        for module, file in imported(files)
        if not wanted & {canonical(name) for name in providers.get(module, ())}
    }
    assert missing == set()


def test_what_is_declared_is_locked() -> None:
    """An install takes nothing that is not in requirements.lock."""
    lock = (ROOT / "requirements.lock").read_text()
    locked = {canonical(name) for name in re.findall(r"^([\w.-]+)(?:\[\w+\])?==", lock, re.M)}
    assert declared(ROOT / "pyproject.toml") - locked == set()
