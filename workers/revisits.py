"""A subgraph with a history of its own (``checkpointer=True``), visited again after a crash.

LangGraph tells such a subgraph to resume whenever its parent does, and one that resumes
ignores its input. That is right where the visit had begun before the crash, and loses the
visit where the history's end is an earlier one's. Which of the two it is, its newest
checkpoint says: it names the parents' checkpoints under which it was written.
"""

import inspect
import logging
from typing import Any

from langgraph._internal._config import patch_configurable
from langgraph._internal._constants import (
    CONF,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_RESUMING,
)
from langgraph.pregel import _loop

log = logging.getLogger("fleet.revisits")

_stock_first = _loop.PregelLoop._first


def install() -> None:
    """Patch once per process; warn where LangGraph is not the one known."""
    if _loop.PregelLoop._first is _first:
        return
    if not patchable():
        log.warning(
            "this LangGraph's PregelLoop is not the one known: a subgraph with checkpointer=True "
            "that is visited again just after a crash may not see its input"
        )
        return
    _loop.PregelLoop._first = _first  # type: ignore[method-assign]


def patchable() -> bool:
    """Whether the installed LangGraph has the shape that the patch relies on."""
    source = inspect.getsource(_stock_first)
    return (
        list(inspect.signature(_stock_first).parameters)
        == ["self", "input_keys", "updated_channels"]
        and "configurable.get(\n                CONFIG_KEY_RESUMING" in source
        and "self.checkpoint_metadata" in source
    )


def _first(self: Any, **given: Any) -> Any:
    conf = self.config.get(CONF, {})
    if self.is_nested and conf.get(CONFIG_KEY_RESUMING) and not _begun(self, conf):
        self.config = patch_configurable(self.config, {CONFIG_KEY_RESUMING: False})
    return _stock_first(self, **given)


def _begun(loop: Any, conf: dict[str, Any]) -> bool:
    """Whether the newest checkpoint was written in the visit that is to be resumed."""
    before = loop.checkpoint_metadata.get("parents")
    if before is None:
        return True
    own = conf.get(CONFIG_KEY_CHECKPOINT_NS, "")
    now = {k: v for k, v in conf.get(CONFIG_KEY_CHECKPOINT_MAP, {}).items() if k != own}
    return all(now.get(namespace) == at for namespace, at in before.items() if namespace != own)
