"""Words for the shell's completion, from the fleet's database; none when it can't be asked."""

import contextlib
import io
import os
from collections.abc import Callable

# Threads that begin with what is typed, at most so many.
_MOST = 50


def _asked(ask: Callable[[], list[str]], begun: str) -> list[str]:
    """What was found that begins so. A shell that waits for us must never see an error."""
    try:
        return [word for word in ask() if word.startswith(begun)][:_MOST]
    except Exception:
        return []


def threads(incomplete: str) -> list[str]:
    """Ids of the threads that changed last."""

    def ask() -> list[str]:
        from ..client import Fleet

        with Fleet() as fleet:
            return [row.thread_id for row in fleet.threads(limit=1000)]

    return _asked(ask, incomplete)


def graphs(incomplete: str) -> list[str]:
    """Registered graphs."""

    def ask() -> list[str]:
        from ..client import Fleet

        with Fleet() as fleet:
            return fleet.graphs()

    return _asked(ask, incomplete)


def workers(incomplete: str) -> list[str]:
    """Names of the workers."""

    def ask() -> list[str]:
        from ..client import Fleet

        with Fleet() as fleet:
            return [row.worker for row in fleet.workers()]

    return _asked(ask, incomplete)


def in_bash(run: Callable[[], int]) -> int:
    """Complete for bash, which takes `refund:A1` for three words: it is put together for `run`,
    and of what is offered only what follows the last colon is said, since bash keeps the rest.
    """
    words = os.environ.get("COMP_WORDS", "").split("\n")
    before = words[: int(os.environ.get("COMP_CWORD") or 0) + 1]
    whole = _joined_at_colons(before)
    os.environ["COMP_WORDS"] = "\n".join(whole)
    os.environ["COMP_CWORD"] = str(len(whole) - 1)
    kept = whole[-1][: whole[-1].rfind(":") + 1]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = run()
    print("\n".join(line.removeprefix(kept) for line in said.getvalue().splitlines()))
    return code


def _joined_at_colons(words: list[str]) -> list[str]:
    whole: list[str] = []
    for word in words:
        if whole and (word == ":" or whole[-1].endswith(":")):
            whole[-1] += word
        else:
            whole.append(word)
    return whole
