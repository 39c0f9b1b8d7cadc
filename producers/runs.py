"""How one message's run is set up: LangGraph's `context` and `config`, beside the input.

They travel in the message's payload under one reserved name, so that they are part of what
makes two messages the same. What a message does not give is as the thread's last one had it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from .errors import InvalidPayload
from .payloads import checked_object, shown

#: The reserved name in a payload.
RUN = "__run__"

#: What of LangGraph's config a producer may set, and the type of each.
CONFIG: dict[str, tuple[type, ...]] = {
    "configurable": (dict,),
    "metadata": (dict,),
    "tags": (list,),
    "recursion_limit": (int,),
    "max_concurrency": (int,),
    "run_name": (str,),
}
#: What the fleet itself puts into `configurable`.
_OURS = frozenset({"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id"})


def checked_config(value: Any) -> dict[str, Any] | None:
    """A plain copy of a run's config, or InvalidPayload; None stays None."""
    if value is None:
        return None
    config = checked_object(value, "config")
    for key, item in config.items():
        kinds = CONFIG.get(key)
        if kinds is None:
            raise InvalidPayload(
                f"The config has {shown(key)!r}, which a message can't set.",
                f"It takes: {', '.join(CONFIG)}.",
            )
        if not isinstance(item, kinds) or isinstance(item, bool):
            raise InvalidPayload(
                f"The config's {key} is of type {type(item).__name__}.",
                f"It is of type {kinds[0].__name__}.",
            )
    for key in config.get("configurable", {}):
        if key in _OURS or key.startswith(("__", "fleet_")):
            raise InvalidPayload(
                f"The config's configurable has {shown(key)!r}, which the fleet sets itself.",
                "Leave it out.",
            )
    if any(config.get(limit, 1) < 1 for limit in ("recursion_limit", "max_concurrency")):
        raise InvalidPayload("A limit in the config is below 1.", "Give 1 or more.")
    if not all(isinstance(tag, str) for tag in config.get("tags", [])):
        raise InvalidPayload("A tag in the config is not text.", "Give tags as text.")
    return config


def checked_context(value: Any) -> dict[str, Any] | None:
    """A plain copy of a run's context, or InvalidPayload; None stays None."""
    return None if value is None else checked_object(value, "context")


def checked_input(value: Any) -> dict[str, Any]:
    """A plain copy of an input, or InvalidPayload."""
    given = checked_object(value, "input")
    if RUN in given:
        raise InvalidPayload(
            f"The input has {RUN!r}, a reserved name.", "Give context and config beside it."
        )
    return given


def joined(
    payload: dict[str, Any], context: dict[str, Any] | None, config: dict[str, Any] | None
) -> dict[str, Any]:
    """The payload with what is given of the two."""
    run = {k: v for k, v in (("context", context), ("config", config)) if v is not None}
    return {**payload, RUN: run} if run else payload


def parted(payload: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the payload as it was, {"context", "config"} as far as given)."""
    return {k: v for k, v in payload.items() if k != RUN}, dict(payload.get(RUN, {}))


RunInput: TypeAlias = Annotated[dict[str, Any], BeforeValidator(checked_input)]
RunContext: TypeAlias = Annotated[
    dict[str, Any] | None,
    BeforeValidator(checked_context),
    Field(description="LangGraph's context of the run; else the thread's last."),
]
RunConfig: TypeAlias = Annotated[
    dict[str, Any] | None,
    BeforeValidator(checked_config),
    Field(description="LangGraph's config of the run; else the thread's last."),
]
