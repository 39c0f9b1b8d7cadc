"""What `fleet up` does about processes that end: a clock of ours, real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.devservers import Stack
from infra.errors import ServerFailed
from producers.local.deaths import Watched
from producers.local.keeping import Kept
from producers.local.processes import Launcher, Process
from tests.harness import eventually


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with Stack(durable=False, postgres_url="unused", redis_url="unused") as stack:
        yield Launcher(stack, {}, Path("/"))


def dies(launcher: Launcher) -> Process:
    """One that has said why and ended."""
    process = launcher.launch("shop", ["/bin/sh", "-c", "echo no books; exit 3"])
    assert process.child.wait(5) == 3
    return process


def lives(launcher: Launcher) -> Process:
    return launcher.launch("shop", ["/bin/sh", "-c", "sleep 600"])


def test_what_ends_is_started_again_at_growing_intervals_and_given_up(launcher: Launcher) -> None:
    """Five ends within a minute are the last; the reason is in the error."""
    said: list[str] = []
    kept = Kept("shop", dies(launcher), lambda: dies(launcher), said.append, now=0)
    now = 0.0
    with pytest.raises(ServerFailed, match="5th time within 60 s") as caught:
        while now < 60:
            kept.look(now)
            now += 0.25
    assert "shop ended with exit code 3; its last words: no books." in caught.value.message
    assert "shop.log" in caught.value.hint and "the data is kept" in caught.value.hint
    assert [line.rpartition("again in ")[2] for line in said[::2]] == [
        "1 s.",
        "2 s.",
        "4 s.",
        "8 s.",
    ]
    assert said[1::2] == ["shop is started again."] * 4


def test_one_that_is_not_needed_is_left_out(launcher: Launcher) -> None:
    """The rest goes on without it."""
    said: list[str] = []
    kept = Kept("flower", dies(launcher), lambda: dies(launcher), said.append, now=0, needed=False)
    for quarter in range(400):
        kept.look(quarter / 4)
    assert "it is left out" in said[-1]


def test_a_start_that_fails_counts_as_an_end(launcher: Launcher) -> None:
    """With the error's own words."""

    def fails() -> Process:
        raise ServerFailed("No room.", "Make some.")

    said: list[str] = []
    kept = Kept("broker", dies(launcher), fails, said.append, now=0)
    with pytest.raises(ServerFailed, match=r"broker did not start: No room\. Make some\."):
        for quarter in range(240):
            kept.look(quarter / 4)


def test_ends_that_are_far_apart_are_never_too_many(launcher: Launcher) -> None:
    """And each is followed by the first pause again."""
    said: list[str] = []
    kept = Kept("shop", dies(launcher), lambda: dies(launcher), said.append, now=0)
    for number in range(1, 9):
        kept.look(number * 100.0)
        kept.look(number * 100.0 + 1)
    assert said[::2] == [said[0]] * 8 and said[0].endswith("again in 1 s.")


def test_a_death_is_told_with_its_last_words() -> None:
    """Of a server or of a process beside it; not of one that was killed on purpose."""
    with Stack(durable=False, postgres_url="unused") as stack:
        launcher = Launcher(stack, {}, Path("/"))
        processes = [lives(launcher)]
        watched = Watched(stack, lambda: processes)
        watched.require_all()
        processes[0].child.kill_group()
        eventually(lambda: processes[0].child.poll() is not None)
        with pytest.raises(ServerFailed, match="shop was ended by SIGKILL; its last words: it"):
            watched.require_all()
        processes.clear()
        watched.require_all()
        stack.servers[0].child.kill()
        eventually(lambda: stack.servers[0].child.poll() is not None)
        with pytest.raises(ServerFailed, match=r"Broker was ended by SIGKILL; .*Ready to accept"):
            watched.require_all()
