"""docs/reliability.md names every failpoint, and none that there is not."""

import re

from tests.harness import ROOT

_CALL = re.compile(r"failpoint\(\s*\"([a-z_.]+)\"")
_SIDES = re.compile(r"^_(?:INTENT|FLUSH) = \(\"([a-z_.]+)\", \"([a-z_.]+)\"\)", re.MULTILINE)
_ROW = re.compile(r"^\| `([a-z_.]+)` \|", re.MULTILINE)


def in_the_source() -> set[str]:
    """The names of all failpoints in the product."""
    found: set[str] = set()
    for package in ("infra", "graphs", "producers", "workers"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            found.update(_CALL.findall(text))
            found.update(name for sides in _SIDES.findall(text) for name in sides)
    return found


def test_the_table_has_every_failpoint_of_the_source() -> None:
    """And no other."""
    table = _ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
    assert sorted(table) == sorted(in_the_source())


def test_there_are_enough_to_cut_a_turn_anywhere() -> None:
    """Each numbered step of the design has one on either side."""
    assert len(in_the_source()) >= 20
