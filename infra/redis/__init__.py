"""The broker's Lua scripts, one file each: all that runs inside of Redis or Valkey."""

from functools import cache
from importlib.resources import files


@cache
def script(name: str) -> str:
    """Text of the script ``NAME.lua``."""
    return (files(__name__) / f"{name}.lua").read_text("utf-8")
