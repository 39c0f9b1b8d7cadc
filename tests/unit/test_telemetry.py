"""Logs: their form, what they are bound to, and what must not be in them."""

import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
import structlog

from infra import telemetry
from infra.masking import Rule


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The root logger as it was, pytest's handlers included."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_bound_to_its_turn() -> None:
    """thread, message and epoch are in each line of the turn and in none after it."""
    telemetry.configure("INFO", stream := io.StringIO())
    log = logging.getLogger("fleet.turn")
    with telemetry.bound("refund:A1001", "m-1", 7):
        log.info("step %s", "one")
        structlog.get_logger("graph").warning("from a node", amount=12)
    log.info("after")
    first, second, third = lines(stream)
    turn = {"thread": "refund:A1001", "message": "m-1", "epoch": 7}
    assert first.items() >= {"event": "step one", "level": "info", "logger": "fleet.turn"}.items()
    assert first.items() >= turn.items() and first["timestamp"].endswith("Z")
    assert second.items() >= {"event": "from a node", "amount": 12, **turn}.items()
    assert not third.keys() & turn.keys()


def test_a_node_in_another_thread_logs_for_the_same_turn() -> None:
    """LangGraph runs parallel nodes in copies of the context."""
    telemetry.configure("INFO", stream := io.StringIO())
    with telemetry.bound("refund:A1001", "m-1", 7), ThreadPoolExecutor() as pool:
        pool.submit(copy_context().run, logging.getLogger("node").info, "hello").result()
    assert lines(stream)[0]["thread"] == "refund:A1001"


def test_nothing_personal_is_logged() -> None:
    """Not in the text, the arguments, the bound fields, the extras or a traceback."""
    telemetry.configure("INFO", stream := io.StringIO())
    log = logging.getLogger("fleet.turn")
    with telemetry.bound("chat:13812341234", "m-1", 7):
        log.info(
            "to %s", "li@example.com", extra={"phone": "13812341234", "note": "4111111111111111"}
        )
        try:
            raise ValueError("card 4111 1111 1111 1111")
        except ValueError:
            log.exception("failed for %s", {"password": "hunter2"})
    text = stream.getvalue()
    for plain in ("13812341234", "li@example", "4111 1111", "4111111111111111", "hunter2"):
        assert plain not in text
    assert "138****1234" in text and "ValueError: card **** **** **** 1111" in text


def test_further_fields_are_hidden_on_request() -> None:
    """FLEET_MASK_FIELDS names them."""
    telemetry.configure("INFO", stream := io.StringIO(), rule=Rule.besides(["nick-name", "x"]))
    structlog.get_logger("node").info("hello", nickName="Li", phone="13812341234", y=1)
    (line,) = lines(stream)
    assert (line["nickName"], line["phone"], line["y"]) == ("***", "138****1234", 1)


def test_celerys_copy_of_a_tasks_arguments_is_dropped() -> None:
    """Its lines carry them beside the text."""
    telemetry.configure("INFO", stream := io.StringIO())
    logging.getLogger("celery.app.trace").info("done", extra={"data": {"args": "('x',)"}})
    assert "data" not in lines(stream)[0]


def test_httpx_says_nothing_of_each_request() -> None:
    """Its URLs hold ids."""
    telemetry.configure("DEBUG", stream := io.StringIO())
    logging.getLogger("httpx").info("HTTP Request: GET http://shop/orders/A1001")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("odd", ["\ud800", 2**70, {1: 2}, object(), float("nan"), b"\xff"])
def test_a_line_is_json_whatever_is_in_it(odd: Any) -> None:
    """What JSON lacks is shown in another form; no line is lost."""
    telemetry.configure("INFO", stream := io.StringIO())
    structlog.get_logger("node").info("odd", value=odd)
    assert "odd" in lines(stream)[0]["event"]


def test_a_terminal_gets_text() -> None:
    """JSON elsewhere; either on request."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    telemetry.configure("INFO", terminal := Terminal())
    with telemetry.bound("refund:A1001", "m-1", 7):
        logging.getLogger("x").info("hello")
    assert "hello" in terminal.getvalue() and not terminal.getvalue().startswith("{")
    telemetry.configure("INFO", forced := Terminal(), "json")
    logging.getLogger("x").info("hello")
    assert lines(forced)[0]["event"] == "hello"
    telemetry.configure("INFO", plain := io.StringIO(), "text")
    logging.getLogger("x").info("hello")
    assert "hello" in plain.getvalue() and "\x1b" not in plain.getvalue()


def test_a_log_file_may_be_moved_away(tmp_path: Any) -> None:
    """As logrotate does."""
    path = tmp_path / "worker.log"
    telemetry.configure("INFO", str(path))
    logging.getLogger("x").info("one")
    path.rename(tmp_path / "worker.log.1")
    logging.getLogger("x").info("two")
    assert json.loads(path.read_text())["event"] == "two"
