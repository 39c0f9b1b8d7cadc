"""The wake-up's envelope, as Celery and kombu read it. No servers needed."""

import base64
import json

from celery import Celery
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.virtual import Channel, Message

from producers.messages import split_thread_id, thread_id
from producers.wakeup import TASK, VERSION, message

keys = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=40)


@given(keys)
def test_the_body_names_the_thread_and_nothing_else(key: str) -> None:
    """Any key that a thread can have comes through."""
    thread = thread_id("refund", key)
    found = json.loads(message("fleet", thread))
    args, kwargs, embed = json.loads(base64.b64decode(found["body"]))
    assert args == [thread] and kwargs == {"v": VERSION}
    assert not any(embed.values())
    assert found["headers"]["argsrepr"] == repr((thread,))


def test_the_envelope_is_celery_s_own() -> None:
    """Every header and property is one that Celery 5.7 itself would have sent."""
    app = Celery(set_as_current=False)
    celerys = app.amqp.as_task_v2("id", TASK, args=("refund:A1",), kwargs={"v": VERSION})
    ours = json.loads(message("fleet", "refund:A1"))
    assert set(ours["headers"]) <= set(celerys.headers)
    assert ours["headers"]["argsrepr"] == celerys.headers["argsrepr"]
    assert ours["headers"]["kwargsrepr"] == celerys.headers["kwargsrepr"]
    assert set(ours["properties"]) >= set(celerys.properties)
    assert json.loads(base64.b64decode(ours["body"])) == [
        list(celerys.body[0]),
        celerys.body[1],
        celerys.body[2],
    ]


def test_kombu_can_put_it_back_without_a_binding() -> None:
    """The nameless exchange's routing key is the queue."""
    found = Message(json.loads(message("fleet", "refund:A1")), channel=Channel.__new__(Channel))
    assert found.content_type == "application/json"
    assert found.delivery_info == {"exchange": "", "routing_key": "fleet"}
    route = Channel._lookup(
        Channel.__new__(Channel),
        found.delivery_info["exchange"],
        found.delivery_info["routing_key"],
        default="dead",
    )
    assert route == ["fleet"]


def test_each_wake_up_is_its_own() -> None:
    """Two of a thread share neither task id nor delivery tag: acks must not mix."""
    one, two = (json.loads(message("fleet", "refund:A1")) for _ in range(2))
    assert one["headers"]["id"] != two["headers"]["id"]
    assert one["properties"]["delivery_tag"] != two["properties"]["delivery_tag"]


def test_a_wake_up_is_small() -> None:
    """It carries ids only."""
    assert len(message("fleet", thread_id("refund", "x" * 255))) < 2048
    assert split_thread_id("refund:A1") == ("", "refund", "A1")
