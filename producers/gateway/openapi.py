"""The gateway's OpenAPI document."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .rest_examples import EXAMPLES, STREAM
from .rest_models import ProblemBody, problems


def document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's, with the problems that routes answer with and examples; made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema()
        # Theirs; a request that is not valid is a problem here.
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for name, examples in EXAMPLES.items():
            schemas[name]["examples"] = examples
        for path in made["paths"].values():
            for operation in path.values():
                _with_problems(operation)
                _with_streams(operation)
        app.openapi_schema = made
    return app.openapi_schema


def _with_problems(operation: dict[str, Any]) -> None:
    """What any door that asks who calls may answer with, where the route does not say so."""
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422")):
        del answers["422"]
    if "security" in operation:
        for status, answer in problems().items():
            answers.setdefault(str(status), answer)


def _with_streams(operation: dict[str, Any]) -> None:
    for answer in operation["responses"].values():
        if (stream := answer.get("content", {}).get("text/event-stream")) is not None:
            stream["example"] = STREAM
