"""The stories that are attacked at every step, and the places at which each is.

A story is told first without faults, to learn its places; then once more for each place, as
an order of its own whose process dies there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from producers.chaos.books import Expected, like
from tests.acceptance.standing import ABOVE, BELOW, INPUT

#: Stands for the order's id in a place.
ORDER = "<order>"


@dataclass(frozen=True, slots=True)
class Arm:
    """A failpoint at a place of one order, and what it does there, how often."""

    point: str
    place: str
    action: str = "kill"
    times: int = 1

    def at(self, order: str) -> str:
        """Its name in the log."""
        return f"{self.point}@{quote(self.place.replace(ORDER, order), safe='')}"

    def entry(self, order: str) -> str:
        return f"{self.at(order)}={self.action}:::{self.times}"


@dataclass(frozen=True)
class Story:
    """One way of an order. ``answer``: to its question. ``suffixes``: one thread each, the
    next begins when the one before is done. ``attacked``: the thread that is, by number.
    ``first``: where it dies in any case, before what is attacked. ``slow``: seconds that the
    shop takes to find the order."""

    name: str
    graph: str
    amount: str = BELOW
    answer: str | None = None
    suffixes: tuple[str, ...] = ("",)
    attacked: int = 0
    first: tuple[Arm, ...] = ()
    slow: float = 0.0
    #: Refunds that the shop is to have made, and notices sent.
    refunds: int = 1
    notices: int = 1
    #: A story whose places are not attacked once more here.
    base: str | None = None
    #: The number of the message from which on it is attacked; those before are another's.
    since: int = 1

    def thread(self, order: str, number: int = 0) -> str:
        return f"{self.graph}:{order}{self.suffixes[number]}"

    def input(self, order: str) -> dict[str, Any]:
        if self.graph == "refund":
            return dict(INPUT)
        found = {"amount": self.amount}
        return {**found, "order_id": order} if self.graph == "keyed" else found

    @property
    def honours_no_keys(self) -> bool:
        """The shop acts again for a request id that it knows."""
        return self.graph in ("park", "lookup")

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """What is sent to the attacked thread, in order, by the kind of message."""
        words = ["start", *(["answer"] if self.answer else [])]
        return (*words, "resolve") if self.name == "parked in doubt" else tuple(words)


def _call(graph: str, point: str) -> Arm:
    return Arm(f"effect.{point}", f"{graph}:{ORDER}/1/pay=1/{graph}.refund.0")


_TWO = ("-a", "-b")

STORIES = {
    story.name: story
    for story in (
        Story("below the limit", "refund"),
        Story("slowly", "refund", slow=0.4, base="below the limit"),
        Story("approved", "refund", ABOVE, "approved"),
        Story("rejected", "refund", ABOVE, "rejected", refunds=0, since=2),
        Story("keyed", "keyed", suffixes=_TWO, notices=0),
        Story("keyed, second", "keyed", suffixes=_TWO, attacked=1, notices=0),
        Story("parked", "park", notices=0),
        Story(
            "parked in doubt",
            "park",
            notices=0,
            base="parked",
            first=(_call("park", "after_call"),),
        ),
        Story("looked up", "lookup", notices=0),
        Story(
            *("looked up in doubt", "lookup"),
            **{"notices": 0, "base": "looked up", "first": (_call("lookup", "after_call"),)},
        ),
    )
}

#: Told apart by place; the others belong to a process and to no order.
POINTS = (
    *("claim.before_lock", "claim.after_commit", "claim.after_lock"),
    *("turn.superstep", "turn.at_interrupt", "saver.mid_put"),
    *("effect.before_intent", "barrier.before_intent", "barrier.after_intent"),
    *("effect.after_intent", "effect.before_call", "effect.after_call", "effect.after_result"),
    *("effect.before_lookup", "effect.after_lookup"),
    *("barrier.before_flush", "barrier.after_flush"),
    *("turn.before_commit", "turn.before_unlock", "turn.after_commit", "events.after_commit"),
    "drain.before_next",
)
SENDING = ("accept.before_commit", "accept.after_commit", "publish.before", "publish.after")
SWEEPING = ("sweep.before_wake", "sweep.after_wake")
PROCESS = (
    *("slot.before_connect", "slot.after_connect", "claim.before_next", "drain.before_hand_over"),
    *("events.before_publish", "events.after_publish"),
    *("sweep.elected", *SWEEPING),
)

#: Not of a turn; tests/integration/test_notifier.py dies there.
NOTIFYING = ("notify.before_send", "notify.after_send")

#: One step's is as good as another's: only the last of each message is attacked; and only the
#: last one twice.
SAME_AT_EACH_STEP = ("saver.mid_put",)
ONCE_AT_EACH_STEP = ("turn.superstep",)

#: What a story does not meet again after it died there, and why.
ONCE_ONLY = {
    "turn.after_commit": "the turn is over",
    "events.after_commit": "the turn is over",
    "drain.before_next": "the turn is over",
    "barrier.after_flush": "what it has written is there",
    "publish.before": "a worker may have it by then",
    "publish.after": "a worker may have it by then",
    "sweep.after_wake": "a worker may have it by then",
}
#: The same where a result is committed by itself.
ONCE_ONLY_AT_ONCE = {
    "effect.after_call": "it is not called again",
    "effect.after_result": "the result is known",
}
#: Parked: a person has said what came of it.
ONCE_ONLY_PARKED = {"barrier.before_flush": "the result is known"}


def met_again(story: Story, point: str) -> bool:
    """Whether an order that died at the point comes by there once more."""
    apart = {**ONCE_ONLY}
    if story.honours_no_keys:
        apart |= ONCE_ONLY_AT_ONCE
    if story.graph == "park":
        apart |= ONCE_ONLY_PARKED
    return point not in apart


def certain(story: Story, point: str) -> bool:
    """Whether the story meets the point whatever the machine's speed: a buffer that grows old
    is flushed."""
    return not point.endswith("_flush") or story.honours_no_keys or story.slow > 0


@dataclass(frozen=True)
class Case:
    """One order of a story, and where it is attacked."""

    story: Story
    order: str
    arm: Arm | None
    #: Whoever sends this message of it dies, instead of whoever works on it.
    sending: str | None = None
    #: Not certain to be met, and attacked all the same.
    also: tuple[Arm, ...] = ()

    @property
    def thread(self) -> str:
        return self.story.thread(self.order, self.story.attacked)

    def arms(self) -> list[Arm]:
        return [*self.story.first, *([self.arm] if self.arm else []), *self.also]

    def must(self) -> list[Arm]:
        """What must have acted."""
        return [*self.story.first, *([self.arm] if self.arm else [])]

    def __str__(self) -> str:
        where = "" if self.arm is None else f" at {self.arm.entry(ORDER)}"
        return f"{self.story.name}: {self.order}{where}"


def places(hits: Iterable[str], story: Story, order: str) -> set[tuple[str, str]]:
    """(point, place) that the order's attacked thread has met, by the log's names."""
    thread = story.thread(order, story.attacked)
    found: set[tuple[str, str]] = set()
    for name in hits:
        point, _, place = name.partition("@")
        place = unquote(place)
        if point in POINTS and (place == thread or place.startswith(f"{thread}/")):
            found.add((point, place.replace(order, ORDER)))
    return found


def arms(found: Mapping[str, set[tuple[str, str]]]) -> list[tuple[Story, Arm]]:
    """What to attack: every place of every story, at its first and at its second attempt."""
    wanted: list[tuple[Story, Arm]] = []
    for name, met in found.items():
        story = STORIES[name]
        for point, place in sorted(met - found.get(story.base or "", set())):
            if not certain(story, point) or _message(place) < story.since:
                continue
            last = place == max(p for n, p in met if n == point and _message(p) == _message(place))
            if point in SAME_AT_EACH_STEP and not last:
                continue
            twice = met_again(story, point) and (last or point not in ONCE_AT_EACH_STEP)
            wanted += [(story, Arm(point, place, times=n)) for n in ((1, 2) if twice else (1,))]
    return wanted


def _message(place: str) -> int:
    """The number of the message that is worked on there; 1 where the place does not say."""
    parts = place.split("/")
    return int(parts[1]) if len(parts) > 1 else 1


def sendings(story: Story) -> list[tuple[str, Arm]]:
    """(message, where whoever sends it dies)."""
    thread = story.thread(ORDER, story.attacked)
    return [
        (message, Arm(point, f"{thread}/{message}-{ORDER}" if accepts else thread, times=times))
        for message in story.messages
        for point in SENDING
        for accepts in (point.startswith("accept"),)
        for times in ((1, 2) if met_again(story, point) else (1,))
    ]


def swept(case: Case, times: int) -> Case:
    """The same, with the sweep failing when it wakes for the order."""
    arms = [
        Arm(point, case.thread.replace(case.order, ORDER), "raise", times) for point in SWEEPING
    ]
    return replace(case, also=tuple(arms))


def expected(case: Case, states: Mapping[str, Mapping[str, Any]], told: str) -> dict[str, Expected]:
    """The case's threads, as they are to be in the end; `told`: the order of the story as it
    was told without faults, `states`: what was left of that, by thread."""
    return {
        case.story.thread(case.order, n): Expected(
            "done",
            like(
                states[case.story.thread(told, n)],
                {told: case.order},
                volatile=("refund_id", "receipt"),
            ),
        )
        for n in range(len(case.story.suffixes))
    }
