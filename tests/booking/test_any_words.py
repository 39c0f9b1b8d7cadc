"""The booking assistant by its rules, whatever a person writes: no node of its graph raises."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from graphs.booking import graph, rooms
from graphs.booking.state import Candidate, Slot
from infra.settings import get_settings

#: The evening before the clocks go forward in Berlin.
NOW = datetime.fromisoformat("2027-03-27T19:00:00+00:00")
EQUIPMENT = ["projector", "tv"]


def free_rooms(slot: Slot, people: int, equipment: list[str], language: str) -> list[Candidate]:
    """Two rooms for up to 20, once the span is one that Postgres takes."""
    start, end = datetime.fromisoformat(slot["start"]), datetime.fromisoformat(slot["end"])
    assert NOW < start < end and 0 < people < 2**31
    made = {"capacity": 20, "equipment": EQUIPMENT, "slot": slot}
    known = [("R1", ["Plum", "梅"]), ("R2", ["Pine", "松"])]
    return [
        Candidate(id=n, name=names[0], names=names, **made)  # type: ignore[typeddict-item]
        for n, names in known
        if people <= 20
    ]


@pytest.fixture(scope="module", autouse=True)
def without_servers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEET_BOOKING_ZONE", "Europe/Berlin")
        patch.delenv("FLEET_MODEL", raising=False)
        get_settings.cache_clear()
        patch.setattr(rooms, "said", lambda: rooms.Said(NOW, "m1", "input"))
        patch.setattr(rooms, "thread_id", lambda: "booking:b1")
        patch.setattr(rooms, "free_rooms", free_rooms)
        patch.setattr(rooms, "largest", lambda equipment: 20)
        patch.setattr(rooms, "book_room", lambda **wish: {"booking_id": "B1"})
        yield
    get_settings.cache_clear()


NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([59, 60, 61, 365, 1440, 1441, 2359, 2400, 9999, 10_000, 999_999, 1_000_000]),
    st.integers(-(10**30), 10**30),
).map(str)
TEXTS = """
{} people|for {}|for {} hours|for {} minutes|at {}|at {}:{}|from {} to {}|until {}|{}pm
in {} days|in {} hours|on the {}th|{}/{}|{}-{}-{}|9999-12-31 23:{}|0001-01-01 at {}|december {}
2027-03-28 at 02:30|next monday at {}|{} earlier|{} hours later|half past {}|room {}|the last one
yes|no|cancel|don't cancel|tomorrow|tonight at {}|last friday|not {} but {}|two dozen people|all day
{}人|{}个人|{}点|{}点半|晚上{}点|{}月{}日|{}号|下个月{}号|{}天后|{}小时后|推迟{}小时|延长{}分钟
提前{}小时|{}点到{}点|从{}点到{}点|明天|后天|大后天|上周五|下下周{}|选{}|第{}个|改成{}个|好的|不要
取消|不要取消|全天|半天|{}年{}月{}日{}点{}分|投影|一百二十|九千九百九十九万|二〇二七年
"""
PIECES = st.sampled_from(TEXTS.strip().replace("\n", "|").split("|"))


@st.composite
def sentences(draw: st.DrawFn) -> str:
    """A few pieces of either language, with numbers of any size in them."""
    pieces = draw(st.lists(PIECES, min_size=1, max_size=4))
    text = draw(st.sampled_from([" ", "", "，", ", "])).join(pieces)
    while "{}" in text:
        text = text.replace("{}", draw(NUMBERS), 1)
    return text


SAID = st.one_of(sentences(), sentences(), st.text(max_size=40))


@settings(
    max_examples=250,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(SAID, min_size=1, max_size=4), st.sampled_from(["", "tomorrow at 3pm for 4"]))
def test_no_words_end_the_turn(said: list[str], before: str) -> None:
    """Each is answered, at each question, and the state is one that a checkpoint can hold."""
    app: Any = graph.build().compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 80}
    for text in [before, *said] if before else said:
        waits = bool(app.get_state(config).interrupts)
        message = {"messages": [{"role": "user", "content": text}]}
        app.invoke(Command(resume=text) if waits else message, config)
        values = app.get_state(config).values
        assert values["steps"] < graph.MOST_STEPS
        assert values["messages"][-1].type == "ai" and values["messages"][-1].text
