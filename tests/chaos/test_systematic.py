"""Every failpoint at every place, at the first and at the second attempt, of every story.

One fleet of two workers with two processes each; each order dies at exactly its own place,
all at the same time. The places are found by telling each story once without faults.
`CHAOS_ONLY="approved.*turn.superstep" pytest tests/chaos` takes some cases only.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.devservers import Stack
from tests.acceptance.standing import standing
from tests.chaos.attack import Attack
from tests.chaos.scenarios import (
    NOTIFYING,
    POINTS,
    PROCESS,
    SENDING,
    STORIES,
    SWEEPING,
    Case,
    arms,
    places,
    sendings,
    swept,
)
from tests.harness import ROOT, Databases, Shop, write_graphs

#: Orders beside them that are not attacked, enough for a task to have done its share of turns.
INNOCENT = 16
#: Where orders die for whom the sweep fails too.
SWEPT = ("claim.after_lock", "turn.before_commit", "turn.superstep")
SETTINGS = {
    "max_crashes": 20,
    "sweep_interval": 0.1,
    "election_interval": 0.1,
    "turns_per_task": 1,
    "backoff_base": 0.1,
}


@pytest.fixture
def attack(databases: Databases, stack: Stack, shop: Shop, tmp_path: Path) -> Iterator[Attack]:
    """The fleet, without workers yet."""
    graphs = write_graphs(
        tmp_path,
        refund="graphs.refund:graph",
        **{name: f"{ROOT}/tests/graphs/{name}.py:graph" for name in ("keyed", "park", "lookup")},
    )
    with standing(databases, stack, shop, tmp_path, **SETTINGS) as it:
        it.database.register(graphs)
        made = Attack(it, tmp_path, graphs)
        yield made
        made.close()


def tell(attack: Attack) -> tuple[dict[str, str], dict[str, set[tuple[str, str]]]]:
    """Tell each story once: (its order, the places that it met), by its name."""
    told = [Case(story, attack.it.shop.new_order(story.amount), None) for story in STORIES.values()]
    spec = [f"{point}@=note" for point in POINTS]
    spec += [arm.entry(case.order) for case in told for arm in case.arms()]
    (worker,) = attack.start(1, spec)
    attack.begin(told)
    attack.until_done(60)
    worker.terminate()
    hits = attack.acted()
    orders = {case.story.name: case.order for case in told}
    return orders, {c.story.name: places(hits, c.story, c.order) for c in told}


def made_cases(attack: Attack, found: Mapping[str, set[tuple[str, str]]]) -> list[Case]:
    """An order for each place, and for each sender that is to die."""
    only = re.compile(os.environ.get("CHAOS_ONLY", ""))
    cases: list[Case] = []

    def add(**fields: Any) -> None:
        case = Case(order=attack.it.shop.new_order(fields["story"].amount), **fields)
        if only.search(str(case)):
            cases.append(case)

    for story, arm in arms(found):
        add(story=story, arm=arm)
    for story in STORIES.values():
        for message, arm in sendings(story):
            add(story=story, arm=arm, sending=message)
    cases += [case for case in innocent(attack) if only.search(str(case))]
    # The sweep looks for every order that has died: for some of each story it fails.
    failed: Counter[str] = Counter()
    for n, case in enumerate(cases):
        if case.arm and case.arm.point in SWEPT and failed[case.story.name] < len(SWEPT):
            failed[case.story.name] += 1
            cases[n] = swept(case, 1 + failed[case.story.name] % 2)
    return cases


def innocent(attack: Attack) -> list[Case]:
    """Orders that are not attacked."""
    story = STORIES["slowly"]
    return [Case(story, attack.it.shop.new_order(story.amount), None) for _ in range(INNOCENT)]


@pytest.mark.timeout(600)
def test_whatever_dies_where_nothing_is_lost_repeated_or_left(
    attack: Attack, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checker finds no fault, and every point that a story can meet has acted."""
    told, found = tell(attack)
    states = attack.states()
    cases = made_cases(attack, found)
    spec = [arm.entry(case.order) for case in cases if not case.sending for arm in case.arms()]
    spec += [arm.entry(c.order) for c in cases if c.sending for arm in c.story.first]
    spec += [f"{point}=kill:::2" for point in PROCESS if point not in (*SWEEPING, "sweep.elected")]
    spec += [f"{point}=kill" for point in (*SWEEPING, "sweep.elected")]
    attack.arm_senders([c.arm.entry(c.order) for c in cases if c.sending and c.arm])
    with capsys.disabled():
        print(f"\n{len(cases)} orders, {len(spec)} failpoints in {attack.folder}/failpoints")
    attack.start(2, spec)
    attack.begin(cases)
    lose_processes(attack)
    attack.until_done(400)
    if not attack.acted()["drain.before_hand_over"]:
        # No task has lived for long enough. Nobody else dies now.
        attack.begin(innocent(attack))
        attack.until_done(60)
    report = attack.judge(told, states)
    report.write(attack.folder / "report.json")
    assert report.ok, f"{report}\n\nThe failpoints: {attack.folder}/failpoints"
    assert missed(cases, attack.acted()) == []


def lose_processes(attack: Attack) -> None:
    """While it goes on: processes that die as they begin or between two turns, and workers
    whose sweep dies with them, the leader and the one after it."""
    for point in ("slot.before_connect", "slot.after_connect", "claim.before_next"):
        attack.let_loose(point, 2)
    attack.let_loose("drain.before_hand_over", 2)
    for point in ("events.before_publish", "events.after_publish"):
        attack.let_loose(point, 2)
    for points in (["sweep.before_wake"], ["sweep.elected", "sweep.after_wake"]):
        attack.lose_workers(points)


def missed(cases: list[Case], acted: Counter[str]) -> list[str]:
    """What was armed, can be met, and has not acted as often as it should."""
    found = [
        f"{case}: {arm.at(case.order)} acted {acted[arm.at(case.order)]} times, not {arm.times}"
        for case in cases
        for arm in case.must()
        if acted[arm.at(case.order)] != arm.times
    ]
    # Whoever gets to an order first takes it over, so that the sweep need not wake for it.
    for story in {case.story.name for case in cases if case.also}:
        for point in SWEEPING:
            names = [
                arm.at(case.order)
                for case in cases
                if case.story.name == story
                for arm in case.also
                if arm.point == point
            ]
            if not any(acted[name] for name in names):
                found.append(f"{story}: {point} never acted")
    found += [f"{point} never acted" for point in PROCESS if not acted[point]]
    return found


def test_every_failpoint_is_attacked() -> None:
    """None that stands in the source is left out."""
    from tests.unit.test_reliability_page import in_the_source

    assert {*POINTS, *SENDING, *PROCESS, *NOTIFYING} == in_the_source()
