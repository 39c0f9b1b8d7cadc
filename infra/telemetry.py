"""Logs: a line of JSON each, or readable where a person looks; nothing personal in them.

Every record of the process goes through here, from `logging` and from `structlog`: it is
bound to the thread, message and epoch of the turn that it belongs to, and masked
(infra.masking) before it is written.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from logging.handlers import WatchedFileHandler
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.types import EventDict, Processor

from infra.masking import DEFAULT, Rule, mask, mask_text

Format = Literal["auto", "json", "text"]

#: Libraries whose lines per request hold URLs, and so ids.
_TALKATIVE = ("httpx", "httpcore", "urllib3")

#: thread, message and epoch of the turn under way. Put together for a line that is written
#: only: a turn that logs nothing pays for setting this.
_turn: ContextVar[tuple[str, str, int] | None] = ContextVar("fleet_turn", default=None)


def _name_turn(_: Any, __: str, event: EventDict) -> EventDict:
    turn = _turn.get()
    if turn is not None:
        for name, value in zip(("thread", "message", "epoch"), turn, strict=True):
            event.setdefault(name, value)
    return event


# In each record, whichever library made it.
_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    _name_turn,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
]


def configure(
    level: int | str = "INFO",
    target: TextIO | str | None = None,
    log_format: Format = "auto",
    colors: bool | None = None,
    rule: Rule = DEFAULT,
) -> None:
    """Send the whole process's logs to ``target``: a stream, a file's path, or stderr (None).

    ``auto`` is text on a terminal and JSON elsewhere. ``rule``: what is masked. Called again,
    it replaces what was.
    """
    handler: logging.Handler
    if isinstance(target, str):
        handler, on_terminal = WatchedFileHandler(target, encoding="utf-8"), False
    else:
        stream = target or sys.__stderr__
        handler, on_terminal = logging.StreamHandler(stream), bool(stream and stream.isatty())
    as_text = log_format == "text" or (log_format == "auto" and on_terminal)
    colors = on_terminal if colors is None else colors and on_terminal
    handler.setFormatter(_formatter(as_text, colors, rule))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


@contextlib.contextmanager
def bound(thread: str, message: str, epoch: int) -> Iterator[None]:
    """Name the turn in every line that is logged meanwhile, by its nodes too."""
    token = _turn.set((thread, message, epoch))
    try:
        yield
    finally:
        _turn.reset(token)


def _formatter(as_text: bool, colors: bool, rule: Rule) -> ProcessorFormatter:
    def masked(_: Any, __: str, event: EventDict) -> EventDict:
        found: EventDict = mask(dict(event), rule)
        if isinstance(found, dict):
            return found
        return {"event": mask_text(str(event.get("event"))), "level": event.get("level")}

    renderer: Processor
    if as_text:
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer(serializer=_json)
    return ProcessorFormatter(
        foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder(), _without_doubles],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            masked,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
    )


def _without_doubles(_: Any, __: str, event: EventDict) -> EventDict:
    """Celery adds a task's arguments to its own lines, uvicorn the line again in colours."""
    event.pop("data", None)
    event.pop("color_message", None)
    return event


def _json(event: Any, default: Any, **_: Any) -> str:
    try:
        return orjson.dumps(event, default=default, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        # A lone surrogate, a number beyond 64 bits: what can't be JSON is shown as it is.
        return orjson.dumps({"event": ascii(event), "level": event.get("level")}).decode()
