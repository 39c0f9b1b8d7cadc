"""What is made of the facts of a trial."""

from typing import Any

from producers.chaos.given import Input
from producers.chaos.kills import Kill
from producers.chaos.trial import Run
from producers.chaos.verdict import judge
from producers.messages import Start

GIVEN = Input(1, Start(graph="g", key="A1", message_id="m", input={}))
KILL = Kill("turn.superstep", "/1/=1")


def run(name: str, *, kill: bool = False, status: str = "done", **state: Any) -> Run:
    return Run(name, GIVEN, name, name, KILL if kill else None, status, state=state)


def fact(thread: str, what: str, epoch: int = 1, **fields: Any) -> dict[str, Any]:
    fields = {"node": "pay", "place": "pay=1", **fields}
    return {"what": what, "at": 0.0, "pid": 1, "thread": thread, "epoch": epoch, "seq": 1, **fields}


def effect(thread: str, request_id: str, policy: str = "resend") -> dict[str, Any]:
    return fact(thread, "effect", name="e", request_id=request_id, policy=policy)


def kinds(killed: Run, facts: list[dict[str, Any]], **state: Any) -> list[tuple[str, str]]:
    base = [run("a", **{"x": 1, **state}), run("b", **{"x": 1, **state, "at": 2})]
    found = judge(base, [killed], [fact("a", "node"), *facts])
    return [(f.kind, f.node) for f in found.faults]


def test_another_final_state_is_a_fault_of_the_node_that_was_killed() -> None:
    """Of the last one that the attempt without an end had begun."""
    facts = [fact("k", "attempt"), fact("k", "node"), fact("k", "attempt", 2), fact("k", "end", 2)]
    assert kinds(run("k", kill=True, x=2), facts) == [("differs", "pay")]


def test_what_differs_without_a_kill_is_not_compared() -> None:
    """The second run without faults had another value there."""
    assert kinds(run("k", kill=True, x=1, at=3), [], at=1) == []


def test_only_what_differs_itself_is_left_out() -> None:
    """Not its neighbour whose name, or number in a list, only begins alike."""
    killed = run("k", kill=True, x=1, at=3, at_last=9)
    assert kinds(killed, [], at=1, at_last=8) == [("differs", "")]


def test_an_effect_under_a_second_request_id_is_repeated() -> None:
    """The provider takes it for another one."""
    facts = [effect("a", "r1"), effect("k", "r2"), effect("k", "r3")]
    assert kinds(run("k", kill=True, x=1), facts) == [("repeats", "pay")]


def test_an_effect_under_the_same_id_is_repeated_where_ids_are_not_honoured() -> None:
    """With resend they are; park and lookup have to find out first."""
    for policy, expected in (("resend", []), ("park", [("repeats", "pay")])):
        facts = [effect("a", "r1", policy), effect("k", "r2", policy), effect("k", "r2", policy)]
        assert kinds(run("k", kill=True, x=1), facts) == expected


def test_an_effect_that_was_not_made_is_a_difference() -> None:
    """The run ended, and the outside has heard nothing."""
    assert kinds(run("k", kill=True, x=1), [effect("a", "r1")]) == [("differs", "pay")]


def test_a_run_that_does_not_end_is_a_fault() -> None:
    """Of the node at which it stands."""
    facts = [fact("k", "attempt"), fact("k", "node")]
    found = kinds(run("k", kill=True, status="failed"), facts)
    assert found == [("never_ends", "pay")]
