"""Watching a thread while attempts crash and servers fail."""

import asyncio
import os
import signal
from typing import Any

import pytest

from infra.devservers import Stack
from infra.settings import Settings
from producers.chaos.proxy import Proxy
from producers.live import Event, EventId, Snapshot
from tests.acceptance.servers import Servers
from tests.events_by_hand import Reader, Writer, hub_of, reader_of, run, soon
from tests.harness import Broker, Database

THREAD = "chat:faults"


def reasons(reader: Reader) -> list[str]:
    return [snapshot.reason for snapshot in reader.snapshots]


def test_what_a_crashed_attempt_streamed_is_taken_back(writer: Writer, settings: Settings) -> None:
    """A snapshot stands in place of the next attempt's beginning, for who watches and for who
    comes back with an event of the dead attempt."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        said = writer.message("Before", "t0")
        writer.keep(said, stateful=True)
        writer.publish(said)
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.publish(writer.token("It was "))
            void = writer.message("Void", "t9")
            writer.publish(void)
            await soon(lambda: reader.texts == {"t0": "Before", "t1": "It was ", "t9": "Void"})
            writer.claim(attempt=2)
            await soon(lambda: reasons(reader) == ["first", "retracted"])
            assert reader.snapshots[1].head == EventId(writer.epoch, 0)
            writer.publish(writer.token("It is"))
            whole = writer.message("It is so")
            writer.keep(whole, stateful=True)
            writer.publish(whole)
            back = Reader(hub, THREAD, EventId.parse(void["id"]))
            for one in (reader, back):
                await soon(lambda r=one: r.texts == {"t0": "Before", "t1": "It is so"})
            assert reasons(back) == ["retracted"]
            assert reader.ids == [f"{writer.epoch}-1", f"{writer.epoch}-2"]

    run(watch())


def test_an_attempt_of_which_all_is_durable_is_not_taken_back(
    writer: Writer, settings: Settings
) -> None:
    """A turn that was handed over between two steps goes on under the reader's eyes."""

    async def watch() -> None:
        async with reader_of(writer, settings) as reader:
            writer.claim()
            writer.publish(writer.token("Hel"))
            writer.both(writer.message("Hello"))
            writer.both(writer.made("step", node="say", ns="", keys=["messages"]))
            first = [f"{writer.epoch}-{n}" for n in range(4)]
            writer.claim(attempt=2)
            writer.both(writer.message("again", "t2"))
            second = [f"{writer.epoch}-0", f"{writer.epoch}-1"]
            await soon(lambda: reader.ids == first + second)
            assert reasons(reader) == ["first"]

    run(watch())


def test_a_restart_begins_a_clean_view(writer: Writer, settings: Settings) -> None:
    """A new generation has none of the old one's messages: a snapshot says so."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        said = writer.message("old")
        writer.both(said)
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD, EventId(writer.epoch, 0))
            await soon(lambda: reader.texts == {"t1": "old"})
            writer.claim("m2", stream=False)
            writer.publish(
                writer._made("turn", {"message_id": "m2", "kind": "start", "generation": 2}, 0)
            )
            await soon(lambda: reasons(reader) == ["retracted"] and reader.texts == {})

    run(watch())


def test_what_the_broker_never_got_is_not_missing_in_the_end(
    writer: Writer, settings: Settings
) -> None:
    """A message that was lost on its way: a snapshot at once, and one when the turn is over."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            lost = writer.message("lost", "t1")
            writer.lose(lost)
            writer.publish(writer.token("later", "t2"))
            await soon(lambda: reasons(reader) == ["first", "gone"])
            await soon(lambda: reader.texts == {"t2": "later"})
            whole, end = writer.message("later on", "t2"), writer.ended()
            writer.keep(lost, whole, end, stateful=True)
            writer.publish(whole, end)
            await soon(lambda: reader.texts == {"t1": "lost", "t2": "later on"})
            assert reasons(reader) == ["first", "gone", "gone"]
            assert any(isinstance(i, Event) and i.type == "ended" for i in reader.items)

    run(watch())


def test_an_event_that_is_short_in_the_broker_comes_whole(
    writer: Writer, settings: Settings
) -> None:
    """What a question asks is in Postgres alone for some graphs."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            asked = writer.made("question", question_id="q1", kind="approve", payload={"a": 1})
            writer.keep(asked)
            data = {k: v for k, v in asked["data"].items() if k != "payload"}
            writer.publish(asked | {"data": data, "short": True})
            await soon(lambda: reader.events)
            assert reader.events[0].data["payload"] == {"a": 1}
            back = Reader(hub, THREAD, EventId(writer.epoch, 0))
            await soon(lambda: back.events)
            assert back.events[0].data["payload"] == {"a": 1}

    run(watch())


def test_a_trimmed_stream(database: Database, broker: Broker, settings: Settings) -> None:
    """Who comes back after too long gets a snapshot that holds what was missed."""

    async def watch() -> None:
        writer = Writer(database, broker, THREAD, kept=3)
        writer.create()
        writer.claim()
        for n in range(10):
            said = writer.message(f"{n}", f"t{n}")
            writer.keep(said, stateful=True)
            writer.publish(said)
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD, EventId(writer.epoch, 2))
            await soon(lambda: reader.texts == {f"t{n}": f"{n}" for n in range(10)})
            assert reasons(reader) == ["gone"]
            writer.both(writer.message("on", "t10"))
            await soon(lambda: reader.ids == [f"{writer.epoch}-11"])
        writer.close()

    run(watch())


def test_an_emptied_broker(writer: Writer, broker: Broker, settings: Settings) -> None:
    """FLUSHALL in the middle of a text: who watches goes on, who comes back gets a snapshot."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.publish(writer.token("Hel"))
            await soon(lambda: reader.texts == {"t1": "Hel"})
            broker.client.flushdb()
            writer.publish(writer.token("lo"))
            await soon(lambda: reader.texts == {"t1": "Hello"})
            assert reasons(reader) == ["first"]
            back = Reader(hub, THREAD, EventId(writer.epoch, 1))
            whole, end = writer.message("Hello!"), writer.ended()
            await soon(lambda: back.snapshots)
            writer.keep(whole, end, stateful=True)
            writer.publish(whole, end)
            for one in (reader, back):
                await soon(lambda r=one: r.texts == {"t1": "Hello!"})

    run(watch())


