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
        eventually(lambda: gate._alone is not None)
        with gate.ordinary() as late:
            assert not late
        assert not running.is_set()
    assert running.wait(5)
    with gate.ordinary() as late:
        assert not late
    leave.set()
    thread.join(5)
    assert gate.wait()


def test_a_second_one_is_not_kept_in_line() -> None:
    """While one is alone, or waits to be, the other is told so at once, and may come again."""
    gate, running, leave = Gate(), threading.Event(), threading.Event()

    def suspect() -> None:
        with gate.alone(lambda: None) as entered:
            assert entered
            running.set()
            assert leave.wait(5)

    thread = threading.Thread(target=suspect)
    with gate.ordinary():
        thread.start()
        eventually(lambda: gate._alone is not None)
        with gate.alone(lambda: None) as waiting:
            assert not waiting
    assert running.wait(5)
    with gate.alone(lambda: None) as beside:
        assert not beside
    leave.set()
    thread.join(5)
    with gate.alone(lambda: None) as after:
        assert after


def test_who_waits_to_be_alone_asks_whether_it_still_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.gate._PATIENCE", 0.02)
    gate, asked = Gate(), threading.Event()

    def lost() -> None:
        asked.set()
        raise RuntimeError

    def suspect() -> None:
        with pytest.raises(RuntimeError), gate.alone(lost):
            raise AssertionError

    thread = threading.Thread(target=suspect)
    with gate.ordinary():
        thread.start()
        assert asked.wait(5)
        thread.join(5)
    assert gate.wait()


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
