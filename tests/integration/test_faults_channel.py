"""What Celery is told of the broker is what its live channel works with. See docs/faults.md."""

import importlib
from typing import Any

import pytest
from celery import Celery


@pytest.fixture
def app(settings_env: None) -> Any:
    """A Celery application with the workers' configuration, read for this test's servers."""
    made = Celery("fleet", set_as_current=False)
    made.config_from_object(importlib.reload(importlib.import_module("workers.configuration")))
    return made


def test_the_live_channel_has_what_is_configured(app: Any) -> None:
    """Each option by the name that the transport reads; one under another name has no effect."""
    options = dict(app.conf.broker_transport_options)
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        found = {name: getattr(channel, name) for name in options if hasattr(channel, name)}
        parameters = channel._connparams()
    taken = found | {name: parameters[name] for name in options.keys() - found.keys()}
    assert taken == options
    assert "visibility_timeout" in found
    assert type(channel).__module__ == "workers.rejects"
