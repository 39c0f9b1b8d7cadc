"""The state machine of tests/chaos/machine.py, and proof that it finds what it is for.

A run that fails prints the shortest steps that show it; another seed: CHAOS_SEED=7.
"""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from tests.chaos.machine import Mailbox
from tests.chaos.world import World
from tests.harness import Broker, Database

SEED = int(os.environ.get("CHAOS_SEED", "2"))
EXAMPLES = int(os.environ.get("CHAOS_EXAMPLES", "150"))


@pytest.fixture
def world(
    database: Database,
    broker: Broker,
    settings_env: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[World]:
    caplog.set_level(logging.CRITICAL, "fleet")
    made = World(database, broker, tmp_path, monkeypatch)
    yield made
    made.close()


def run(world: World, examples: int, *, shrink: bool = True, chance: int = SEED) -> None:
    """Raises AssertionError, with the steps as its notes, when something does not hold."""

    class Ours(Mailbox):
        pass

    Ours.world = world
    print(f"CHAOS_SEED={chance}")
    run_state_machine_as_test(
        seed(chance)(Ours),
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            database=None,
            phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet if not shrink else Verbosity.normal,
            report_multiple_bugs=False,
        ),
    )


#: More than hypothesis takes to find the shortest steps.
@pytest.mark.timeout(600)
def test_whatever_is_done_in_any_order_the_promises_hold(world: World) -> None:
    """Sent, sent again, answered, cancelled, retried, killed, overtaken, swept."""
    run(world, EXAMPLES)


def mutate(world: World, function: str, right: str, wrong: str) -> None:
    """Put a fault into one SQL function of this test's database."""
    ((definition,),) = world.rows("SELECT pg_get_functiondef(%s::regproc)", function)
    assert right in definition, f"{function} has changed: {right!r} is not in it"
    world.conn.execute(definition.replace(right, wrong))


#: A fault, the function that it is put into, and what the machine is to say.
FAULTS = {
    "other payload taken for the same": (
        [("fleet.accept", "msg.payload_hash = m->>'payload_hash' AND ", "")],
        "has another payload now",
    ),
    "answer to a question that is closed": (
        [("fleet.take_answer", "      AND status = 'open'\n", "")],
        "was answered",
    ),
    "no fence": (
        [
            (
                f"fleet.{name}",
                "AND epoch = p_epoch AND CASE status WHEN 'running' THEN true END",
                "",
            )
            for name in ("barrier", "finish")
        ],
        r"follow one|Counter|paid|was \w+ and is",
    ),
    "the newest message first": (
        [("fleet.claim_row", "ORDER BY m.seq LIMIT 1", "ORDER BY m.seq DESC LIMIT 1")],
        r"paid|start",
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_finds_a_fault(world: World, fault: str) -> None:
    """Each is found soon, and for what it is."""
    mutations, said = FAULTS[fault]
    for mutation in mutations:
        mutate(world, *mutation)
    with pytest.raises((AssertionError, FlakyFailure)) as caught:
        # What one seed leads to changes with the code that hypothesis looks at.
        for chance in range(SEED, SEED + 5):
            run(world, 200, shrink=False, chance=chance)
    # What two sessions do to each other is not the same in each run.
    found = getattr(caught.value, "exceptions", [caught.value])
    assert any(re.search(said, str(one)) for one in found), found
