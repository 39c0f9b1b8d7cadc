"""The text of `--help`: paragraphs of docstrings, broken where the terminal's width says."""

import re
from typing import Any

#: A line's end inside a paragraph; those between paragraphs come in pairs.
_INSIDE = re.compile(r"(?<!\n)\n(?!\n)")


def flowing(command: Any) -> Any:
    """The command, and those below it, with whole paragraphs for Typer to wrap.

    Typer keeps the line ends of all but the first, so that each line of a docstring that is
    wider than the terminal would leave a stump.
    """
    if command.help:
        command.help = _INSIDE.sub(" ", command.help)
    for below in getattr(command, "commands", {}).values():
        flowing(below)
    return command
