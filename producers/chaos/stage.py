"""The stage of a chaos run: servers, shop and workers of its own, gone with it.

Never the user's: no address of theirs is looked at, and the workers may reach this machine
only, and what was allowed by name.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from graphs.registry import Registry
from infra.devservers import Stack
from infra.migrate import migrate
from infra.postgres import connect
from infra.settings import get_settings

from ..local.processes import Launcher, Process, environment, wait_for_worker
from .trial_file import TrialFile

#: So that a step is committed at barriers only, or on purpose: each kill loses the most.
_FLUSH_AFTER = 30
#: A node that hangs gives its slot to other runs so long after its turn was taken away.
_HUNG_GRACE = 5


class Stage:
    """Use as a context manager. ``given``: what of the trial the user decides."""

    def __init__(
        self, graphs_file: Path, given: TrialFile, slots: int, turn_timeout: float
    ) -> None:
        self.stack = Stack(durable=False)
        self._graphs_file = graphs_file.absolute()
        self._given = given
        self._slots = slots
        self._turn_timeout = turn_timeout
        self.results = given.results
        self._started = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.stack)
            self.folder = self.stack.data_dir
            self.record = self.folder / "record.jsonl"
            registry = Registry.load(self._graphs_file)
            migrate(self.stack.postgres_url, registry.described(), registry.store.dims)
            # Nothing of the user's settings gets in, but for what the shipped graph asks.
            self._kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
            plain = Launcher(self.stack, environment(self._kept), self.folder)
            _, self._shop = plain.shop(0, self.folder / "books.jsonl", "--no-fsync")
            self.conn = undo.enter_context(connect(self.stack.postgres_url, "fleet-chaos"))
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    @contextlib.contextmanager
    def worker(self, failpoints: str, kept: Sequence[str] = ()) -> Iterator[Process]:
        """A worker with these failpoints; ``kept``: threads whose steps are committed one
        by one. Gives it when it serves; it is ended, by force, at the end of the block."""
        self._started += 1
        name = f"chaos-{self._started}"
        trial = self.folder / f"{name}.json"
        self._trial(kept).write(trial)
        points = self.folder / f"{name}.failpoints"
        points.write_text(failpoints)
        process = self._launcher(trial, points).worker(
            name, "--concurrency", str(self._slots), "--max-tasks-per-child", "1"
        )
        try:
            wait_for_worker(process)
            yield process
        finally:
            process.child.kill_group()

    @property
    def log(self) -> Path:
        """The failpoints' log."""
        return self.folder / "failpoints.log"

    @property
    def once(self) -> Path:
        """A file in here for each failpoint that has acted, made just before it did."""
        return self.folder / "once"

    def _trial(self, kept: Sequence[str]) -> TrialFile:
        addresses = (urlsplit(u) for u in (self.stack.postgres_url, self.stack.redis_url))
        own = tuple((str(a.hostname), int(a.port or 0)) for a in addresses)
        named = {urlsplit(self._shop).netloc: "dev-shop"}
        found = {"record": self.record, "own": own, "named": named, "kept": tuple(kept)}
        return self._given.model_copy(update=found)

    def _launcher(self, trial: Path, points: Path) -> Launcher:
        env = environment(
            self._kept,
            postgres_url=self.stack.postgres_url,
            redis_url=self.stack.redis_url,
            shop_url=self._shop,
            graphs_file=self._graphs_file,
            approval_limit=get_settings().approval_limit,
            chaos_trial=trial,
            failpoints=f"@{points}",
            failpoint_log=self.log,
            # The first worker notes, and a place is noted at each of its attempts.
            failpoint_once=self.once,
            flush_after=_FLUSH_AFTER,
            turns_per_task=1,
            turn_timeout=self._turn_timeout,
            hung_grace=_HUNG_GRACE,
            sweep_interval=0.25,
            election_interval=0.1,
            backoff_base=0.1,
        )
        # Not where a .env or a fleet.toml may be; the stand-in goes to the user's folder.
        return Launcher(self.stack, env, self.folder)
