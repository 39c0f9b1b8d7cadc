"""What `fleet chaos` tells its workers, as a JSON file that FLEET_CHAOS_TRIAL names."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class TrialFile(BaseModel):
    """What the workers of a trial are told.

    record: where facts go (producers.chaos.record). folder: to run in. project: whose lines
    are the user's own. results: by effect. real: call the effects. allow: hosts that may be
    reached besides this machine. own: (host, port) of the fleet's servers. named: what
    addresses are called. kept: threads whose steps are committed one by one.
    """

    model_config = ConfigDict(frozen=True)

    record: Path
    folder: Path
    project: Path
    results: dict[str, Any] = {}
    real: bool = False
    allow: tuple[str, ...] = ()
    own: tuple[tuple[str, int], ...] = ()
    named: dict[str, str] = {}
    kept: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.model_validate_json(path.read_text())

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json())
