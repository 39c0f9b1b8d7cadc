"""The OpenAPI document is true: requests made from it, good and bad, get what it says."""

import json
import re
from typing import Any

import hypothesis
import pytest
import schemathesis
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


def test_every_reference_leads_somewhere(gateway: Gateway) -> None:
    """And each door has examples of what is sent to it."""
    with gateway.client() as client:
        found = client.get("/openapi.json").json()
    named = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(found)))
    assert named <= found["components"]["schemas"].keys()
    for name in ("Send", "GivenAnswer", "ProblemBody"):
        assert found["components"]["schemas"][name]["examples"]
