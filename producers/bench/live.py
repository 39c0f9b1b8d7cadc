"""What chat pages feel: memory of idle sessions, the way of a word, coming back, and kills.

Pages are in a process apart (`live_client`), so that what they cost is not the gateway's.
Each part has servers, gateways and workers of its own.
"""

import os
import time
from typing import Any

import psutil  # type: ignore[import-untyped]

from producers.bench import live_kills
from producers.bench.counts import cpu_seconds
from producers.bench.live_rig import LiveRig, Pages
from producers.bench.pairs import Say

#: Seconds for pages to begin, and to be done.
_BEGIN, _DONE = 120.0, 240.0
#: Seconds for which idle sessions are looked at.
_LOOK = 5.0
_RECONNECTS = {"sessions": 20, "times": 10, "missed": 50}
_MB = 1 << 20
#: Words in a second of each stream.
RATE = 20


def idle(sessions: int, say: Say) -> dict[str, Any]:
    """Memory and CPU of one gateway with sessions that are open and say nothing."""
    with LiveRig() as rig:
        (gateway,) = rig.gateways(1)
        process = psutil.Process(gateway.child.pid)
        before = process.memory_info().rss
        with Pages("idle", url=gateway.url, sessions=sessions) as pages:
            pages.hears("ready", _BEGIN)
            say(f"{sessions} sessions are open")
            cpu, begun = cpu_seconds([process.pid]), time.monotonic()
            time.sleep(_LOOK)
            share = (cpu_seconds([process.pid]) - cpu) / (time.monotonic() - begun)
            rss = process.memory_info().rss
            pages.told("stop")
            found = pages.hears("result", _DONE)
    return {
        **found,
        "rss_mb": round(rss / _MB, 1),
        "rss_before_mb": round(before / _MB, 1),
        "cpu_cores": round(share, 3),
    }


def tokens(sessions: int, seconds: int, workers: int, say: Say) -> dict[str, Any]:
    """From a model's word to the page, while all sessions stream."""
    # Batches of words are held in a process for all of its slots.
    slots = -(-sessions // workers)
    with LiveRig() as rig:
        (gateway,) = rig.gateways(1)
        started = rig.workers(workers, slots, "--pool", "threads")
        processes = {
            "gateway": [gateway.child.pid],
            "workers": [worker.pid for worker in started],
        }
        before = {kind: cpu_seconds(pids) for kind, pids in processes.items()}
        params = {"sessions": sessions, "count": seconds * RATE, "rate": RATE}
        with Pages("tokens", url=gateway.url, **params) as pages:
            found: dict[str, Any] = pages.hears("result", _DONE)
        used = {
            f"{kind}_cpu_s": round(cpu_seconds(pids) - before[kind], 2)
            for kind, pids in processes.items()
        }
    say(f"{found['counted']} words came while {sessions} sessions streamed")
    return found | used


def reconnect(say: Say) -> dict[str, Any]:
    """From the first packet of a page that comes back to the whole of what it missed."""
    with LiveRig() as rig:
        (gateway,) = rig.gateways(1)
        rig.workers(1, _RECONNECTS["sessions"], "--pool", "threads")
        with Pages("reconnect", url=gateway.url, **_RECONNECTS) as pages:
            found: dict[str, Any] = pages.hears("result", _DONE)
    say(f"{found['reconnects']} pages came back")
    return found


def kills(count: int, say: Say) -> dict[str, Any]:
    """See `live_kills`."""
    with LiveRig(**live_kills.SETTINGS) as rig:
        return live_kills.measure(rig, count, say)


def load_average() -> list[float]:
    """Of the machine now: numbers mean little where others use it."""
    return [round(value, 2) for value in os.getloadavg()]
