"""Messages: what a door lets in, and how it names and hashes it. No servers needed."""

import json
import math
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from producers.errors import InvalidKey, InvalidPayload, ProducerError
from producers.messages import (
    Amend,
    Answer,
    Input,
    Resolve,
    Start,
    built,
    canonical_hash,
    canonical_json,
    checkpoint_thread_id,
    json_schema,
    split_thread_id,
    thread_id,
)
from producers.payloads import MAX_BYTES, MAX_DEPTH, checked, checked_object

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=15,
)
objects = st.dictionaries(text, values, max_size=4)
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


def start(**fields: Any) -> Start:
    return Start(**{"graph": "refund", "key": "A1", "input": {}, **fields})


@given(objects)
def test_json_is_let_in_unchanged(payload: dict[str, Any]) -> None:
    """Whatever JSON can hold and Postgres can store passes as it is."""
    assert checked_object(payload) == payload


@given(objects)
def test_the_hash_survives_a_round_trip(payload: dict[str, Any]) -> None:
    """The canonical form, read back by anybody, has the same hash."""
    assert canonical_hash(json.loads(canonical_json(payload))) == canonical_hash(payload)


@given(objects)
def test_the_hash_ignores_the_order_of_keys(payload: dict[str, Any]) -> None:
    """Two objects that differ in the order of their keys are the same payload."""
    turned = dict(reversed(list(payload.items())))
    assert canonical_hash(turned) == canonical_hash(payload)


@given(objects, objects)
def test_other_payloads_have_other_hashes(one: dict[str, Any], two: dict[str, Any]) -> None:
    """The hash is equal exactly when the canonical form is."""
    assert (canonical_hash(one) == canonical_hash(two)) == (
        canonical_json(one) == canonical_json(two)
    )


