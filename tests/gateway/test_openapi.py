"""The OpenAPI document is true: requests made from it, good and bad, get what it says."""

import json
import re
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from producers import Fleet
from tests.gateway.serving import Gateway
from tests.harness import Database
from tests.integration.mailbox import INPUT, ask

CHECKS = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture
def document(gateway: Gateway, fleet: Fleet, database: Database) -> Any:
    """Of a gateway with a thread that asks."""
    fleet.submit("refund", "A1001", INPUT)
    ask(database, "refund:A1001", "q1")
    return schemathesis.openapi.from_url(f"{gateway.url}/openapi.json").include(
        path_regex="^/(threads|healthz|readyz)"
    )


@pytest.fixture
def openapi(client: httpx.Client) -> Any:
    return client.get("/openapi.json").json()


@pytest.mark.timeout(300)
def test_each_request_gets_what_the_document_says(document: Any) -> None:
    """Status, media type and shape, of requests that fit it and of some that don't; no 500."""
    bounded = hypothesis.settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    tried = 0
    for found in document.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            try:
                cases = operation.as_strategy(generation_mode=mode)
                bounded(hypothesis.given(cases)(_tried))()
            except hypothesis.errors.Unsatisfiable:
                continue  # nothing can be wrong with it
            bounded(hypothesis.given(cases)(_tried_where_something_is))()
            tried += 1
    assert tried > 10


def _tried(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


def _tried_where_something_is(case: schemathesis.Case) -> None:
    """Names made up by chance mostly lead nowhere."""
    there = {"graph": "refund", "key": "A1001", "question": "q1"}
    case.path_parameters = {name: there[name] for name in case.path_parameters or {}}
    case.call_and_validate(checks=CHECKS)


def test_every_reference_leads_somewhere(openapi: Any) -> None:
    """And what is sent to a door, and what it says against it, has examples."""
    named = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(openapi)))
    assert named <= openapi["components"]["schemas"].keys()
    for name in ("Send", "GivenAnswer", "ProblemBody"):
        assert openapi["components"]["schemas"][name]["examples"]


def test_every_good_answer_has_an_example_that_fits(openapi: Any) -> None:
    """Each 2xx of each door; an example that has grown old would not."""
    told = [
        (f"{method} {path} {status}", kind, shown)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for kind, shown in answer["content"].items()
    ]
    assert len(told) > 15
    for door, kind, shown in told:
        schema = shown["schema"]
        if kind == "text/event-stream":
            assert shown["example"].endswith("\n\n"), door
            continue
        name = schema.get("items", schema)["$ref"].rpartition("/")[2]
        found = openapi["components"]["schemas"][name]
        fits = Draft202012Validator({**found, "components": openapi["components"]})
        assert found.get("examples"), door
        for example in found["examples"]:
            fits.validate(example)
            assert example.keys() == found["properties"].keys(), door
