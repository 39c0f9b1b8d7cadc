"""What the pages name is there: tests, other pages, headings, commands."""

import re
from pathlib import Path

import pytest
import typer.main

import producers
from producers import errors
from producers.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@of_each_page
def test_tests_that_are_named_exist(page: Path) -> None:
    """As `file::test`, the file below tests/."""
    for name, test in re.findall(r"`(?:tests/)?([\w/]+\.py)::(test_\w+)`", page.read_text()):
        assert f"def {test}(" in (ROOT / "tests" / name).read_text(), f"{name}::{test}"


def test_each_answer_of_the_faq_names_a_test() -> None:
    """An answer begins with its question in bold and ends before the next, or a heading."""
    text = (ROOT / "docs" / "faq.md").read_text()
    answers = re.findall(
        r"^\*\*(… .+?\?)\*\*(.*?)(?=^\*\*…|^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert len(answers) == text.count("**… ") > 30
    assert [ask for ask, said in answers if not re.search(r"`\w+/\w+\.py::test_\w+`", said)] == []


def test_each_fault_names_a_test() -> None:
    """A row: what others met, what happens here, and the tests that show it."""
    lines = (ROOT / "docs" / "faults.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    faults = [row for row in rows if row[-1].strip("| ") not in ("shown by", "---")]
    assert len(faults) > 80
    shown = re.compile(r"`tests/\w+/\w+\.py::test_\w+`")
    assert [row for row in faults if len(row) != 3 or not shown.match(row[2])] == []


@of_each_page
def test_links_lead_somewhere(page: Path) -> None:
    """To a file in the repository, and to a heading of it where one is named."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@of_each_page
def test_commands_that_are_shown_exist(page: Path) -> None:
    """Of lines of code that call fleet, and of code within a sentence."""
    known = {*typer.main.get_command(app).commands, "test", "chaos"}  # type: ignore[attr-defined]
    shown = re.findall(r"(?:^ {4}|`)(?:\./)?fleet ([a-z]+)\b", page.read_text(), re.MULTILINE)
    assert set(shown) <= known


@of_each_page
def test_errors_that_are_named_can_be_imported_from_producers(page: Path) -> None:
    """As a service catches them, with the thin client too."""
    known = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    named = known & set(re.findall(r"`(\w+)`", page.read_text()))
    assert {name for name in named if not hasattr(producers, name)} == set()


def test_the_readme_leads_to_every_page() -> None:
    """Each page of docs/ is linked from it."""
    readme = (ROOT / "README.md").read_text()
    assert [p.name for p in PAGES[1:] if f"(docs/{p.name})" not in readme] == []


def test_every_command_is_told_of() -> None:
    """In the README or on a page."""
    text = "".join(page.read_text() for page in PAGES)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"fleet {name}" not in text] == []


@of_each_page
def test_rows_of_a_table_have_its_columns(page: Path) -> None:
    """A cell too few moves the rest to the left, where nobody looks for it."""
    columns, wrong = 0, []
    for line in page.read_text().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if cells and columns and cells != columns:
            wrong.append(line)
        columns = cells and (columns or cells)
    assert wrong == []
