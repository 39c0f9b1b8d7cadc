"""Where settings come from: the environment, `.env`, fleet.toml, what `fleet up` has left."""

import difflib
import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from infra.datadir import STACK_FILE, default_data_dir
from infra.errors import SettingsError
from infra.stackfile import stack_values

PREFIX = "FLEET_"
TOML_FILE = "fleet.toml"

#: Names of settings.
Names = Collection[str]


class Source(PydanticBaseSettingsSource):
    """Values that were read and checked before."""

    def __init__(self, settings_cls: type[BaseSettings], values: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._values


def read_all(names: Names) -> list[dict[str, Any]]:
    """The values of each source, the first one first. Raises SettingsError for a name that
    is none, and for a file that can't be read.
    """
    read = [
        _known(_prefixed(os.environ), "environment", names),
        _known(_prefixed(dotenv_values(".env")), ".env", names),
        _known(_toml(Path(TOML_FILE)), TOML_FILE, names),
    ]
    named = (str(values.get("data_dir") or "").strip() for values in read)
    data_dir = next(filter(None, named), None)
    folder = Path(data_dir) if data_dir else default_data_dir(Path.cwd())
    return [*read, stack_values(folder / STACK_FILE)]


def _with_files(values: dict[str, Any], where: str, names: Names) -> dict[str, Any]:
    """The values, those named `NAME_file` read from their files."""
    found = {name: value for name, value in values.items() if not _names_file(name, names)}
    for name in values.keys() - found.keys():
        setting, path = name.removesuffix("_file"), Path(str(values[name]))
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            reason = getattr(exc, "strerror", None) or "it is not UTF-8"
            raise SettingsError(
                f"The file {path} of {_shown(name, where)} cannot be read: {reason}.",
                f"Correct {_shown(name, where)}, or let this user read the file.",
            ) from None
        given = found.get(setting)
        if given is not None and str(given).strip() not in ("", text):
            raise SettingsError(
                f"{_shown(setting, where)} and {_shown(name, where)} ({where}) say different "
                "things.",
                "Remove one of them.",
            )
        found[setting] = text
    return found


def _names_file(name: str, names: Names) -> bool:
    stem = name.removesuffix("_file")
    return name not in names and stem != name and stem in names


def _prefixed(variables: Any) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and value is not None
    }


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(f"{path} cannot be read: {exc}.", f"Correct {path}.") from None


def _known(values: dict[str, Any], where: str, names: Names) -> dict[str, Any]:
    for name in values:
        if name not in names and not _names_file(name, names):
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {_shown(close[0], where)}?" if close else "Remove it."
            raise SettingsError(
                f"{_shown(name, where)} ({where}) is not a setting.", hint, name=name
            )
    return _with_files(values, where, names)


def _shown(name: str, where: str) -> str:
    return name if where.endswith(".toml") else variable(name)


def variable(name: str) -> str:
    return PREFIX + name.upper()
