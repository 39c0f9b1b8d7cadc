"""Who is said to hold a data folder."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra import folders
from infra.errors import DataFolderBusy


def test_a_dead_process_is_not_named_as_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock may be held by what it left behind; stopping its pid would stop a stranger."""
    monkeypatch.setattr(folders, "_GUARD_LEAVES_WITHIN", 0.05)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "lock").write_text(f"{gone.pid}\n")
    held = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(DataFolderBusy, match="in use by another process") as busy:
        folders.lock_folder(tmp_path)
    os.close(held)
    assert busy.value.data["pid"] is None
