"""Users of the broker who may not do everything."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from infra.event_stream import database_of
from tests.harness import Broker


@contextmanager
def limited(broker: Broker, *rights: str) -> Iterator[str]:
    """The broker's address for one with all rights but these, as ACL SETUSER takes them."""
    name, address = f"limited{database_of(broker.url)}", urlsplit(broker.url)
    broker.client.acl_setuser(
        name,
        enabled=True,
        passwords=["+pw"],
        keys=["*"],
        channels=["*"],
        commands=["+@all", *rights],
        reset=True,
    )
    try:
        yield address._replace(netloc=f"{name}:pw@{address.hostname}:{address.port}").geturl()
    finally:
        broker.client.acl_deluser(name)
