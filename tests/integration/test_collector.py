"""What the metrics page of the worker that leads reads in Postgres when it is asked."""

import contextlib
from typing import get_args

import pytest

from infra.settings import get_settings
from producers.gateway.session_book import State
from tests.harness import Database
from workers.metrics import FleetCollector

#: So many sessions of each state: another number for each.
SESSIONS = {state: float(n) for n, state in enumerate(get_args(State), start=1)}

pytestmark = pytest.mark.usefixtures("settings_env")


def samples(leads: bool = True) -> dict[tuple[str, ...], float]:
    """By name and labels."""
    collector = FleetCollector(get_settings(), lambda: leads)
    with contextlib.closing(collector):
        found = list(collector.collect())
    return {(s.name, *s.labels.values()): s.value for family in found for s in family.samples}


def fill(database: Database) -> None:
    database.fetch(
        """INSERT INTO fleet.sessions
            (session_id, tenant, user_id, graph, thread_id, state, created_at, last_seen_at)
        SELECT state || n, '', 'u_42', 'refund', format('refund:%%s%%s', state, n), state,
            fleet.now(), fleet.now()
        FROM unnest(%s::text[], %s::integer[]) AS s (state, most), generate_series(1, most) AS n""",
        list(SESSIONS),
        [int(n) for n in SESSIONS.values()],
    )


def test_sessions_are_counted_by_their_state(database: Database) -> None:
    """Each state is a sample; no session, no sample."""
    assert not [name for name, *_ in samples() if name == "fleet_sessions"]
    fill(database)
    counted = {labels[0]: n for (name, *labels), n in samples().items() if name == "fleet_sessions"}
    assert counted == SESSIONS


def test_only_the_leader_reads_them(database: Database) -> None:
    """The fleet's numbers are on one page."""
    fill(database)
    assert samples(leads=False) == {("fleet_sweeper_leader",): 0.0}
    assert samples()["fleet_sweeper_leader",] == 1.0
