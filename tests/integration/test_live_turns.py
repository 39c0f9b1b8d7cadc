"""Watching real turns: what workers write is what readers get."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from infra.devservers import Stack
from infra.event_stream import AUDIENCE
from infra.settings import Settings, get_settings
from producers import Fleet
from producers.live import Event
from tests.events_by_hand import Reader, hub_of, run, soon
from tests.harness import ROOT, Broker, Database, clean_environment, eventually, write_graphs
from tests.warm_commands import FLEET
from workers import audience
from workers.drain import drain
from workers.publisher import publisher
from workers.slot import Slot

GRAPHS = ROOT / "tests/graphs"
CHATS = ("chat", "asks", "nested", "fails", "forgets", "waits")


@pytest.fixture
def graphs_file(
    settings_env: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Path:
    talking = {n: f"{GRAPHS}/talking.py:{n}" for n in CHATS}
    halfway = {n: f"{GRAPHS}/halfway.py:{n}" for n in ("whole", "differences")}
    found = write_graphs(tmp_path, **talking, **halfway)
    database.register(found)
    monkeypatch.setenv("FLEET_GRAPHS_FILE", str(found))
    get_settings.cache_clear()
    return found


@pytest.fixture
def settings(graphs_file: Path) -> Settings:
    return get_settings()


def user(text: str, name: str = "u1") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, "id": name}]}


async def turn(slot: Slot, thread: str) -> None:
    """As a worker takes it, while the loop goes on."""
    await asyncio.to_thread(drain, slot, thread)


def kinds(reader: Reader) -> list[str]:
    return [e.type for e in reader.events]


@pytest.mark.parametrize("graph", ["chat", "nested"])
def test_a_conversation(graph: str, slot: Slot, fleet: Fleet, settings: Settings) -> None:
    """Deltas, the whole message and the end, to who was there from the start and to who comes
    back; a newcomer's snapshot has the same conversation."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            reader = Reader(hub, f"{graph}:A", wait=True)
            thread = fleet.submit(graph, "A", user("good morning")).thread_id
            await soon(lambda: reader.snapshots)
            await turn(slot, thread)
            await soon(lambda: kinds(reader)[-1:] == ["ended"])
            answer = [text for name, text in reader.texts.items() if name != "u1"]
            assert answer == ["You said good morning."]
            assert reader.events == sorted(reader.events, key=lambda e: e.id)
            written = reader.ids
            for n, name in enumerate(written[:-1]):
                back = Reader(hub, thread, reader.events[n].id)
                await soon(lambda r=back, n=n: r.ids == written[n + 1 :])
                assert not back.snapshots, name
                await back.leave()
            fleet.send(thread, user("and now?", "u2"))
            await turn(slot, thread)
            await soon(lambda: kinds(reader).count("ended") == 2)
            newcomer = Reader(hub, thread)
            await soon(lambda: newcomer.snapshots)
            found = newcomer.snapshots[0]
            assert found.thread.status == "done" and found.head == reader.events[-1].id
            assert [(m["role"], m["text"]) for m in found.messages] == [
                ("user", "good morning"),
                ("assistant", "You said good morning."),
                ("user", "and now?"),
                ("assistant", "You said and now?."),
            ]
            assert not found.partial and not found.running_tools

    run(watch())


