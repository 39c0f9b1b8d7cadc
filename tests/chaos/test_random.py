"""Random fire on a fleet: kills and troubles by the plan of a seed, which is printed.

`CHAOS_SEED=17 pytest tests/chaos/test_random.py` repeats the plan of one that has failed;
`fleet chaos --minutes 30` is the same for longer.
"""

import os
import random
from itertools import islice
from pathlib import Path

import pytest

from producers.chaos import plan
from producers.chaos.load import STORIES, Story
from producers.chaos.soak import Wishes, soak
from tests.harness import ROOT, write_graphs

#: Seconds of fire: enough for about every kind of trouble once.
FIRE = 50.0
#: Beside the shipped one: a business effect that two threads want, and one that is looked up.
STRANGE = (
    Story(
        "keyed",
        "141.50",
        graph="keyed",
        notices=0,
        suffixes=("-a", "-b"),
        given=lambda order: {"order_id": order, "amount": "141.50"},
    ),
    Story("looked up", "141.50", graph="lookup", notices=0, given=lambda _: {"amount": "141.50"}),
)


@pytest.mark.timeout(240)
def test_whatever_strikes_at_random_nothing_is_lost_repeated_or_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checker finds no fault, and no worker that served has given up."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    graphs = write_graphs(
        tmp_path,
        refund="graphs.refund:graph",
        **{name: f"{ROOT}/tests/graphs/{name}.py:graph" for name in ("keyed", "lookup")},
    )
    wishes = Wishes(
        FIRE, seed, trouble_every=1.0, stories=(*STORIES, *STRANGE), graphs_file=graphs, longest=6.0
    )
    with capsys.disabled():
        print(f"\nCHAOS_SEED={seed}")
        found = soak(wishes, print, tmp_path / "evidence")
        found.show()
    assert found.ok, f"CHAOS_SEED={seed}\n{found.report}\n\nSee {tmp_path}/evidence"
    # A slow machine gets less done.
    assert set(found.kills) >= {"pool child", "worker"} and len(found.troubles) >= 6
    assert found.fell == []


def test_a_seed_repeats_its_plan() -> None:
    """Kills and troubles alike, and another seed has another one."""

    def drawn(seed: int) -> list[plan.Strike]:
        return [*islice(plan.kills(seed, 0.4), 60), *islice(plan.troubles(seed, 3.0), 30)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_four_kills_of_five_are_those_of_pool_processes() -> None:
    """The rest are whole workers, one by one, the leader, and all at the same time."""
    kinds = [strike.kind for strike in islice(plan.kills(1, 0.4), 500)]
    assert {kind: kinds.count(kind) for kind in plan.KILLS} == {
        "pool child": 400,
        "worker": 60,
        "leader": 30,
        "all workers": 10,
    }
