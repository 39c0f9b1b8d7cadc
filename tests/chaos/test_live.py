"""Gateways, workers and the broker are killed while chat pages get words: no page shows it in
the end. LIVE_KILLS=200 makes it as many; `fleet bench live --only kills` does the same.
"""

import os

import pytest

from producers.bench import live
from tests.chaos.test_numbers import Say, say

__all__ = ["say"]
KILLS = int(os.environ.get("LIVE_KILLS", "24"))


@pytest.mark.timeout(120 + 10 * KILLS)
def test_kills_during_streams_change_no_transcript(say: Say) -> None:
    """Each page shows what it shows without them, and so does one that opens the session anew;
    on the way nothing comes twice, out of order, or stays beside what has replaced it. No
    worker and no gateway ends for the loss of another."""
    found = live.kills(KILLS, say)
    say(f"{found['killed']} in {found['seconds']} s, {found['turns']} turns, {found['rebuilt']}")
    assert found["faults"] == []
    assert found["kills"] == KILLS and found["turns"] > 0
