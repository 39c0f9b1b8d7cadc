"""The checker can fail: without one safeguard a small chaos run reports what it is there for."""

from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from producers.chaos.findings import Report
from tests.chaos.raid import Raid
from tests.harness import ROOT, Broker, Database, Shop, write_graphs
from tests.worker_processes import Workers

MUTANTS = "tests.chaos.mutants"
WHOLE = "whole"
#: What is taken out of the worker's processes, and what the checker must then find.
IN_PYTHON = {
    "ledger": {"duplicate_effect", "unrecorded_effect"},
    "late_intent": {"duplicate_effect"},
    "lone_intent": {"duplicate_effect"},
    "end": {"inconsistent", "wrong_status", "missing_effect"},
    "sweeper": {"unfinished", "wrong_status", "missing_effect"},
}
FENCE = ("AND epoch = p_epoch AND CASE status WHEN 'running' THEN true END", "")
LOCK = "pg_try_advisory_lock(fleet.thread_lock(p_thread))"
#: What is taken out of the database: (function, right, wrong), statements; and what is found.
IN_SQL: dict[str, tuple[list[tuple[str, str, str]], str, set[str]]] = {
    # Each turn looks like an orphan, and a call under way is taken for one in doubt.
    "lock": (
        [("fleet.claim", f"NOT {LOCK}", "false"), ("fleet.claim_free", LOCK, "true")],
        "",
        {"unfinished", "wrong_status"},
    ),
    "fence": (
        [("fleet.barrier", *FENCE), ("fleet.finish", *FENCE)],
        "",
        {"forked"},
    ),
    "inbox": (
        [("fleet.accept", "IF NOT v_new THEN", "IF false THEN")],
        "ALTER TABLE fleet.messages DROP CONSTRAINT messages_thread_id_message_id_key",
        {"duplicate_message"},
    ),
}


@pytest.fixture
def fleet_settings(
    fleet_settings: dict[str, Any], database: Database, tmp_path: Path
) -> dict[str, Any]:
    graphs = write_graphs(
        tmp_path,
        refund="graphs.refund:graph",
        **{n: f"{ROOT}/tests/graphs/{n}.py:graph" for n in ("keyed", "lookup", "careful")},
    )
    database.register(graphs)
    quick = {"sweep_interval": 0.1, "election_interval": 0.1, "backoff_base": 0.1}
    return fleet_settings | {"graphs_file": graphs} | quick


@pytest.fixture
def raid(fleet: Fleet, database: Database, broker: Broker, shop: Shop, workers: Workers) -> Raid:
    return Raid(fleet, database, broker, shop, workers)


def judged(raid: Raid, mutant: str, patience: float = 0.0) -> Report:
    worker = raid.start(f"{MUTANTS}.{mutant}")
    raid.run()
    assert len(raid.workers.hits()) >= 3, "not every misfortune has come"
    return raid.judge(worker, patience)


def mutate(database: Database, function: str, right: str, wrong: str) -> None:
    """Put a fault into one SQL function of this test's database."""
    definition = database.value("SELECT pg_get_functiondef(%s::regproc)", function)
    assert right in definition, f"{function} has changed: {right!r} is not in it"
    database.fetch(definition.replace(right, wrong).replace("%", "%%"))


def test_with_everything_in_place_nothing_is_found(raid: Raid) -> None:
    """The misfortunes themselves are no faults."""
    report = judged(raid, WHOLE, patience=20)
    assert report.ok, report


@pytest.mark.parametrize("mutant", IN_PYTHON)
def test_what_a_worker_lacks_is_found(raid: Raid, mutant: str) -> None:
    """For what it is there for."""
    report = judged(raid, mutant)
    assert report.kinds() >= IN_PYTHON[mutant], report


@pytest.mark.parametrize("mutant", IN_SQL)
def test_what_the_database_lacks_is_found(raid: Raid, database: Database, mutant: str) -> None:
    """For what it is there for."""
    functions, statement, kinds = IN_SQL[mutant]
    for function in functions:
        mutate(database, *function)
    if statement:
        database.fetch(statement)
    report = judged(raid, WHOLE)
    assert report.kinds() >= kinds, report


def test_every_safeguard_is_taken_out_once() -> None:
    """No module of mutants is left unused."""
    modules = {file.stem for file in (ROOT / "tests" / "chaos" / "mutants").glob("*.py")}
    assert modules - {"__init__", WHOLE} == {*IN_PYTHON}
