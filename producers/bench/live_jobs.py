"""What the chat pages of `fleet bench live` do; each gives what it has measured."""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import zip_longest
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from producers.bench.live_graph import written
from producers.bench.live_page import Page, opened
from producers.bench.live_transcript import Transcript
from producers.bench.percentiles import milliseconds

#: Handshakes under way at a time.
_AT_ONCE = 50
_GRAPH = "stream"
#: Seconds between two streams that begin: people do not all begin at once.
_APART = 0.03
#: Seconds for a turn of a fleet that is being killed.
_TURN_WITHIN = 120.0


class Told(Protocol):
    """Who has started us."""

    stopped: asyncio.Event

    def say(self, **what: Any) -> None: ...
    def token(self) -> None: ...


async def idle(driver: Told, url: str, sessions: int) -> dict[str, Any]:
    """So many sessions that are open and say nothing, until we are told to stop."""
    turns = asyncio.Semaphore(_AT_ONCE)
    sockets: list[ClientConnection] = []

    async def one(open_: AsyncExitStack) -> None:
        async with turns:
            socket, _ = await open_.enter_async_context(opened(url, graph=_GRAPH))
            sockets.append(socket)

    async with AsyncExitStack() as open_:
        begun = time.monotonic()
        await asyncio.gather(*(one(open_) for _ in range(sessions)))
        took = time.monotonic() - begun
        driver.say(ready=True)
        await driver.stopped.wait()
        kept = sum(socket.state is State.OPEN for socket in sockets)
    return {"sessions": sessions, "kept": kept, "opened_in_s": round(took, 1)}


