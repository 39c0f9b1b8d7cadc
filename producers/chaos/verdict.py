"""The verdict on a trial: what the killed runs did that those without faults did not.

Kinds of faults, per node:

``repeats``       a call that no ledger knows was made in more attempts than without a kill,
                  or again with the answer to its node's question; or an effect was sent
                  under a second request id
``loses_answer``  a question was asked again after it had been answered
``differs``       the state, or the effects made, are others than without a kill
``never_ends``    the run failed, was quarantined, or stands still
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .record import Fact
from .trial import Run

KINDS = ("repeats", "loses_answer", "differs", "never_ends")


@dataclass(slots=True)
class Fault:
    """One fault of one node. where: file:line, "" if it has none. runs: the killed runs
    that show it; empty where it needs no kill. times: how often, at most, in one run."""

    kind: str
    node: str
    what: str
    where: str = ""
    times: int = 0
    runs: list[str] = field(default_factory=list)
    without_kill: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """nodes: those that ran, in order. attacked: those of runs that were killed too."""

    nodes: list[str]
    faults: list[Fault]
    notes: list[str]
    attacked: frozenset[str]

    @property
    def safe(self) -> bool:
        return not self.faults

    def of(self, node: str) -> list[Fault]:
        """The faults of one node."""
        return [fault for fault in self.faults if fault.node == node]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that no ledger knows, as it is told apart within a run."""

    node: str
    place: str
    site: str
    target: str


def judge(
    baseline: Sequence[Run],
    killed: Iterable[Run],
    facts: Iterable[Fact],
    harmless: Collection[str] = (),
) -> Verdict:
    """Compare; ``harmless``: hosts at which a repeated call does no harm."""
    seen: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        seen[fact.get("thread", "")].append(fact)
    judged = _Judge(seen, harmless)
    pairs = {a.input.line: (a, b) for a, b in zip(baseline[::2], baseline[1::2], strict=True)}
    for a, b in pairs.values():
        judged.without_kill(a, b)
    attacks = [*killed]
    for run in attacks:
        judged.killed(run, *pairs[run.input.line])
    nodes = _nodes(baseline, seen)
    for fault in judged.faults.values():
        nodes.setdefault(fault.node, None)
    attacked = frozenset(_nodes(attacks, seen))
    return Verdict([*nodes], [*judged.faults.values()], [*judged.notes], attacked)


def _nodes(runs: Iterable[Run], seen: Mapping[str, list[Fact]]) -> dict[str, None]:
    """Those that ran, in order."""
    facts = (fact for run in runs for fact in seen.get(run.thread_id, ()))
    nodes = (fact["node"] for fact in facts if fact["what"] == "node")
    return dict.fromkeys(node for node in nodes if node != "__start__")


