"""Where a thread's events stand in the broker: names that its writers and readers share.

An entry of the stream is a batch: its id is that of its last event, its field `e` a JSON array
of events, its field `t` when it was published, by which the script that adds the next one drops
it; the channel carries the same JSON. The first event of a batch names in `after` the one that
its claim gave before it, whether or not that one has reached the broker: so a reader sees that
something is missing.

While the key AUDIENCE is there, workers publish. Readers see to that, and it outlives them by
the age that events reach. Its value is since when it has been there without a break (Unix, in
milliseconds, by the broker's clock): after an entry of that time or later everything has been
published.
"""

from redis import ConnectionPool

FIELD, PUBLISHED_AT = "e", "t"
AUDIENCE = "fleet:audience"


def audience_lasts(events_age: float) -> int:
    """Seconds after the last reader's last word, by the age of events."""
    return int(events_age) + 60


def stream(thread_id: str) -> str:
    """The key of a thread's stream."""
    return f"fleet:events:{thread_id}"


def channel(thread_id: str, database: int) -> str:
    """The name of a thread's channel, which ends in the thread's.

    A channel is heard in all databases of a broker, so it holds the number of its own: two
    fleets that share a broker may have threads of the same name.
    """
    return f"fleet:events@{database}:{thread_id}"


def database_of(url: str) -> int:
    """The number of the database that a broker's address names."""
    return int(ConnectionPool.from_url(url).connection_kwargs.get("db") or 0)