@pytest.fixture
def unheard(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads, and workers have run for longer than they assume some to."""
    broker.client.delete(AUDIENCE)
    monkeypatch.setattr(audience, "_ASSUMED_FOR", 0)


def test_a_reader_who_comes_to_turns_that_nobody_heard(
    unheard: None, slot: Slot, fleet: Fleet, settings: Settings, broker: Broker
) -> None:
    """Between two turns: all of the first is in the snapshot, all of the second comes live."""

    async def watch() -> None:
        thread = fleet.submit("chat", "A", user("good morning")).thread_id
        await turn(slot, thread)
        publisher(settings).flush(5)
        assert not broker.client.keys("fleet:events:*")
        async with hub_of(settings, look_every=60) as hub:
            reader = Reader(hub, thread)
            await soon(lambda: reader.snapshots)
            assert len(reader.texts) == 2 and reader.snapshots[0].thread.status == "done"
            fleet.send(thread, user("and now?", "u2"))
            await turn(slot, thread)
            await soon(lambda: kinds(reader)[-1:] == ["ended"])
            assert kinds(reader)[0] == "turn" and "token" in kinds(reader)
            assert [*reader.texts.values()][2:] == ["You said and now?."]
            assert len(reader.snapshots) == 1

    run(watch())


def test_a_reader_who_comes_in_the_middle_of_an_unheard_turn(
    unheard: None,
    fleet: Fleet,
    settings: Settings,
    slot: Slot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it has missed is made up for."""

    async def watch() -> None:
        gate = tmp_path / "gate"
        monkeypatch.setenv("TALKING_GATE", str(gate))
        thread = fleet.submit("waits", "A", user("x")).thread_id
        running = asyncio.create_task(turn(slot, thread))
        await soon(gate.exists)
        publisher(settings).flush(5)
        async with hub_of(settings, look_every=60) as hub:
            reader = Reader(hub, thread)
            await soon(lambda: reader.snapshots)
            gate.unlink()
            await running
            await soon(lambda: len(reader.snapshots) == 2)
            assert reader.snapshots[1].thread.status == "done"
            assert [*reader.texts.values()] == ["x", "You said x."]

    run(watch())


def test_a_question(slot: Slot, fleet: Fleet, settings: Settings) -> None:
    """It comes when the turn has ended in it, and is in the snapshot until it is answered."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            thread = fleet.submit("asks", "A", user("a room")).thread_id
            reader = Reader(hub, thread)
            await soon(lambda: reader.snapshots)
            await turn(slot, thread)
            await soon(lambda: kinds(reader)[-2:] == ["question", "ended"])
            asked = reader.events[-2].data["question_id"]
            late = Reader(hub, thread)
            await soon(lambda: late.snapshots)
            assert [q.question_id for q in late.snapshots[0].thread.questions] == [asked]
            fleet.answer(thread, asked, "noon")
            await turn(slot, thread)
            for one in (reader, late):
                await soon(lambda r=one: "At noon." in r.texts.values())
                await soon(lambda r=one: kinds(r)[-1:] == ["ended"])

    run(watch())


def test_a_chat_that_was_emptied(slot: Slot, fleet: Fleet, settings: Settings) -> None:
    """Its snapshot says that there are no messages; before, that nobody knows of any."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            thread = fleet.submit("forgets", "A", user("hello")).thread_id
            early = Reader(hub, thread)
            await soon(lambda: early.snapshots)
            await turn(slot, thread)
            late = Reader(hub, thread)
            await soon(lambda: late.snapshots)
            found = [(r.snapshots[0].messages, r.snapshots[0].chat) for r in (early, late)]
            assert found == [([], False), ([], True)]

    run(watch())


def test_a_turn_that_fails_and_is_tried_again(
    slot: Slot, fleet: Fleet, database: Database, settings: Settings, tmp_path: Path
) -> None:
    """What its first attempt had said of the answer is not there beside the answer."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            thread = fleet.submit(
                "fails", "A", user("one two") | {"folder": str(tmp_path)}
            ).thread_id
            reader = Reader(hub, thread)
            await soon(lambda: reader.snapshots)
            await turn(slot, thread)
            await soon(lambda: kinds(reader)[-1:] == ["ended"])
            assert reader.events[-1].data["outcome"] == "retry"
            database.fetch("UPDATE fleet.messages SET available_at = fleet.now()")
            await turn(slot, thread)
            answer = {"one two", "You said one two."}
            await soon(lambda: set(reader.texts.values()) | {"one two"} == answer)
            # The second attempt may have been over before that was read.
            assert [s.reason for s in reader.snapshots] in (["first"], ["first", "retracted"])

    run(watch())


@pytest.mark.parametrize("graph", ["whole", "differences"])
def test_a_snapshot_in_the_middle_of_a_step(
    graph: str, slot: Slot, fleet: Fleet, settings: Settings
) -> None:
    """It has what tasks that are done have said and removed, and the tool that runs."""

    async def watch() -> None:
        thread = fleet.submit(graph, "A", user("find me a room")).thread_id
        await turn(slot, thread)
        async with hub_of(settings) as hub:
            reader = Reader(hub, thread)
            await soon(lambda: reader.snapshots)
            found = reader.snapshots[0]
            assert [m["message_id"] for m in found.messages] == ["a1", "a2"]
            assert found.values == {"topic": "rooms"}
            assert found.running_tools == [
                {"id": "c1", "name": "search", "args": {"for": "a room"}}
            ]
            json.dumps(found.as_dict())
            fleet.answer(thread, None, "yes")
            await turn(slot, thread)
            await soon(lambda: kinds(reader)[-1:] == ["ended"])
            assert list(reader.texts) == ["a1", "a2", "a3"]

    run(watch())


def test_fleet_watch(
    slot: Slot,
    fleet: Fleet,
    stack: Stack,
    fleet_settings: dict[str, Any],
    graphs_file: Path,
    tmp_path: Path,
) -> None:
    """How it stands, then a line an event, until Ctrl-C; from an id on only what follows it."""

    def start(name: str, *options: str) -> Any:
        argv = [*FLEET, "watch", thread, *options]
        environment = clean_environment(**fleet_settings, graphs_file=graphs_file)
        return stack.spawn(name, argv, environment)

    thread = fleet.submit("chat", "A", user("hello there")).thread_id
    person, machine = start("person"), start("machine", "--json")
    eventually(lambda: "status: idle" in person.log() and "snapshot" in machine.log(), 30)
    drain(slot, thread)
    eventually(lambda: "\tended\t" in person.log() and '"ended"' in machine.log(), 30)
    assert "role=assistant text=You said hello there." in person.log()
    lines = [json.loads(line) for line in machine.log().splitlines()]
    assert lines[0]["snapshot"]["reason"] == "first"
    assert lines[1]["type"] == "turn"
    again = start("again", "--json", "--from", lines[1]["id"])
    eventually(lambda: '"ended"' in again.log(), 30)
    assert [json.loads(line) for line in again.log().splitlines()] == lines[2:]
    for child in (person, machine, again):
        child.send(signal.SIGINT)
        assert child.wait(10) == 0, child.log()


@pytest.mark.parametrize(
    ("thread", "options", "code", "said"),
    [
        ("chat:none", [], 1, "There is no thread chat:none"),
        ("nonsense", [], 2, "is not a thread_id"),
        ("chat:none", ["--from", "4711"], 2, "'4711' is no id of an event"),
    ],
)
def test_fleet_watch_refuses(
    thread: str,
    options: list[str],
    code: int,
    said: str,
    settings_env: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What can't be watched is said in a line."""
    from producers.cli import main

    assert main(["watch", thread, *options]) == code
    captured = capfd.readouterr()
    assert said in captured.err and not captured.out


def test_events_are_shared_and_small(slot: Slot, fleet: Fleet, settings: Settings) -> None:
    """An event is parsed once for all who watch."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            thread = fleet.submit("chat", "A", user("x")).thread_id
            readers = [Reader(hub, thread) for _ in range(3)]
            await soon(lambda: all(r.snapshots for r in readers))
            await turn(slot, thread)
            await soon(lambda: all(kinds(r)[-1:] == ["ended"] for r in readers))
            first: list[Event] = readers[0].events
            assert all(a is b for r in readers[1:] for a, b in zip(first, r.events, strict=True))

    run(watch())
