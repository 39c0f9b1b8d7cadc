"""docs/settings.md says of each setting what the settings say."""

from pathlib import Path

import pytest

from infra import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    """When this fails: python -m infra.settings_page > docs/settings.md"""
    assert PAGE.read_text() == settings_page.page()


def test_a_setting_that_nothing_is_told_of_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new setting wants a text, and a removed one's text goes with it."""
    work = dict(settings_page.SECTIONS["Work"], gone="Was one.")
    del work["queue"]
    monkeypatch.setitem(settings_page.SECTIONS, "Work", work)
    with pytest.raises(ValueError, match="differ: gone, queue"):
        settings_page.page()
