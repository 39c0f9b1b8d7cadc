"""How many files and sockets a process may have open."""

import resource
from contextlib import suppress


def allow_many() -> int:
    """As many as the system lets this process have; gives that. A shell's usual 1,024 would end
    a gateway's welcome at a thousand pages."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the system names no limit, or not the one that it keeps (macOS), ours stays.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