class _Stamps:
    """When the words of one page were written, and how long each took to come."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.frames = 0

    def heard(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "token":
            now = time.monotonic()
            self.frames += 1
            self.seen += [(float(w), now - float(w)) for w in frame["text"].split()]


async def tokens(driver: Told, url: str, sessions: int, count: int, rate: float) -> dict[str, Any]:
    """All sessions stream at once; what counts is the time in which all of them do."""
    stamps = [_Stamps() for _ in range(sessions)]
    pages = [Page([url], _GRAPH, one.heard) for one in stamps]
    async with _open(pages), _late() as late:
        await asyncio.gather(*(_turn(page, f"stamps {count} {rate}") for page in pages))
    begin = max(one.seen[0][0] for one in stamps)
    end = min(one.seen[-1][0] for one in stamps)
    timed = [pair for one in stamps for pair in one.seen if begin <= pair[0] <= end]
    counted = [took for _, took in timed]
    found: dict[str, Any] = {
        "sessions": sessions,
        "tokens": sum(len(one.seen) for one in stamps),
        "frames": sum(one.frames for one in stamps),
        "together_s": round(max(0.0, end - begin), 2),
        "counted": len(counted),
        "lost": sum(count - len(one.seen) for one in stamps),
        "connections": sum(page.connections for page in pages),
        "client_late_ms": milliseconds(late),
    }
    if counted:
        found["tokens_per_s"] = round(len(counted) / (end - begin), 1)
        found |= milliseconds(counted)
        seconds = range(math.ceil(end - begin))
        each = [[took for at, took in timed if int(at - begin) == n] for n in seconds]
        found["p99_by_second"] = [milliseconds(one)["p99"] for one in each if one]
    return found


async def reconnect(
    driver: Told, url: str, sessions: int, times: int, missed: int
) -> dict[str, Any]:
    """Pages come back for the last so many events, one page after the other."""
    seqs: list[list[str]] = [[] for _ in range(sessions)]

    def noting(into: list[str]) -> Any:
        return lambda frame: into.append(frame["seq"]) if "seq" in frame else None

    pages = [Page([url], _GRAPH, noting(into)) for into in seqs]
    async with _open(pages):
        await asyncio.gather(*(_turn(page, f"words {missed + 40} 12 w") for page in pages))
    took: list[float] = []
    for _ in range(times):
        for page, seen in zip(pages, seqs, strict=True):
            begun = time.monotonic()
            init = {"session_id": page.session_id, "last_seq": seen[-missed - 1]}
            async with opened(url, **init) as (socket, _):
                batch = json.loads(await socket.recv())
                took.append(time.monotonic() - begun)
            came = [event["seq"] for event in batch.get("events", ())]
            if came != seen[-missed:]:
                raise RuntimeError(f"other events than were missed came: {str(batch)[:300]}")
    return {"missed": missed, "reconnects": len(took), **milliseconds(took)}


async def talk(
    driver: Told, urls: Sequence[str], sessions: int, count: int, rate: float
) -> dict[str, Any]:
    """Pages that talk turn after turn until we are told to stop, whatever is killed.

    Each must end with exactly what it shows without any fault, and so must a page that comes
    anew. `faults` has what was otherwise.
    """

    def heard(frame: dict[str, Any]) -> None:
        if frame["type"] == "token":
            driver.token()

    # Each begins at another gateway than the one before it.
    starts = [n % len(urls) for n in range(sessions)]
    pages = [Page([*urls[n:], *urls[:n]], _GRAPH, heard) for n in starts]
    async with _open(pages):
        driver.say(ready=True)
        said = await asyncio.gather(*(_talk(driver, page, count, rate) for page in pages))
    faults = [fault for page in pages for fault in page.transcript.faults]
    rebuilt: Counter[str] = Counter()
    for page, wanted in zip(pages, said, strict=True):
        rebuilt += page.transcript.rebuilt
        faults += differences("the page", page.transcript, wanted)
        faults += differences("a page that comes anew", await _anew(page, urls), wanted)
    return {
        "turns": sum(len(wanted) for wanted in said) // 2,
        "connections": sum(page.connections for page in pages),
        "rebuilt": dict(rebuilt),
        "faults": faults,
    }


async def _talk(driver: Told, page: Page, count: int, rate: float) -> list[tuple[str, str]]:
    """What was said, as it is without faults."""
    said: list[tuple[str, str]] = []
    while not driver.stopped.is_set():
        turn = f"t{len(said) // 2}"
        content = f"words {count} {rate} {turn}"
        await _turn(page, content)
        said += [("user", content), ("assistant", written(turn, count))]
    return said


async def _turn(page: Page, content: str) -> None:
    """Say it, and see the turn's end."""
    async with asyncio.timeout(_TURN_WITHIN):
        name = await page.say(content)
        await page.until(lambda: name in page.transcript.completed)


async def _anew(page: Page, urls: Sequence[str]) -> Transcript:
    """What somebody sees who opens the session with nothing."""
    found = Page(urls, _GRAPH)
    found.session_id = page.session_id
    async with _open([found]), asyncio.timeout(_TURN_WITHIN):
        await found.until(lambda: found.transcript.last is not None)
    return found.transcript


def differences(who: str, shown: Transcript, wanted: list[tuple[str, str]]) -> list[str]:
    """In words; none where all of it is shown, in its order, and nothing else."""
    if shown.texts() == wanted and not shown.partial:
        return []
    pairs = zip_longest(shown.texts(), wanted)
    first = next(((n, a, b) for n, (a, b) in enumerate(pairs) if a != b), None)
    return [f"{who} shows otherwise: {first}, being written: {shown.partial}"]


@asynccontextmanager
async def _open(pages: Sequence[Page]) -> AsyncIterator[None]:
    """All of them welcomed, and coming back whenever they are lost."""
    running = [asyncio.create_task(page.run()) for page in pages]
    try:
        await asyncio.gather(*(page.welcomed.wait() for page in pages))
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def _late() -> AsyncIterator[list[float]]:
    """How late this process itself is, which is part of what it measures, in seconds."""
    found: list[float] = []

    async def look() -> None:
        while True:
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            found.append(time.monotonic() - due)

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
