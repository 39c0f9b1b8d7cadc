"""What LangGraph has stored, for those who only look: as plain data, whatever it was.

Strictly: classes that a graph stored come out as what they were made of, and no code of
theirs is imported or run. So it can be read where the graph is not.
"""

import logging
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from graphs.values import plain

# It warns of every class that it does not import, which is what we want of it.
logging.getLogger("langgraph.checkpoint").setLevel(logging.ERROR)
SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)


def state_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a checkpoint's values that are the graph's state, as JSON holds them."""
    return {
        name: plain(value)
        for name, value in values.items()
        if not name.startswith(("__", "branch:", "join:"))
    }
