"""What happened in one run, in order: attempts, nodes, effects, calls, the kill, the takeover."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from infra.failpoints import mark

from .record import Fact
from .trial import Run


def timeline(run: Run, facts: Iterable[Fact], once: Path) -> list[dict[str, Any]]:
    """Events ``{"at_ms", "what", "text"}``, from the run's first attempt on."""
    own = [f for f in facts if f.get("thread") == run.thread_id]
    if not own:
        return []
    begun = own[0]["at"]
    events = [(f["at"], f["what"], _text(f, own)) for f in own if f.get("node") != "__start__"]
    died = killed_at(run, once)
    if run.kill is not None and died is not None:
        events.append((died, "kill", f"kill -9 {run.kill.words()}"))
        after = [f["at"] for f in own if f["what"] == "attempt" and f["at"] > died]
        if after:
            took = round((min(after) - died) * 1000)
            events.append((min(after), "takeover", f"another process takes over, {took} ms later"))
    rank = {"takeover": 0, "attempt": 1}
    events.sort(key=lambda e: (e[0], rank.get(e[1], 2)))
    return [
        {"at_ms": round((at - begun) * 1000), "what": what, "text": text}
        for at, what, text in events
    ]


def killed_at(run: Run, once: Path) -> float | None:
    """When its failpoint acted; None where the run did not come to its place."""
    if run.kill is None:
        return None
    try:
        return (once / mark(run.kill.name(run.thread_id))).stat().st_mtime
    except FileNotFoundError:
        return None


def _text(fact: Fact, own: Sequence[Fact]) -> str:
    match fact["what"]:
        case "attempt":
            turns = [f["epoch"] for f in own if f["what"] == "attempt" and f["seq"] == fact["seq"]]
            number = turns.index(fact["epoch"]) + 1
            return f"attempt {number} at message {fact['seq']} ({fact['kind']})"
        case "node":
            return str(fact["node"])
        case "asked":
            return f"{fact['node']} asks"
        case "effect":
            return f"{fact['name']} sent under {str(fact['request_id'])[:12]} ({fact['policy']})"
        case "call":
            at = f" at {fact['site']}" if fact["site"] else ""
            return f"{fact['target']}{fact['path']}{at}, in no ledger"
        case "end":
            return f"the turn ends: {fact['outcome']}"
    return str(fact["what"])
