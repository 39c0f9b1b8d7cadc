"""What the commands print for people."""

from pathlib import Path

import pytest
import typer

from graphs.booking.texts import equipped
from producers.cli.options import read_json
from producers.cli.output import cell, print_facts
from producers.wording import words_of


def test_text_of_any_language_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside JSON too: no code numbers in place of characters."""
    print_facts({"state": {"messages": ["明天下午2点"]}})
    assert "明天下午2点" in capsys.readouterr().out
    assert cell({"a": "松\x1b[2J"}) == '{"a": "松\\u001b[2J"}'


def test_a_question_is_shown_by_its_words() -> None:
    """Its data is for programs."""
    payload = {"kind": "clarify", "message": "How many people?", "data": {"known": {}}}
    assert words_of(payload) == "How many people?"


def test_a_value_without_its_quotes_is_told_about_them(tmp_path: Path) -> None:
    """`--value yes` is no JSON; what to write instead is said."""
    with pytest.raises(typer.BadParameter, match='double quotes: "yes"'):
        read_json("yes", "--value")
    with pytest.raises(typer.BadParameter) as other:
        read_json('{"a": ', "--value")
    assert "quotes:" not in other.value.message


def test_equipment_is_written_as_people_do() -> None:
    """In either language."""
    assert equipped(["projector", "tv"], "en") == "projector and TV"
    assert "电视" in equipped(["tv"], "zh")
