"""Who may run beside whom in one process."""

import threading

from workers.gate import Gate


def _never() -> None:
    raise AssertionError("nobody has to wait here")


def test_ordinary_turns_run_side_by_side() -> None:
    """Two threads are inside at the same time."""
    gate, meet = Gate(), threading.Barrier(2)

    def work() -> None:
        with gate.turn(False, _never):
            meet.wait(5)

    other = threading.Thread(target=work)
    other.start()
    with gate.turn(False, _never):
        meet.wait(5)
    other.join(5)
    assert not meet.broken


def test_one_alone_waits_for_the_others_and_goes_before_new_ones() -> None:
    """It enters when those inside have left; who comes later waits for it."""
    gate, order = Gate(), []
    inside, leave = threading.Event(), threading.Event()

    def ordinary(name: str) -> None:
        with gate.turn(False, lambda: None):
            order.append(name)
            inside.set()
            assert leave.wait(5)

    def alone() -> None:
        with gate.turn(True, lambda: None):
            order.append("alone")

    first = threading.Thread(target=ordinary, args=("first",))
    first.start()
    assert inside.wait(5)
    suspect = threading.Thread(target=alone)
    suspect.start()
    while not gate._waiting:
        threading.Event().wait(0.001)
    late = threading.Thread(target=ordinary, args=("late",))
    late.start()
    leave.set()
    for thread in (first, suspect, late):
        thread.join(5)
    assert order == ["first", "alone", "late"]


def test_an_error_leaves_the_gate_open() -> None:
    """A turn that raises counts as left."""
    gate = Gate()
    for alone in (True, False):
        try:
            with gate.turn(alone, _never):
                raise ValueError
        except ValueError:
            pass
    with gate.turn(True, _never):
        assert not gate._ordinary