class _Judge:
    def __init__(self, seen: Mapping[str, list[Fact]], harmless: Collection[str]) -> None:
        self._seen = seen
        self._harmless = harmless
        self.faults: dict[tuple[str, str, str, str], Fault] = {}
        self.notes: dict[str, None] = {}

    def without_kill(self, a: Run, b: Run) -> None:
        """What goes wrong by itself."""
        if a.status != "done":
            node = self._last_node(a)
            self._fault("never_ends", node, f"without a kill: {a.status}: {a.error}")
        for call, (epochs, path) in self._calls(a).items():
            if len(epochs) > 1:
                self._repeats(call, path, len(epochs))
        if volatile := _different(a, b):
            said = f"not compared, as it differs without a kill too: {_listed(volatile)}"
            self.notes[said] = None

    def killed(self, run: Run, a: Run, b: Run) -> None:
        """One killed run against the two of the same input without a kill."""
        for name in run.resolved:
            said = f"a person had to say whether effect {name} happened (on_doubt)"
            self.notes[said] = None
        self._repeated_calls(run, a, b)
        self._repeated_effects(run, a)
        lost = self._lost_answers(run, a)
        if run.status != a.status:
            node = self._last_node(run)
            self._fault("never_ends", node, f"{run.status}: {run.error}", run=run)
        elif not lost:
            self._differences(run, a, b)

    def _repeated_calls(self, run: Run, a: Run, b: Run) -> None:
        usual_a, usual_b = self._calls(a), self._calls(b)
        for call, (epochs, path) in self._calls(run).items():
            usually = max(len(u[call][0]) if call in u else 1 for u in (usual_a, usual_b))
            if len(epochs) > usually:
                self._repeats(call, path, len(epochs), run)

    def _repeats(self, call: _Call, path: str, times: int, run: Run | None = None) -> None:
        host = call.target.split(" ")[-1]
        if {host, host.partition(":")[0]} & set(self._harmless):
            self.notes[f"repeated, and harmless as you say: {call.target} of {call.node}"] = None
            return
        fault = self._fault("repeats", call.node, call.target + path, call.site, run)
        fault.times = max(fault.times, times)

    def _repeated_effects(self, run: Run, a: Run) -> None:
        usual, found = self._effects(a), self._effects(run)
        for (name, node, _), ids in found.items():
            if len(ids) > max(1, len(usual.get((name, node, _), ()))):
                what = f"effect {name}, under {len(ids)} request ids"
                self._fault("repeats", node, what, run=run).times = len(ids)
            elif any(n > 1 and policy != "resend" for (_, policy), n in ids.items()):
                self._fault("repeats", node, f"effect {name}, under one id", run=run)
        if run.status == "done":
            for name, node, _ in usual.keys() - found.keys():
                self._fault("differs", node, f"effect {name} was not made", run=run)

    def _lost_answers(self, run: Run, a: Run) -> bool:
        if len(run.questions) <= len(a.questions):
            return False
        extra = _payloads(run.questions) - _payloads(a.questions)
        payload = next(iter(extra), json.dumps(run.questions[-1]["payload"], sort_keys=True))
        first, again = self._asking(a, payload), self._asking(run, payload, last=True)
        node = first or again
        by = f", by {again}" if again and again != node else ""
        self._fault("loses_answer", node, f"its answered question is asked again{by}", run=run)
        return True

    def _differences(self, run: Run, a: Run, b: Run) -> None:
        volatile = _different(a, b)
        if paths := {p for p in _different(a, run) if not any(_within(p, v) for v in volatile)}:
            what = f"the final state is another one at {_listed(paths)}"
            self._fault("differs", self._killed_node(run), what, run=run)

    # Looking things up

    def _fault(
        self, kind: str, node: str, what: str, where: str = "", run: Run | None = None
    ) -> Fault:
        fault = self.faults.setdefault((kind, node, what, where), Fault(kind, node, what, where))
        if run is None:
            fault.without_kill = True
        elif run.name not in fault.runs:
            fault.runs.append(run.name)
        return fault

    def _calls(self, run: Run) -> dict[_Call, tuple[set[int], str]]:
        """The attempts that made each, and its path at the first."""
        found: dict[_Call, tuple[set[int], str]] = {}
        for f in self._facts(run, "call"):
            call = _Call(f["node"], f["place"], f["site"], f["target"])
            found.setdefault(call, (set(), f["path"]))[0].add(f["epoch"])
        return found

    def _effects(self, run: Run) -> dict[tuple[str, str, str], Counter[tuple[str, str]]]:
        found: dict[tuple[str, str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        for f in self._facts(run, "effect"):
            found[f["name"], f["node"], f["place"]][f["request_id"], f["policy"]] += 1
        return found

    def _asking(self, run: Run, payload: str, last: bool = False) -> str:
        """The node that asked this, first or last; the innermost of nested ones is first."""
        asked = [
            f["node"]
            for f in self._facts(run, "asked")
            if payload in (json.dumps(p, sort_keys=True) for p in f["payloads"])
        ]
        return asked[-1 if last else 0] if asked else ""

    def _last_node(self, run: Run) -> str:
        nodes = [f["node"] for f in self._facts(run, "node") if f["node"] != "__start__"]
        return nodes[-1] if nodes else ""

    def _killed_node(self, run: Run) -> str:
        """The last node of the first attempt that did not end in an orderly way."""
        ended = {f["epoch"] for f in self._facts(run, "end")}
        for attempt in self._facts(run, "attempt"):
            if attempt["epoch"] not in ended:
                nodes = [
                    f["node"]
                    for f in self._facts(run, "node")
                    if f["epoch"] == attempt["epoch"] and f["node"] != "__start__"
                ]
                return nodes[-1] if nodes else self._last_node(run)
        return self._last_node(run)

    def _facts(self, run: Run, what: str) -> list[Fact]:
        return [f for f in self._seen.get(run.thread_id, []) if f["what"] == what]


def _payloads(questions: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(q["payload"], sort_keys=True) for q in questions)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a state, by their path."""
    if isinstance(value, dict) and value:
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and value:
        items = enumerate(value)
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for name, inner in items:
        found |= _flat(inner, f"{path}.{name}" if path else str(name))
    return found


def _different(a: Run, b: Run) -> set[str]:
    """The paths at which the states of two runs are not the same."""
    one, other, missing = _flat(a.state), _flat(b.state), object()
    paths = one.keys() | other.keys()
    return {p for p in paths if one.get(p, missing) != other.get(p, missing)}


def _within(path: str, whole: str) -> bool:
    """Whether a path is the other one or leads on from it."""
    return whole in ("", path) or path.startswith(f"{whole}.")


def _listed(paths: Collection[str]) -> str:
    shown = sorted(paths)[:3]
    return ", ".join(shown) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
