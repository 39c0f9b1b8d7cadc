"""Where a thread's events stand in the broker: names that its writers and readers share.

Key and channel of a thread have one name. An entry of the stream is a batch: its id is that
of its last event, its field `e` a JSON array of events; the channel carries the same JSON.
The first event of a batch names in `after` the one that its claim gave before it, whether or
not that one has reached the broker: so a reader sees that something is missing.
"""

FIELD = "e"


def stream(thread_id: str) -> str:
    """The key of a thread's stream, and the name of its channel."""
    return f"fleet:events:{thread_id}"
