"""Kills at random during streams, and pages that must not show them in the end.

Each kill hits while a page is getting words: a slot's process or the whole worker that has a
turn under way, a gateway, or the broker, by SIGKILL. Who died is started again at once; the
next kill waits for the next word, not for that. At the end each page must show exactly what
it shows without any fault, and so must a page that opens the session anew.
"""

import os
import random
import signal
import time
from collections import Counter
from typing import Any

import psutil  # type: ignore[import-untyped]

from infra.devservers import Child
from producers.bench.live_rig import Gateway, LiveRig, Pages
from producers.bench.pairs import Say
from producers.bench.rig import BenchFailed
from producers.local.processes import slot_pid

#: What is killed, and how often each of it. A process that has to begin anew takes seconds.
KINDS = {"slot": 9, "gateway": 5, "broker": 4, "worker": 2}
_WORKERS, _SLOTS, _GATEWAYS = 2, 3, 2
#: So that what is lost goes on at once, and the next kill finds it under way.
SETTINGS = {"backoff_base": 0.1, "sweep_interval": 0.25, "election_interval": 0.1}
#: Pages, and what each is told in a turn: so many words, so many in a second.
_PAGES, _WORDS, _RATE = 4, 30, 40
#: Seconds: without a word of any page it stands still; after a word until the kill, at most.
_STILL_AFTER, _LATEST = 60.0, 0.4


class Targets:
    """What is to be killed, made whole again after each loss."""

    def __init__(self, rig: LiveRig) -> None:
        self._rig = rig
        self.gateways: list[Gateway] = rig.gateways(_GATEWAYS)
        self._workers: list[Child] = rig.workers(_WORKERS, _SLOTS)
        (self._broker,) = (s for s in rig.stack.servers if s.name == "broker")
        self._broker_child = self._broker.child

    def kill(self, kind: str) -> bool:
        """Whether there was one to be killed."""
        return bool(getattr(self, f"_kill_{kind}")())

    def ended_by_themselves(self) -> list[str]:
        """Workers and gateways that are gone though nobody killed them."""
        running = [*self._workers, *(one.child for one in self.gateways)]
        return [f"{child.name} ended by itself" for child in running if child.poll() is not None]

    def _kill_gateway(self) -> bool:
        ready = [one for one in self.gateways if one.ready()]
        if not ready:
            return False
        chosen = random.choice(ready)
        self._ended(chosen.child)
        chosen.start()
        return True

    def _kill_broker(self) -> bool:
        self._ended(self._broker_child)
        self._broker_child = self._broker.again()
        return True

    def _kill_slot(self) -> bool:
        slot, worker = self._busy()
        if slot is None or worker is None:
            return False
        os.kill(slot, signal.SIGKILL)
        return True

    def _kill_worker(self) -> bool:
        _, worker = self._busy()
        if worker is None:
            return False
        self._ended(worker)
        self._workers[self._workers.index(worker)] = self._rig.worker(_SLOTS)
        return True

    def _busy(self) -> tuple[int | None, Child | None]:
        """The process of a turn that is under way, and its worker; none where both are gone."""
        owner = self._rig.value("bench_busy_owner")
        slot = None if owner is None else slot_pid(owner)
        return slot, next((w for w in self._workers if slot in _below(w.pid)), None)

    def _ended(self, child: Child) -> None:
        child.kill_group()
        if child.wait(20) is None:
            raise BenchFailed(f"{child} did not end.")


def _below(pid: int) -> set[int]:
    try:
        return {process.pid for process in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def measure(rig: LiveRig, kills: int, say: Say) -> dict[str, Any]:
    """So many kills; `faults`: what pages were shown otherwise than without them."""
    targets = Targets(rig)
    urls = [one.url for one in targets.gateways]
    params = {"urls": urls, "sessions": _PAGES, "count": _WORDS, "rate": _RATE}
    done: Counter[str] = Counter()
    begun = time.monotonic()
    with Pages("talk", **params) as pages:
        pages.hears("ready", _STILL_AFTER)
        while done.total() < kills:
            pages.told("token")
            pages.hears("token", _STILL_AFTER)
            time.sleep(random.uniform(0, _LATEST))
            (kind,) = random.choices(list(KINDS), list(KINDS.values()))
            if targets.kill(kind):
                done[kind] += 1
                if done.total() % 20 == 0:
                    say(f"{done.total()} kills during streams: {dict(done)}")
        pages.told("stop")
        found: dict[str, Any] = pages.hears("result", 2 * _STILL_AFTER)
    found["faults"] += targets.ended_by_themselves()
    took = round(time.monotonic() - begun, 1)
    found |= {"kills": done.total(), "killed": dict(done), "seconds": took}
    return found | {"differences": len(found["faults"])}
