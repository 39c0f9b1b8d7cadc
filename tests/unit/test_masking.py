"""Masking: what is hidden, what stays readable, and what must be left alone."""

import timeit
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from infra.masking import Rule, field_kind, mask, mask_text


@pytest.mark.parametrize(
    ("plain", "masked"),
    [
        ("call 13812341234 now", "call 138****1234 now"),
        ("+86 138 1234 1234", "+86 138****1234"),
        ("电话13812341234。", "电话138****1234。"),
        ("+1 415-555-2671", "+141****2671"),
        ("(415) 555-2671", "***-***-2671"),
        ("to li.wei@example.com.", "to l***@example.com."),
        ("card 4111 1111 1111 1111", "card **** **** **** 1111"),
        ("5500005555555559", "**** **** **** 5559"),
        ("id 11010519491231002X", "id 110***********002X"),
        ("ssn 123-45-6789", "ssn ***-**-6789"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("{'password': 'hunter2'}", "{'password': '***'}"),
        ("GET /x?access_token=abc&y=1", "GET /x?access_token=***&y=1"),
        ("postgresql://fleet:pw@db:5432/x", "postgresql://fleet:***@db:5432/x"),
        ("key sk-abcdefghijklmnop1234", "key ***"),
        ("eyJhbGciOi.eyJzdWIiOi.c2ln", "***"),
    ],
)
def test_personal_data_and_secrets_in_text_are_masked(plain: str, masked: str) -> None:
    """By pattern; and masking what is masked changes nothing."""
    assert mask_text(plain) == masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "turn of refund:A1001: message start-A1001, epoch 12, done",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "2026-01-02T03:04:05.123456Z on 192.168.1.100:8080",
        "order 4111111111111112 of 20250101123456789",
        "epoch 1712345678901, took 0.013812341234 s",
        "fa13812341234be",
        "11010519491231002A",
        "max_tokens=100, token_count: 5",
        "basic authentication failed; the token is gone",
    ],
)
def test_ids_times_and_plain_words_are_left_alone(text: str) -> None:
    """A card's check digit, an id's birth date and word boundaries tell the difference."""
    assert mask_text(text) is text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("phone", "phone"),
        ("userPhone", "phone"),
        ("mobile-number", "phone"),
        ("customer_email", "email"),
        ("cardNumber", "card"),
        ("id_card", "id"),
        ("X-Api-Key", "secret"),
        ("clientSecret", "secret"),
        ("refresh_token", "secret"),
        ("max_tokens", None),
        ("input_tokens", None),
        ("email_verified", None),
        ("order_id", None),
        ("spin", None),
        ("hotel", None),
    ],
)
def test_a_name_says_what_its_field_holds(name: str, kind: str | None) -> None:
    """Whole words, the last ones, in any spelling."""
    assert field_kind(name) == kind


def test_fields_are_masked_by_name_at_any_depth() -> None:
    """Numbers too; flags and what is absent stay."""
    masked = mask(
        {
            "customer": {"phone": 13812341234, "emails": [], "email": "a@b.example"},
            "card": {"number": "4111111111111111", "default": True},
            "api_key": None,
            "items": ["13812341234"],
            "usage": {"input_tokens": 3},
        }
    )
    assert masked == {
        "customer": {"phone": "138****1234", "emails": [], "email": "a***@b.example"},
        "card": {"number": "**** **** **** 1111", "default": True},
        "api_key": None,
        "items": ["138****1234"],
        "usage": {"input_tokens": 3},
    }
    assert mask(masked) == masked


@dataclass
class Customer:
    name: str
    phone: str


class Account(BaseModel):
    customer: str
    token: str


def test_objects_are_copied_with_their_fields_masked() -> None:
    """Dataclasses and pydantic models keep their type; the original is not touched."""
    customer, account = Customer("Li", "13812341234"), Account(customer="Li", token="t-1")
    assert mask([customer, account]) == [
        Customer("Li", "138****1234"),
        Account(customer="Li", token="***"),
    ]
    assert customer.phone == "13812341234" and account.token == "t-1"


def test_what_has_nothing_to_mask_is_the_same_object() -> None:
    """So a caller can tell, and nothing is copied for nothing."""
    value = {"a": [1, "x", {"b": (None, 2.5)}], "c": object()}
    assert mask(value) is value


def test_a_list_of_names_masks_these_fields_alone() -> None:
    """Known names keep their shape, others are hidden; text is not searched."""
    rule = Rule.of(["phone", "homeAddress"])
    assert rule is not None
    value = {"phone": "13812341234", "home_address": "1 Way", "note": "13812341234", "token": "t"}
    assert mask(value, rule) == {
        "phone": "138****1234",
        "home_address": "***",
        "note": "13812341234",
        "token": "t",
    }


@pytest.mark.parametrize("given", ["phone", 1, [1], [""], {"phone": True}])
def test_a_rule_of_another_form_is_refused(given: object) -> None:
    """It is true or a list of field names."""
    with pytest.raises(ValueError, match="list of field names"):
        Rule.of(given)


def test_masking_never_raises_and_ends() -> None:
    """Cycles are cut, objects that break when they are looked at are hidden."""
    cycle: dict[str, object] = {}
    cycle["self"] = cycle
    assert "***" in repr(mask(cycle))

    class Broken(dict[str, str]):
        def items(self) -> None:  # type: ignore[override]
            raise RuntimeError

    assert mask({"a": Broken()}) == "***"


def test_a_usual_line_costs_little() -> None:
    """Below 50 µs on any machine, a few on most."""
    line = "turn of refund:A1001: message start-A1001-5d3f, epoch 12345, done"
    assert min(timeit.repeat(lambda: mask_text(line), number=200, repeat=5)) / 200 < 50e-6
