"""Words for the shell's completion, from the fleet's database; none when it can't be asked."""

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
