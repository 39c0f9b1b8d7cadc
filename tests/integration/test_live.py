"""Watching a thread: `Hub.watch` against what was written, on real servers."""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from infra.event_stream import AUDIENCE, database_of, stream
from infra.settings import Settings
from producers import UnknownThread
from producers.live import EventId, Lagging
from tests.events_by_hand import Reader, Writer, hub_of, reader_of, run, soon
from tests.harness import Broker, Database
from tests.limited_users import limited

THREAD = "chat:live"


def test_events_come_as_they_are_written(writer: Writer, settings: Settings) -> None:
    """A snapshot first, then each event once and in order, to every watcher."""

    async def watch() -> None:
        writer.create("idle")
        async with hub_of(settings) as hub:
            readers = [Reader(hub, THREAD) for _ in range(3)]
            await soon(lambda: all(r.snapshots for r in readers))
            writer.claim()
            writer.publish(writer.token("Hel"), writer.token("lo"))
            writer.both(writer.message("Hello"))
            writer.both(writer.ended())
            expected = [f"{writer.epoch}-{n}" for n in range(5)]
            for reader in readers:
                await soon(lambda r=reader: r.ids == expected)
                assert [s.reason for s in reader.snapshots] == ["first"]
                assert reader.snapshots[0].thread.status == "idle"

    run(watch())


def test_workers_are_told_that_somebody_reads(
    writer: Writer, settings: Settings, broker: Broker
) -> None:
    """Before anything is read, for as long as streams may hold events; nobody makes it shorter."""

    async def watch() -> None:
        broker.client.delete(AUDIENCE)
        short = settings.model_copy(update={"events_age": 5.0})
        async with hub_of(settings):
            left = broker.client.ttl(AUDIENCE)
            assert settings.events_age < left <= settings.events_age + 60
            since = broker.client.get(AUDIENCE)
            assert isinstance(since, bytes) and abs(int(since) / 1000 - time.time()) < 60
            async with hub_of(short):
                await asyncio.sleep(0)
        assert broker.client.ttl(AUDIENCE) > settings.events_age
        assert broker.client.get(AUDIENCE) == since

    run(watch())


def test_a_broker_that_has_forgotten_its_readers(
    writer: Writer, settings: Settings, broker: Broker
) -> None:
    """It is told again, and the turn that may not have been heard ends in a snapshot."""

    async def watch() -> None:
        async with reader_of(writer, settings, "idle") as reader:
            broker.client.delete(AUDIENCE)
            writer.claim()
            writer.publish(writer.token("lost"))
            await soon(lambda: broker.client.exists(AUDIENCE))
            writer.both(writer.ended())
            await soon(lambda: [s.reason for s in reader.snapshots] == ["first", "gone"])

    run(watch())


def test_an_id_from_before_the_audience(writer: Writer, settings: Settings, broker: Broker) -> None:
    """The stream has it, and not all that followed it: a snapshot."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        writer.both(writer.message("one"))
        seen = EventId(writer.epoch, 1)
        for since, snapshots in ((0, 0), (1, 1)):
            broker.client.set(AUDIENCE, since)
            async with hub_of(settings) as hub:
                reader = Reader(hub, THREAD, seen)
                await soon(lambda: hub.watched)
                writer.both(writer.made("step", node="say", ns="", keys=[]))
                await soon(lambda r=reader, w=writer: r.last == EventId(w.epoch, w.n))
                assert len(reader.snapshots) == snapshots

    run(watch())


def test_what_was_taken_back_and_not_heard(writer: Writer, settings: Settings) -> None:
    """The broker lost it with the turn's end, which Postgres has: nothing void stays."""

    async def watch() -> None:
        async with reader_of(writer, settings) as reader:
            writer.claim()
            writer.publish(writer.message("void", "t1"))
            await soon(lambda: reader.texts == {"t1": "void"})
            writer.lose(writer.message("", "t1", removed="t1"))
            writer.settle("done")
            writer.keep(writer.ended())
            await soon(lambda: reader.texts == {})
            assert [s.reason for s in reader.snapshots] == ["first", "gone"]

    run(watch())