def test_the_canonical_form_is_fixed() -> None:
    """Other languages rely on it: sorted keys, no spaces, no needless escapes."""
    payload = {"b": [1, 2.5, None], "a": "ü\n"}
    assert canonical_json(payload) == '{"a":"ü\\n","b":[1,2.5,null]}'
    assert canonical_hash({"a": 1}) == (
        "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    )


BAD = {
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "nan": math.nan,
    "inf": math.inf,
    "beyond 64 bits": 2**63,
    "below 64 bits": -(2**63) - 1,
    "Decimal": Decimal("1.50"),
    "bytes": b"x",
    "set": {1},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@given(path=st.lists(st.sampled_from(["list", "object"]), max_size=4))
def test_what_can_not_be_stored_is_refused_at_any_depth(bad: Any, path: list[str]) -> None:
    """NUL, surrogates, NaN, huge integers and non-JSON are refused wherever they are."""
    value = bad
    for kind in path:
        value = [1, value] if kind == "list" else {"k": value}
    with pytest.raises(InvalidPayload):
        checked_object({"outer": value})


@pytest.mark.parametrize("key", ["a\x00", "\ud800", 7, None])
def test_keys_of_objects_are_checked_too(key: Any) -> None:
    """A key can hold what a value can't hold either."""
    with pytest.raises(InvalidPayload):
        checked_object({"outer": {key: 1}})


def test_the_error_names_the_place() -> None:
    """A person finds the value by its path."""
    with pytest.raises(InvalidPayload, match=r"input\.items\[1\]\.note holds a NUL"):
        start(input={"items": [{}, {"note": "\x00"}]})


@pytest.mark.parametrize("payload", [None, [], "text", 1, b"{}"])
def test_a_payload_is_an_object(payload: Any) -> None:
    """Anything else than an object is refused, with what it was."""
    with pytest.raises(InvalidPayload, match="not an object"):
        start(input=payload)


def test_a_payload_of_256_kib_is_the_largest() -> None:
    """The limit counts bytes of JSON, not characters."""
    room = MAX_BYTES - len('{"a":""}')
    assert start(input={"a": "x" * room})
    with pytest.raises(InvalidPayload, match="262144"):
        start(input={"a": "x" * (room + 1)})
    with pytest.raises(InvalidPayload):
        start(input={"a": "ü" * (room // 2 + 1)})


def test_depth_is_limited_and_cycles_end() -> None:
    """A payload that contains itself is refused, not followed for ever."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with pytest.raises(InvalidPayload, match="nested deeper"):
        checked_object(cycle)
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert checked(deep) == deep


def test_subclasses_become_plain() -> None:
    """Enums and the like are sent as the JSON they stand for."""

    class Colour(StrEnum):
        RED = "red"

    class Level(IntEnum):
        LOW = 1

    plain = checked({"colour": Colour.RED, "level": Level.LOW, "pair": (1, 2)})
    assert plain == {"colour": "red", "level": 1, "pair": [1, 2]}
    assert type(plain["colour"]) is str and type(plain["level"]) is int


@pytest.mark.parametrize(
    "key",
    ["", "   ", "x" * 256, "a\nb", "a\x00", "a\x7f", "a\u2028b", "\ud800", "A1#2", 7, None],
)
def test_keys_that_name_nothing_are_refused(key: Any) -> None:
    """Empty, blank, too long, with control characters, or like another generation's id."""
    with pytest.raises(InvalidKey):
        start(key=key)


@pytest.mark.parametrize("key", ["A1001", "ü 1/2:3", "x" * 255, "#2x", "A#b", "a@b.example"])
def test_keys_may_be_any_other_text(key: str) -> None:
    """Colons and slashes too: only the first colon of a thread_id parts."""
    assert split_thread_id(start(key=key, tenant="acme").thread_id) == ("acme", "refund", key)


@given(names, names, st.just("") | names)
def test_thread_ids_can_be_taken_apart(graph: str, key: str, tenant: str) -> None:
    """split_thread_id undoes thread_id."""
    assert split_thread_id(thread_id(graph, key, tenant)) == (tenant, graph, key)


@pytest.mark.parametrize("thread", ["", "refund", "refund:", ":A1", "/:A1", "a/:A1", "a/b/c:A1"])
def test_what_is_no_thread_id_is_refused(thread: str) -> None:
    """Never guessed at: a wrong id must not start or find anything."""
    with pytest.raises(InvalidKey):
        split_thread_id(thread)


def test_checkpoint_ids_of_generations_never_meet_those_of_keys() -> None:
    """No key can be written that shares LangGraph's thread_id with another's generation."""
    second = checkpoint_thread_id("refund:A1", 2)
    assert (checkpoint_thread_id("refund:A1", 1), second) == ("refund:A1", "refund:A1#2")
    with pytest.raises(InvalidKey):
        split_thread_id(second)


@pytest.mark.parametrize(
    "fields",
    [
        {"graph": "a:b"},
        {"graph": ""},
        {"tenant": "a/b"},
        {"tenant": " "},
        {"message_id": ""},
        {"message_id": "x" * 256},
        {"message_id": "a\tb"},
    ],
)
def test_other_names_are_checked(fields: dict[str, Any]) -> None:
    """Graph, tenant and message_id follow the rules of keys."""
    with pytest.raises(InvalidKey):
        start(**fields)


def test_wrong_fields_are_told_in_one_sentence() -> None:
    """What pydantic finds comes out as our error, naming the field."""
    with pytest.raises(InvalidPayload, match="on_existing"):
        built(Start, graph="refund", key="A1", input={}, on_existing="maybe")
    with pytest.raises(InvalidPayload, match="bogus"):
        built(Start, graph="refund", key="A1", input={}, bogus=1)


@pytest.mark.parametrize("field", ["priority", "delay"])
@pytest.mark.parametrize("value", [True, "5", [5]])
def test_a_number_is_a_number(field: str, value: Any) -> None:
    """Neither `true`, which Python counts as 1, nor text that looks like one."""
    with pytest.raises(InvalidPayload, match=field):
        built(Start, graph="refund", key="A1", input={}, **{field: value})


def test_a_result_goes_with_what_happened_only() -> None:
    """A resolve says that it happened, with a result, or that it did not."""
    with pytest.raises(InvalidPayload):
        Resolve(graph="r", key="1", request_id="q", happened=False, result=1)


def test_what_accept_gets() -> None:
    """The argument of fleet.accept has what its kind needs, and a hash over all of it."""
    names = {"graph": "refund", "key": "A1", "tenant": "acme", "message_id": "m1"}
    answer = Answer(**names, question_id="q1", value="yes", answered_by="ann")
    args = answer.accept_args(notify=True)
    assert args["kind"] == "answer" and args["notify"] is True
    assert (args["question_id"], args["answered_by"]) == ("q1", "ann")
    assert args["payload"] == {"question_id": "q1", "value": "yes"}
    assert args["payload_hash"] == canonical_hash(args["payload"])
    assert start(on_existing="restart").accept_args()["on_existing"] == "restart"
    assert "delay" not in start().accept_args()
    assert start(delay=1.5).accept_args()["delay"] == 1.5


def test_two_messages_without_an_id_are_two_messages() -> None:
    """A made-up message_id is never the same twice."""
    assert start().message_id != start().message_id


def test_the_json_schema_takes_what_the_models_make() -> None:
    """The contract for other languages fits our own messages, and no others."""
    check = Draft202012Validator(json_schema())
    names = {"graph": "refund", "key": "A1"}
    messages = [
        start(),
        Input(**names, input={"text": "hello"}),
        Answer(**names, question_id="q", value={"decisions": []}),
        Resolve(**names, request_id="r", happened=True, result={"refund_id": "1"}),
        Amend(**names, as_node="load_order", values={"amount": "1.00"}),
    ]
    for message in messages:
        check.validate(message.model_dump(mode="json"))
    assert not check.is_valid({"kind": "start", "graph": "refund", "key": "", "input": {}})
    assert not check.is_valid({"kind": "start", "graph": "refund", "key": "A1", "input": []})
    assert not check.is_valid({"kind": "other", "graph": "refund", "key": "A1"})


def test_errors_read_as_one_line_and_carry_data() -> None:
    """Message, hint and data are there for people and for machines."""
    with pytest.raises(ProducerError) as caught:
        start(key="a\nb\x1b[2J")
    assert str(caught.value).isprintable()
    assert caught.value.as_dict()["code"] == "invalid_key"
    assert caught.value.exit_code == 2
