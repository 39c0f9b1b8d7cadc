"""The publisher against a real broker: batches, order, and a broker that is not there."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from infra.event_stream import AUDIENCE, FIELD, channel, database_of, stream
from infra.settings import get_settings
from tests.harness import Broker, Database, eventually
from tests.integration.mailbox import deaf_server
from tests.integration.test_claim import accept
from tests.limited_users import limited
from workers import audience
from workers.feed import Feed
from workers.publisher import Publisher

THREAD = "refund:A"


@pytest.fixture
def publisher(settings_env: None) -> Publisher:
    return Publisher(get_settings())


def feed(epoch: int = 5, thread: str = THREAD) -> Feed:
    return Feed(thread, epoch, lambda: thread)


def event(epoch: int, n: int, kind: str = "step", **data: Any) -> dict[str, Any]:
    return {"id": f"{epoch}-{n}", "type": kind, "at": "", "data": data}


def entries(broker: Broker) -> list[tuple[str, list[dict[str, Any]]]]:
    """(id, events) of the stream's batches."""
    found: Any = broker.client.xrange(stream(THREAD))
    return [(i.decode(), orjson.loads(fields[FIELD.encode()])) for i, fields in found]


def kept_ids(broker: Broker) -> list[str]:
    return [i for i, _ in entries(broker)]


def test_what_comes_within_the_interval_is_one_batch(publisher: Publisher, broker: Broker) -> None:
    """Its id is the last event's, and it names the event before it."""
    told = feed()
    for n in range(3):
        publisher.tell(told, event(5, n))
    assert publisher.flush(5)
    publisher.tell(told, event(5, 3), at_once=True)
    assert publisher.flush(5)
    (first, three), (second, one) = entries(broker)
    assert (first, second) == ("5-2", "5-3")
    assert [e["id"] for e in three] == ["5-0", "5-1", "5-2"]
    assert one[0]["after"] == "5-2" and "after" not in three[0]
    assert 0 < broker.client.pttl(stream(THREAD)) <= 600_000


def test_who_listens_gets_the_same_batch(publisher: Publisher, broker: Broker) -> None:
    """On the channel of the stream's name."""
    with broker.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(channel(THREAD, database_of(broker.url)))
        eventually(lambda: heard.subscribed)
        heard.get_message(timeout=1)
        publisher.tell(feed(), event(5, 1), at_once=True)
        message: Any = eventually(lambda: heard.get_message(timeout=1))
    assert orjson.loads(message["data"]) == entries(broker)[0][1]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, by which the audience goes."""
    found = [0.0]
    monkeypatch.setattr(audience, "time", SimpleNamespace(monotonic=lambda: found[0]))
    return found


def test_nothing_is_published_while_nobody_reads(
    now: list[float], publisher: Publisher, broker: Broker
) -> None:
    """After the first moments; the first batch after somebody came names what was let go."""
    broker.client.delete(AUDIENCE)
    told = feed()

    def tell(n: int, at_once: bool = False) -> bool:
        publisher.tell(told, event(5, n), at_once)
        assert publisher.flush(5)
        return kept_ids(broker)[-1:] == [f"5-{n}"]

    assert tell(0)
    now[0] += 60
    assert not tell(1) and not tell(2, at_once=True)
    broker.client.set(AUDIENCE, 0)
    assert tell(3) and entries(broker)[1][1][0]["after"] == "5-2"
    broker.client.delete(AUDIENCE)
    assert tell(4), "so soon it is not asked again"
    now[0] += 30
    assert tell(5), "a broker may have forgotten it"
    now[0] += 5
    assert tell(6)
    now[0] += 5
    assert not tell(7)


def test_who_may_not_look_for_readers_publishes(
    now: list[float], settings_env: None, broker: Broker
) -> None:
    """A user of the broker without the right to EXISTS."""
    with limited(broker, "-exists") as url:
        publisher = Publisher(get_settings().model_copy(update={"redis_url": url}))
        now[0] += 60
        publisher.tell(feed(), event(5, 0))
        assert publisher.flush(5) and kept_ids(broker) == ["5-0"]


def test_batches_while_nobody_reads(
    now: list[float], publisher: Publisher, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them, however many threads there are; flushing does not wait for the next."""
    broker.client.delete(AUDIENCE)
    now[0] += 60
    broker.client.config_resetstat()
    begun = time.monotonic()
    while time.monotonic() < begun + 1:
        publisher.tell(feed(), event(5, 0), at_once=True)
        time.sleep(0.005)
    asked: Any = broker.client.info("commandstats")
    assert 1 <= asked["cmdstat_exists"]["calls"] <= 6
    begun = time.monotonic()
    publisher.tell(feed(), event(5, 0))
    assert publisher.flush(5) and time.monotonic() - begun < 0.2


def test_deltas_of_one_text_are_joined(publisher: Publisher, broker: Broker) -> None:
    """As long as nothing has come between them."""
    told = feed()
    publisher.tell(told, event(5, 0, "token", message_id="a", text="one"))
    assert publisher.join(told, "a", " two")
    assert not publisher.join(told, "b", "x")
    publisher.tell(told, event(5, 1, "token", message_id="b", text="x"))
    assert not publisher.join(told, "a", " three")
    assert publisher.flush(5)
    ((_, events),) = entries(broker)
    assert [e["data"]["text"] for e in events] == ["one two", "x"]


