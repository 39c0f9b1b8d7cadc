"""The stack file: the addresses that a running `fleet up` leaves in its data folder."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from infra import folders
from infra.errors import DataDamaged

_STARTS = {
    "postgres_url": ("postgresql://", "postgres://"),
    "redis_url": ("redis://", "rediss://", "unix://"),
    "shop_url": ("http://", "https://"),
}
_HINT = "Delete it; `fleet up` writes it anew when it starts."


def write_stack_file(path: Path, addresses: Mapping[str, str]) -> None:
    """Whole or not at all, and only for us to read: the addresses hold passwords."""
    # A JSON string is a TOML string as long as it has no lone surrogates.
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in addresses.items())
    folders.write_private(path, lines)


def stack_values(path: Path) -> dict[str, str]:
    """The addresses by the names of their settings; none where no `fleet up` runs.

    Raises DataDamaged for a file that is not as we write it, ServerFailed for a folder that
    can't be looked into.
    """
    try:
        found = tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except IsADirectoryError:
        raise DataDamaged(path, "it is a folder", _HINT) from None
    except OSError as exc:
        raise folders.unusable(path.parent, exc) from None
    except ValueError:
        raise DataDamaged(path, "it is not TOML", _HINT) from None
    for name, value in found.items():
        if name not in _STARTS:
            raise DataDamaged(path, f"{name} is no address", _HINT)
        if not (isinstance(value, str) and value.startswith(_STARTS[name])):
            raise DataDamaged(path, f"its {name} is none", _HINT)
    return found
