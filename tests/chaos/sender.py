"""A producer that may die at any step: `python -m tests.chaos.sender`.

Each line of its input is a call of the client, ``{"call": "submit", "args": {...}}``; a child
makes it, and its exit code (negative: the signal it died of) is the line of output.
"""

import json
import os
import sys

import psycopg  # noqa: F401  so that children need not

from producers import Fleet


def main() -> None:
    postgres, redis = sys.argv[1:]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _send(postgres, redis, json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _send(postgres: str, redis: str, wanted: dict[str, object]) -> None:
    code = 1
    try:
        with Fleet(postgres, redis) as fleet:
            getattr(fleet, str(wanted["call"]))(**wanted["args"])  # type: ignore[arg-type]
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