def test_a_broker_that_is_slow_to_write_is_heard_all_the_same(
    writer: Writer, settings: Settings, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """What is published meanwhile comes by the channel as ever."""

    async def watch() -> None:
        async with reader_of(writer, settings, "idle") as reader:
            broker.client.client_pause(60_000, all=False)
            await asyncio.sleep(5)
            broker.client.client_unpause()
            writer.claim()
            writer.both(writer.ended())
            await soon(lambda: len(reader.ids) == 2)

    try:
        run(watch())
    finally:
        broker.client.client_unpause()
    assert "events are not heard" not in caplog.text


def test_a_broker_that_does_not_take_the_word_is_heard_all_the_same(
    writer: Writer, settings: Settings, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A user of it who may not write: somebody else has to say it."""

    async def watch(url: str) -> None:
        writer.create("idle")
        async with hub_of(settings.model_copy(update={"redis_url": url})) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.claim()
            writer.both(writer.ended())
            await soon(lambda: len(reader.ids) == 2)

    with limited(broker, "-set") as url:
        run(watch(url))
    assert caplog.text.count("does not take the key fleet:audience") == 1


def test_going_on_from_any_event(writer: Writer, settings: Settings) -> None:
    """After an id that the stream has come exactly the events after it, no snapshot."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        for n in range(10):
            writer.publish(*(writer.token(f"{n}{k} ") for k in range(3)))
        written = [f"{writer.epoch}-{n}" for n in range(31)]
        async with hub_of(settings) as hub:
            for n, name in enumerate(written[:-1]):
                reader = Reader(hub, THREAD, EventId.parse(name))
                await soon(lambda r=reader, n=n: r.ids == written[n + 1 :])
                assert not reader.snapshots
                await reader.leave()
            assert hub.watched == []

    run(watch())


@pytest.mark.parametrize("after", [(1, 99), (2**62, 5), (0, 0)])
def test_ids_that_are_not_there(after: tuple[int, int], writer: Writer, settings: Settings) -> None:
    """From the future, from another thread, from before all: a snapshot, then live."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        writer.both(writer.message("one"))
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD, EventId(*after))
            await soon(lambda: reader.snapshots)
            assert reader.snapshots[0].reason == "gone"
            writer.both(writer.message("two", "t2"))
            await soon(lambda: reader.ids == [f"{writer.epoch}-2"])

    run(watch())


def test_what_only_postgres_has_is_filled_in(writer: Writer, settings: Settings) -> None:
    """An end whose way to the broker was cut by a crash: late for who watches, and in its
    place for who comes back, before what followed."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        writer.both(writer.message("one"))
        seen = EventId(writer.epoch, 1)
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD, seen)
            await soon(lambda: hub.watched)
            writer.keep(writer.ended())
            end = f"{writer.epoch}-2"
            await soon(lambda: reader.ids == [end])
            writer.claim("m2")
            writer.both(writer.message("two", "t2"))
            later = [f"{writer.epoch}-0", f"{writer.epoch}-1"]
            await soon(lambda: reader.ids == [end, *later])
            back = Reader(hub, THREAD, seen)
            await soon(lambda: back.ids == [end, *later])
            assert not reader.snapshots and not back.snapshots

    run(watch())


def test_an_end_that_the_next_turn_overtakes(writer: Writer, settings: Settings) -> None:
    """What Postgres alone has of a turn comes before the next one, at once."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        writer.both(writer.message("one"))
        async with hub_of(settings, look_every=60) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            end = writer.ended()
            writer.keep(end)
            writer.claim("m2")
            await soon(lambda: reader.ids == [end["id"], f"{writer.epoch}-0"])

    run(watch())


def test_what_a_crash_undid_is_retracted_where_the_next_beginning_was_lost(
    writer: Writer, settings: Settings
) -> None:
    """The broker was away when the next claim began: its first event shows that there is one."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.publish(writer.token("Hel"))
            await soon(lambda: reader.ids)
            writer.claim(attempt=2, stream=False)
            writer.both(writer.message("Hello", "t2"))
            await soon(lambda: [s.reason for s in reader.snapshots] == ["first", "retracted"])
            writer.both(writer.ended())
            await soon(lambda: reader.ids == [f"{writer.epoch}-2"])

    run(watch())


def test_what_a_crash_undid_is_retracted_where_no_claim_follows(
    writer: Writer, settings: Settings, database: Database
) -> None:
    """The worker is lost in the middle of a text, and the turn is called off: whoever saw the
    text loses it, live or back after its place in it."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            writer.publish(writer.token("Hel"))
            await soon(lambda: reader.texts == {"t1": "Hel"})
            seen = reader.last
            writer.settle("cancelled")
            database.value("SELECT fleet.tell_status(%s, 'cancelled')", THREAD)
            await soon(lambda: [s.reason for s in reader.snapshots] == ["first", "retracted"])
            back = Reader(hub, THREAD, seen)
            await soon(lambda: [s.reason for s in back.snapshots] == ["retracted"])
            assert reader.texts == back.texts == {}
            assert back.snapshots[0].thread.status == "cancelled"

    run(watch())


def test_a_change_without_a_turn_is_an_event(
    writer: Writer, settings: Settings, database: Database
) -> None:
    """Nothing is rebuilt where nothing is void: after a turn that has ended, also when its
    stream is gone."""

    async def watch() -> None:
        writer.create()
        writer.claim(stream=False)
        writer.keep(writer.message("one"), writer.ended("waiting", "waiting"))
        writer.settle("waiting")
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            database.value("SELECT fleet.tell_status(%s, 'question_expired')", THREAD)
            await soon(lambda: [e.type for e in reader.events] == ["status"])
            assert len(reader.snapshots) == 1

    run(watch())


def test_a_slow_reader_is_cut_off(writer: Writer, settings: Settings) -> None:
    """It gets Lagging with its last event, and misses nothing when it comes back."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        async with hub_of(settings) as hub:
            other = Reader(hub, THREAD)
            slow = hub.watch(THREAD, None, queue=5)
            head = (await anext(slow)).head  # type: ignore[union-attr]
            for n in range(20):
                writer.publish(writer.token(f"{n} "))
            await soon(lambda: len(other.ids) == 20)
            got: list[Any] = [item async for item in slow]
            assert isinstance(got[-1], Lagging) and len(got) < 10
            last = got[-1].last or head
            back = Reader(hub, THREAD, last)
            await soon(lambda: back.ids == [f"{writer.epoch}-{n}" for n in range(last.n + 1, 21)])

    run(watch())


def test_a_thread_that_does_not_exist_yet(writer: Writer, settings: Settings) -> None:
    """It is waited for where that is wanted, else said to be unknown."""

    async def watch() -> None:
        async with hub_of(settings) as hub:
            refused = Reader(hub, THREAD)
            await soon(lambda: refused.ended)
            assert isinstance(refused.error, UnknownThread)
            waiting = Reader(hub, THREAD, wait=True)
            await soon(lambda: hub.watched)
            writer.create("idle")
            await soon(lambda: waiting.snapshots)
            writer.claim()
            await soon(lambda: waiting.ids == [f"{writer.epoch}-0"])

    run(watch())


def test_two_fleets_on_one_broker(
    writer: Writer, database: Database, broker: Broker, settings: Settings
) -> None:
    """A thread of the same name in another database of the broker is another thread."""

    async def watch() -> None:
        writer.create()
        writer.claim()
        number = (database_of(broker.url) + 1) % 16
        url = urlsplit(broker.url)._replace(path=f"/{number}").geturl()
        client = redis.Redis.from_url(url)
        other = Writer(database, Broker(url, client), THREAD)
        other.epoch = writer.epoch
        async with hub_of(settings) as hub:
            reader = Reader(hub, THREAD)
            await soon(lambda: reader.snapshots)
            other.publish(other.token("theirs"))
            writer.publish(writer.token("ours"))
            await soon(lambda: reader.events)
            assert reader.texts == {"t1": "ours"}
        client.delete(stream(THREAD))
        other.close()

    run(watch())
