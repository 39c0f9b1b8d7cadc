"""The stand-in for declared effects: a provider that keeps books and honours request ids.

Loaded into the workers of a chaos run. An effect's function is not called (but with
``real``); the call is recorded, on disk before it is answered, and answered from the given
results or by the function's annotation, so the same request id has the same answer.
"""

from collections.abc import Mapping
from typing import Any

from graphs import position
from graphs.attempts import Act, Found
from graphs.running import Outside
from infra.masking import mask

from .record import Recorder, read
from .samples import NoSample, result_of, sample_of


class NoResult(RuntimeError):
    """An effect has no result given, and its annotation tells of none."""


class StandIn:
    """What graphs.running asks in place of the outside."""

    def __init__(self, recorder: Recorder, results: Mapping[str, Any], real: bool) -> None:
        self._recorder = recorder
        self._results = results
        self._real = real

    def __call__(self, outside: Outside) -> Any:
        """The call's result; with ``real`` what the function gives, perhaps awaitable."""
        if outside.do.act is Act.LOOK_UP:
            return outside.real() if self._real else self._look_up(outside)
        place = outside.call.position
        self._recorder.write(
            "effect",
            name=outside.spec.name,
            policy=outside.spec.policy,
            request_id=outside.call.request_id,
            args=mask(outside.arguments),
            node=node_of(place),
            place=position.nodes(place),
        )
        return outside.real() if self._real else self._answer(outside)

    def _look_up(self, outside: Outside) -> Found | None:
        """As a provider does that can be asked by request id."""
        wanted = outside.call.request_id
        sent = (f.get("request_id") == wanted for f in read(self._recorder.path))
        return Found(self._answer(outside)) if any(sent) else None

    def _answer(self, outside: Outside) -> Any:
        name = outside.spec.name
        try:
            if name in self._results:
                return result_of(outside.function, self._results[name])
            return sample_of(outside.function, name)
        except NoSample as exc:
            self._recorder.write("no_result", name=name, reason=str(exc))
            raise NoResult(f"effect {name} has no result to answer with: {exc}") from None


def node_of(place: position.Position) -> str:
    """The nodes from the root's down, without their steps."""
    return "|".join(part.rpartition("=")[0] for part in position.nodes(place).split("|"))
