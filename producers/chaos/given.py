"""What a user gives to `fleet chaos`: inputs, answers, results. Checked before anything starts."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphs import reach
from graphs.effects import AsyncEffect, Effect
from graphs.questions import OUR_KINDS, is_kind
from graphs.registry import RegisteredGraph
from graphs.values import plain

from ..errors import ProducerError
from ..inputs import require_fit
from ..lines import opened
from ..messages import Start, built
from ..payloads import once_each, shown
from ..schemas import compiled
from ..status import Question
from .errors import ChaosUsage
from .samples import NoSample, result_of, sample_of


@dataclass(frozen=True, slots=True)
class Input:
    """One line of the inputs' file: the start of a thread, which each run makes anew in a
    tenant of its own."""

    line: int
    start: Start

    @property
    def key(self) -> str:
        return self.start.key


@dataclass(slots=True)
class Answers:
    """What questions are answered: in order, or in order by kind; the last one repeats."""

    given: list[Any] | dict[str, list[Any]] = field(default_factory=dict)

    def to(self, question: Question, asked: Counter[str]) -> Any:
        """The answer; ``asked``: how many questions of each kind came before in this run.

        Raises ChaosUsage, naming the question, where there is none.
        """
        if isinstance(self.given, list):
            answers, nth = self.given, asked.total()
        else:
            answers, nth = self.given.get(question.kind, []), asked[question.kind]
        if answers:
            return answers[min(nth, len(answers) - 1)]
        if question.kind == "approve":
            return "approved"
        if question.kind == "continue":
            return "continue"
        payload = shown(json.dumps(question.payload, ensure_ascii=False))
        hint = f'Give it with --answers FILE, for example {{"{question.kind}": ["yes"]}}.'
        if self.given:
            kinds = ", ".join(f"'{kind}'" for kind in self.given)
            hint += f" The file has answers to {kinds} only."
        raise ChaosUsage(
            f"The graph asks (kind {question.kind}), and no answer is given: {payload}.",
            hint,
            question=question.payload,
        )


def read_inputs(source: str, graph: RegisteredGraph) -> list[Input]:
    """The lines of the file, each as `fleet submit --from` takes it.

    Raises ChaosUsage, or what a door would raise of such a start, with the line in it.
    """
    validator = compiled(graph.input_schema) if graph.input_schema else None
    found = []
    defaults = {"graph": graph.name}
    with opened(source, defaults, "--inputs", spared="Nothing was run") as lines:
        for number, start in lines:
            where = f"{lines.name}, line {number}"
            if start["graph"] != graph.name:
                raise ChaosUsage(f"{where}: it is for graph '{start['graph']}'.", "Remove it.")
            with _in_line(where):
                made = built(Start, **start)
                require_fit(graph.name, validator, made.input)
            found.append(Input(number, made))
    if not found:
        raise ChaosUsage(f"{source} has no inputs.", 'Write {"key": "A1001", "input": {}} in it.')
    return found


@contextmanager
def _in_line(where: str) -> Iterator[None]:
    """Say where it was that a door would have refused it."""
    try:
        yield
    except ProducerError as error:
        error.message = f"{where}: {error.message}"
        error.hint = "Nothing was run; correct the line."
        raise


def read_answers(path: Path | None) -> Answers:
    """A list, or lists by kind: ``{"approve": ["rejected"], "value": [1, 2]}``."""
    if path is None:
        return Answers()
    found = _json(path, "--answers")
    if isinstance(found, list):
        return Answers(found)
    if not isinstance(found, dict) or not all(isinstance(v, list) for v in found.values()):
        raise ChaosUsage(
            f"--answers: {path} is neither a list nor an object of lists.",
            'Write ["approved"] or {"approve": ["approved"], "value": ["yes"]}.',
        )
    if unknown := sorted(kind for kind in found if not is_kind(kind)):
        raise ChaosUsage(
            f"--answers: {path} has the kind '{unknown[0]}', which no question has.",
            f"Kinds: {', '.join(sorted(OUR_KINDS))}, or a word of the graph's own.",
        )
    return Answers(found)


def read_results(path: Path | None, graph: RegisteredGraph) -> dict[str, Any]:
    """Results by effect name, JSON-plain: those given, and samples for the graph's others.

    Raises ChaosUsage for an effect of which neither is known.
    """
    results = _json(path, "--results") if path else {}
    if not isinstance(results, dict):
        raise ChaosUsage(
            f"--results: {path} is no object.", 'Write {"payments.refund": {"refund_id": "r1"}}.'
        )
    for name, effect in effects_of(graph).items():
        function = effect._function
        try:
            if name in results:
                result_of(function, results[name])
            else:
                results[name] = plain(sample_of(function, name))
        except NoSample as exc:
            raise no_result(name, str(exc)) from None
    return results


def no_result(name: str, reason: str) -> ChaosUsage:
    """The error for an effect that nothing is known to answer with."""
    return ChaosUsage(
        f"The effect {name} has no result to answer with: {reason}.",
        f'Give one with --results FILE: {{"{name}": …}}.',
        effect=name,
    )


def effects_of(graph: RegisteredGraph) -> Mapping[str, Effect[Any] | AsyncEffect[Any]]:
    """The effects that the graph's nodes lead to, by name."""
    nodes = [node for found in graph.all() for node in found.nodes.values()]
    return reach.named((Effect, AsyncEffect), *nodes)


def _json(path: Path, option: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once_each)
    except OSError as exc:
        reason = f"can't be read: {exc.strerror}"
    except UnicodeDecodeError:
        reason = "is not UTF-8"
    except (ValueError, RecursionError) as exc:
        reason = f"is not JSON: {exc}"
    raise ChaosUsage(f"{option}: {path} {reason}.", "Correct it.")
