"""What a chat page may send: each frame that is none is refused with its code."""

import json
from typing import Any

import pytest

from producers.gateway.ws_line import encoded
from producers.gateway.ws_messages import MAX_FRAME, Init, Refused, Say, parsed


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "invalid_message"),
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("[" * 100_0, "invalid_json"),
        ('{"type": "message", "content": NaN}', "invalid_json"),
        ("[]", "invalid_message"),
        ("{}", "invalid_message"),
        ('{"type": 7}', "invalid_message"),
        ('{"type": "shout"}', "unknown_type"),
        ('{"type": "message", "content": "hi"}', "invalid_message"),
        ('{"type": "message", "content": "", "message_id": "m"}', "invalid_message"),
        ('{"type": "message", "content": ["hi"], "message_id": "m"}', "invalid_message"),
        ('{"type": "answer", "question_id": "q", "message_id": "m"}', "invalid_message"),
        (json.dumps({"type": "ping", "x": "y" * MAX_FRAME}), "too_large"),
        ('{"type": "ping", "x": "' + "室" * (MAX_FRAME // 2) + '"}', "too_large"),
    ],
)
def test_what_is_no_frame_is_refused(text: Any, code: str) -> None:
    """With its code, and nothing to try again."""
    with pytest.raises(Refused) as caught:
        parsed(text)
    assert caught.value.code == code
    assert caught.value.as_frame()["retry"] is False and caught.value.message


def test_a_refusal_names_the_message_and_never_repeats_what_was_given() -> None:
    """It may be a secret."""
    with pytest.raises(Refused) as caught:
        parsed('{"type": "message", "content": {"pin": "4711"}, "message_id": "m1"}')
    assert caught.value.as_frame()["message_id"] == "m1" and "4711" not in str(caught.value)


def test_frames_of_newer_pages_are_taken() -> None:
    """Fields that this gateway does not know mean nothing."""
    frame = parsed('{"type": "message", "content": "hi", "message_id": "m", "mood": "good"}')
    assert frame == Say(type="message", content="hi", message_id="m")


def test_a_token_is_not_shown() -> None:
    """A frame may come into a log."""
    frame = parsed('{"type": "init", "token": "secret-token"}')
    assert isinstance(frame, Init) and frame.token == "secret-token"
    assert "secret-token" not in repr(frame)


@pytest.mark.parametrize("value", ["\ud800", 1 << 70, "室", None])
def test_whatever_a_graph_gives_can_be_sent(value: Any) -> None:
    """Text that is no Unicode, and numbers of any size."""
    assert json.loads(encoded({"x": value}).encode()) == {"x": value}
