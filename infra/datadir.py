"""Where the embedded servers of `fleet up` keep their data when nobody says otherwise."""

import hashlib
import os
import stat
from pathlib import Path

STACK_FILE = "stack.toml"


def default_data_dir(project_root: Path) -> Path:
    """`.fleet` in the project, or a folder per project elsewhere where that will not do.

    Postgres refuses to run as root and is started as `nobody` then, who must be able
    to enter every folder on the way to its data.
    """
    root = project_root.resolve()
    inside = root / ".fleet"
    if os.geteuid() == 0:
        if enterable_by_others(root):
            return inside
        return _first_usable([Path("/var/lib/threadfleet"), Path("/var/tmp/threadfleet")], root)
    if os.access(inside if inside.exists() else root, os.W_OK | os.X_OK):
        return inside
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return _first_usable([home / "threadfleet"], root)


def enterable_by_others(folder: Path) -> bool:
    """Whether any user may pass through this folder and all above it."""
    return all(p.stat().st_mode & stat.S_IXOTH for p in (folder, *folder.parents) if p.exists())


def _first_usable(bases: list[Path], root: Path) -> Path:
    name = f"{root.name}-{hashlib.sha256(bytes(root)).hexdigest()[:12]}"
    for base in bases:
        above = base if base.exists() else base.parent
        ours = not base.exists() or base.stat().st_uid == os.geteuid()
        if ours and os.access(above, os.W_OK | os.X_OK):
            return base / name
    return bases[-1] / name
