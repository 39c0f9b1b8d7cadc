"""Who may run beside whom in one process."""

import threading

import pytest

from tests.harness import eventually
from workers.gate import Gate


def test_ordinary_turns_run_side_by_side() -> None:
    """Both enter at once."""
    gate = Gate()
    with gate.ordinary() as one, gate.ordinary() as two:
        assert one and two


def test_one_alone_waits_for_those_inside_and_keeps_new_ones_out() -> None:
    """It runs when the last ordinary turn has left; nobody enters meanwhile."""
    gate, running, leave = Gate(), threading.Event(), threading.Event()

    def suspect() -> None:
        with gate.alone(lambda: None):
            running.set()
            assert leave.wait(5)

    thread = threading.Thread(target=suspect)
    with gate.ordinary() as inside:
        assert inside
        thread.start()
        eventually(lambda: gate._alone)
        with gate.ordinary() as late:
            assert not late
        assert not running.is_set()
    assert running.wait(5)
    with gate.ordinary() as late:
        assert not late
    leave.set()
    thread.join(5)
    assert gate.wait()


def test_two_alone_go_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is inside the other waits; then it enters."""
    monkeypatch.setattr("workers.gate._PATIENCE", 0.02)
    gate, leave, waits = Gate(), threading.Event(), threading.Event()
    inside: list[str] = []

    def suspect(name: str) -> None:
        with gate.alone(waits.set):
            inside.append(name)
            assert leave.wait(5)

    threads = [threading.Thread(target=suspect, args=(name,)) for name in ("one", "other")]
    threads[0].start()
    assert eventually(lambda: inside == ["one"])
    threads[1].start()
    assert waits.wait(5) and inside == ["one"]
    leave.set()
    for thread in threads:
        thread.join(5)
    assert inside == ["one", "other"] and gate.wait()


def test_an_error_leaves_the_gate_open() -> None:
    """A turn that raises counts as left."""
    gate = Gate()
    for way in (gate.alone(lambda: None), gate.ordinary()):
        try:
            with way:
                raise ValueError
        except ValueError:
            pass
    with gate.ordinary() as entered:
        assert entered
