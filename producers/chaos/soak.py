"""`fleet chaos --minutes N`: the fleet's own refunds under fire, and what came of it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import ServerFailed

from ..local.signals import noting_an_interrupt
from ..local.waiting import until
from . import plan
from .arena import Arena
from .books import about, shop_acts
from .checker import check
from .errors import ChaosFailed
from .findings import Report
from .fire import Fire
from .load import STORIES, Load, Story
from .numbers import Numbers
from .takeovers import Takeovers

#: Where the graph lies that the soak runs.
GRAPHS = Path(__file__).resolve().parents[2] / "langgraph.json"
#: Seconds without any progress, after the fire, until what is left is taken for stuck.
PATIENCE = 60.0
#: Seconds that each effect takes: with none, kills would seldom meet one under way.
_SLOW = 0.05

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """kill_every, trouble_every: seconds between two, on average. longest: seconds that a
    trouble lasts. seed: of the plan."""

    seconds: float
    seed: int
    kill_every: float = 0.35
    trouble_every: float = 3.0
    longest: float = 15.0
    stories: Sequence[Story] = STORIES
    graphs_file: Path = GRAPHS
    seats: int = 3
    slots: int = 2


def soak(wishes: Wishes, say: Say, evidence: Path) -> Numbers:
    """Set fire to a fleet of its own for so long, let it come to rest, and judge.

    Ctrl-C puts the fire out early; what was done by then is judged.
    evidence: a folder that is made only where a fault is found. Raises ChaosFailed.
    """
    begun = time.monotonic()
    with _failing(), Arena(wishes.graphs_file, seats=wishes.seats, slots=wishes.slots) as arena:
        load = Load(arena, wishes.stories, wishes.seed, 6 * arena.slots)
        say(f"Starting {wishes.seats} workers, and each story once without faults.")
        arena.fill()
        load.tell(PATIENCE)
        for target in ("refunds", "notifications"):
            arena.shop("POST", "/admin/faults", target=target, mode="slow", seconds=_SLOW)
        fire = _fire(arena, wishes)
        load.begin()
        try:
            burned = _burn(fire, load, wishes, say)
            rested = _come_to_rest(arena, load, say)
        except Exception:
            _keep_logs(arena, evidence)
            raise
        finally:
            load.close()
        report = _judge(arena, load)
        took = time.monotonic() - begun
        numbers = Numbers.of(wishes.seed, burned, fire, load, arena, report, rested, took)
        if not numbers.ok:
            _keep(arena, numbers, evidence)
            say(f"Logs, and all that is stored of the threads found, are in {evidence}.")
        return numbers


def _fire(arena: Arena, wishes: Wishes) -> Fire:
    return Fire(
        arena,
        plan.kills(wishes.seed, wishes.kill_every),
        plan.troubles(wishes.seed, wishes.trouble_every, wishes.longest),
        Takeovers(arena),
    )


def _burn(fire: Fire, load: Load, wishes: Wishes, say: Say) -> float:
    """How many seconds it burned: fewer than were asked for after Ctrl-C."""
    begun = said = time.monotonic()

    def goes_on() -> bool:
        nonlocal said
        now = time.monotonic()
        if now - said > 60:
            said = now
            say(f"{(now - begun) / 60:.0f} min: {fire.kills.total()} kills, {len(load.sent)} sent.")
        load.check()
        return now - begun < wishes.seconds and not interrupted()

    with noting_an_interrupt() as interrupted:
        say(f"Fire for {wishes.seconds:.0f} s; --seed {wishes.seed} repeats its plan.")
        fire.rage(goes_on)
        if interrupted():
            say("Stopped early: what was done is judged. Ctrl-C again ends without that.")
    return time.monotonic() - begun


def _come_to_rest(arena: Arena, load: Load, say: Say) -> float:
    """Seconds until all was done."""
    say("The fire is out. Waiting for what is under way.")
    begun = time.monotonic()
    load.stop(arena.tend, PATIENCE)
    arena.wait_ready(arena.seats)
    took = time.monotonic() - begun
    # What killed workers had in hand comes again in an hour; now, that is.
    client: Any = arena.broker

    def settled() -> bool:
        arena.tend()
        if tags := client.hkeys("unacked"):
            client.zadd("unacked_index", dict.fromkeys(tags, 1))
        return not tags

    try:
        until(settled, 30, "the broker to give out again what was never settled", 0.5)
    except ServerFailed as exc:
        # The checker says what is left.
        say(exc.message)
    return took


def _judge(arena: Arena, load: Load) -> Report:
    orders = [order for _, order in load.orders]
    acts = about(shop_acts(arena.shop("GET", "/admin/books")), orders)

    def report() -> Report:
        with arena.ask.session() as conn:
            return check(
                conn,
                arena.broker,
                sent=[*load.sent.values()],
                expected=load.expected(),
                acts=acts,
                effects=load.effects(),
                groups=arena.groups,
            )

    found = report()
    # A turn that has just ended still lets go.
    deadline = time.monotonic() + 10
    while not found.ok and time.monotonic() < deadline:
        time.sleep(0.5)
        found = report()
    return found


def _keep(arena: Arena, numbers: Numbers, evidence: Path) -> None:
    _keep_logs(arena, evidence)
    threads = sorted({f.thread for f in numbers.report.findings if f.thread})[:50]
    stored = {t: (arena.ask("chaos_about", thread_id=t) or [(None,)])[0][0] for t in threads}
    for name, content in (("report", numbers.as_dict()), ("threads", stored)):
        (evidence / f"{name}.json").write_text(json.dumps(content, indent=2, default=str) + "\n")


def _keep_logs(arena: Arena, evidence: Path) -> None:
    evidence.mkdir(parents=True, exist_ok=True)
    shutil.copytree(arena.stack.data_dir / "logs", evidence / "logs", dirs_exist_ok=True)


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except ServerFailed as exc:
        raise ChaosFailed(exc.message, "Run it again.") from exc