def test_one_that_the_broker_refuses_holds_up_no_other(
    publisher: Publisher, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Of many threads at once, with something else where one's stream should be."""
    threads = [f"refund:T{n}" for n in range(70)]
    broker.client.set(stream(threads[40]), "no stream")
    for thread in threads:
        publisher.tell(feed(thread=thread), event(5, 0))
    assert publisher.flush(5)
    kept = [thread for thread in threads if thread != threads[40]]
    assert [broker.client.xlen(stream(thread)) for thread in kept] == [1] * 69
    assert f"events of {threads[40]} were refused by the broker: WRONGTYPE" in caplog.text


def test_an_older_claim_is_kept_out(
    publisher: Publisher, broker: Broker, database: Database
) -> None:
    """The stream has events of a newer one, which Postgres knows: nothing else happens."""
    with database.connect() as conn:
        accept(conn, "A", "m1")
        conn.execute("UPDATE fleet.threads SET epoch = 9")
    publisher.tell(feed(9), event(9, 0))
    assert publisher.flush(5)
    publisher.tell(feed(7), event(7, 4))
    assert publisher.flush(5)
    assert [i for i, _ in entries(broker)] == ["9-0"]


def test_a_stream_that_is_ahead_of_the_database_is_begun_anew(
    publisher: Publisher, broker: Broker, database: Database
) -> None:
    """A standby that lagged took over: later epochs are above all that clients have seen."""
    with database.connect() as conn:
        accept(conn, "A", "m1")
        conn.execute("UPDATE fleet.threads SET epoch = 7")
    publisher.tell(feed(900), event(900, 3))
    assert publisher.flush(5)
    publisher.tell(feed(7), event(7, 0))
    assert publisher.flush(5)
    assert [i for i, _ in entries(broker)] == ["7-0"]
    assert database.value("SELECT nextval('fleet.epochs')") > 900


def test_batches_beyond_the_count_go(settings_env: None, broker: Broker) -> None:
    """The oldest first, some later than others: the broker drops whole nodes of 100 entries."""
    settings = get_settings().model_copy(update={"events_kept": 10})
    publisher, told = Publisher(settings), feed()
    for n in range(500):
        publisher.tell(told, event(5, n))
        assert publisher.flush(5)
    kept = kept_ids(broker)
    assert 10 <= len(kept) <= 110
    assert kept == [f"5-{n}" for n in range(500 - len(kept), 500)]


def test_batches_beyond_the_age_go(settings_env: None, broker: Broker) -> None:
    """While the thread goes on, at its next batch; those that are young enough stay."""
    now = [1_000_000.0]
    settings = get_settings().model_copy(update={"events_age": 60.0})
    publisher, told = Publisher(settings, lambda: now[0]), feed()
    for n in range(6):
        publisher.tell(told, event(5, n))
        assert publisher.flush(5)
        now[0] += 25
    assert kept_ids(broker) == ["5-3", "5-4", "5-5"]


def test_many_old_batches_go_a_few_at_a_time(settings_env: None, broker: Broker) -> None:
    """So that no call holds the broker up; a batch without a time is an old one."""
    now = [1_000_000.0]
    settings = get_settings().model_copy(update={"events_age": 60.0})
    publisher, told = Publisher(settings, lambda: now[0]), feed()
    broker.client.xadd(stream(THREAD), {FIELD: b"[]"}, id="4-1")
    for n in range(40):
        publisher.tell(told, event(5, n))
        assert publisher.flush(5)
    assert kept_ids(broker) == [f"5-{n}" for n in range(40)]
    now[0] += 61
    left = []
    for n in range(40, 43):
        publisher.tell(told, event(5, n))
        assert publisher.flush(5)
        left.append(len(kept_ids(broker)))
    assert left == [10, 2, 3]


def test_a_wiped_broker_has_lost_the_script_too(publisher: Publisher, broker: Broker) -> None:
    """It is loaded again, and nothing is lost of what comes."""
    told = feed()
    publisher.tell(told, event(5, 0))
    assert publisher.flush(5)
    broker.client.script_flush()
    broker.client.client_kill_filter(_type="normal", skipme=True)
    publisher.tell(told, event(5, 1))
    assert publisher.flush(5)
    assert [i for i, _ in entries(broker)] == ["5-0", "5-1"]


@pytest.fixture
def deaf(settings_env: None) -> Iterator[Publisher]:
    """A publisher whose broker takes connections and never answers."""
    with deaf_server() as port:
        away = f"redis://127.0.0.1:{port}/0"
        yield Publisher(get_settings().model_copy(update={"redis_url": away}))


def test_a_broker_that_hangs_holds_nobody_up(deaf: Publisher) -> None:
    """Events are told without waiting; those of the time being are let go."""
    told = feed()
    began = time.monotonic()
    for n in range(1000):
        deaf.tell(told, event(5, n), at_once=n % 10 == 0)
    assert time.monotonic() - began < 2
    assert deaf.flush(10)
    assert told.events == []


def test_many_who_tell_at_a_time_lose_nothing(publisher: Publisher, broker: Broker) -> None:
    """Slots of one process share its publisher; each thread's events keep their order."""

    def tell(epoch: int) -> None:
        told = feed(epoch, f"refund:{epoch}")
        for n in range(300):
            publisher.tell(told, event(epoch, n), at_once=n % 7 == 0)

    tellers = [threading.Thread(target=tell, args=[epoch]) for epoch in range(1, 5)]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    assert publisher.flush(10)
    for epoch in range(1, 5):
        found: Any = broker.client.xrange(stream(f"refund:{epoch}"))
        events = [e["id"] for _, fields in found for e in orjson.loads(fields[FIELD.encode()])]
        assert events == [f"{epoch}-{n}" for n in range(300)]