@pytest.mark.parametrize("how", ["cut", "black_hole"])
def test_a_reader_that_loses_the_broker(
    how: str,
    writer: Writer,
    database: Database,
    broker: Broker,
    fleet_settings: dict[str, Any],
    settings: Settings,
) -> None:
    """Durable events come by Postgres meanwhile; when it is back nothing is there twice."""

    async def watch(network: Proxy) -> None:
        writer.create()
        writer.claim()
        async with hub_of(Settings(**fleet_settings | {"redis_url": network.url})) as hub:
            readers = [Reader(hub, THREAD) for _ in range(2)]
            await soon(lambda: all(r.snapshots for r in readers))
            writer.publish(writer.token("Hel"))
            await soon(lambda: all(r.texts == {"t1": "Hel"} for r in readers))
            await asyncio.to_thread(getattr(network, how))
            whole, end = writer.message("Hello"), writer.ended()
            writer.keep(whole, end, stateful=True)
            writer.publish(whole, end)
            for reader in readers:
                await soon(
                    lambda r=reader: r.texts == {"t1": "Hello"} and r.ids[-1] == end["id"], 20
                )
            await asyncio.to_thread(network.pass_on)
            await asyncio.to_thread(network.cut)
            writer.claim("m2")
            writer.both(writer.message("Two", "t2"))
            for reader in readers:
                await soon(lambda r=reader: r.texts == {"t1": "Hello", "t2": "Two"}, 20)
                assert len(reader.ids) == len(set(reader.ids))
                assert [e.id for e in reader.events] == sorted(e.id for e in reader.events)

    with Proxy(broker.url) as network:
        run(watch(network))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_broker_that_dies_or_hangs(
    signum: int,
    stack: Stack,
    database: Database,
    fleet_settings: dict[str, Any],
    settings_env: None,
) -> None:
    """Killed with all that it held, or stopped for some seconds, in the middle of a text."""
    import redis

    async def watch(servers: Servers) -> None:
        url = servers.stack.redis_url
        client = redis.Redis.from_url(url, socket_timeout=0.5)
        writer = Writer(database, Broker(url, client), THREAD)
        writer.create()
        writer.claim()
        async with hub_of(Settings(**fleet_settings | {"redis_url": url})) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.publish(writer.token("Hel"))
            await soon(lambda: reader.texts == {"t1": "Hel"})
            pid = client.info("server")["process_id"]
            os.kill(pid, signum)
            lost, said = writer.token("lo"), writer.message("Hello")
            with pytest.raises(redis.RedisError):
                writer.publish(lost)
            writer.lose(lost, said)
            writer.keep(said, stateful=True)
            await soon(lambda: reader.texts == {"t1": "Hello"}, 20)
            if signum == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            else:
                await asyncio.to_thread(servers.end)
                await asyncio.to_thread(servers.start)
            await soon(lambda: client.ping(), 20)
            more, end = writer.message("More", "t2"), writer.ended()
            writer.keep(more, end, stateful=True)
            writer.publish(more, end)
            await soon(lambda: reader.texts == {"t1": "Hello", "t2": "More"}, 20)
            writer.claim("m2")
            await soon(lambda: reader.last >= EventId(writer.epoch, 0), 20)
        writer.close()

    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        run(watch(servers))


def test_postgres_restarts(
    writer: Writer, database: Database, fleet_settings: dict[str, Any], settings: Settings
) -> None:
    """Its sessions are lost, and for a while it can't be reached: watches go on after it."""

    async def watch(network: Proxy) -> None:
        writer.create()
        async with hub_of(Settings(**fleet_settings | {"postgres_url": network.url})) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.claim()
            writer.publish(writer.token("a"))
            await soon(lambda: reader.texts == {"t1": "a"})
            await asyncio.to_thread(network.lead_to, "postgresql://127.0.0.1:1/none")
            await asyncio.to_thread(network.cut)
            said, end = writer.message("ab"), writer.ended()
            writer.both(said, end)
            writer.claim("m2")
            epoch = writer.epoch
            writer.both(writer.message("two", "t2"))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(network.lead_to, database.url)
            await soon(lambda: reader.texts == {"t1": "ab", "t2": "two"}, 20)
            assert reader.ids[-2:] == [f"{epoch}-0", f"{epoch}-1"]
            assert [s.reason for s in reader.snapshots] == ["first"]

    with Proxy(database.url) as network:
        run(watch(network))


def test_without_any_broker(
    writer: Writer, fleet_settings: dict[str, Any], settings: Settings
) -> None:
    """Postgres alone brings what is durable."""

    async def watch() -> None:
        writer.create()
        async with hub_of(settings.model_copy(update={"redis_url": None})) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.claim()
            end = (writer.message("one"), writer.ended())
            writer.keep(*end)
            await soon(lambda: reader.ids == [e["id"] for e in end])
            assert isinstance(reader.items[0], Snapshot)

    run(watch())
