"""Which code is the user's own: no library's, and none of the fleet's."""

import sysconfig
import traceback
from pathlib import Path

_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib", "stdlib")}
)
_GRAPHS = Path(__file__).resolve().parent
#: In a checkout of the fleet its packages are no libraries, and these graphs are as a user's.
_FLEET = tuple(_GRAPHS.with_name(name) for name in ("graphs", "infra", "producers", "workers"))
_SHIPPED = tuple(_GRAPHS / name for name in ("booking", "examples", "refund.py", "shop.py"))


def is_library(file: str) -> bool:
    """Whether it belongs to Python or to an installed package, or is no file at all."""
    return file.startswith("<") or file.startswith(_LIBRARIES)


def is_own(file: str) -> bool:
    """Whether a user has written it."""
    if is_library(file):
        return False
    path = Path(file)
    fleet = any(path.is_relative_to(folder) for folder in _FLEET)
    return not fleet or any(path.is_relative_to(shipped) for shipped in _SHIPPED)


def place_of(exc: BaseException, folder: Path) -> str:
    """The user's own line that it came from, ``payout.py:16, in pay``; "" where there is none.

    folder: files in it are named from there, others by their name alone.
    """
    frames = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(exc.__traceback__)
        if is_own(frame.f_code.co_filename)
    ]
    if not frames:
        return ""
    code, line = frames[-1]
    function = "" if code.co_name == "<module>" else f", in {code.co_name}"
    return f"{named(code.co_filename, folder)}:{line}{function}"


def named(file: str, folder: Path) -> str:
    """The file as a person knows it who is in the folder."""
    path = Path(file).resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path.name)
