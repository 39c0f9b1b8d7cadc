"""Take out of this environment what a distribution does not need to run.

    python runtime_only.py threadfleet

requirements.lock holds the tools of tests and builds too, so that there is one lock; the
image is to hold what runs.
"""

import re
import subprocess
import sys
from importlib.metadata import distributions, requires

from packaging.requirements import Requirement


def canonical(name: str) -> str:
    """A name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(root: str) -> set[str]:
    """Names of all that `root` needs, with the extras that are asked for."""
    found: set[tuple[str, str]] = set()
    todo = [(canonical(root), "")]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for line in requires(name) or []:
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                todo += [(canonical(wanted.name), e) for e in ("", *wanted.extras)]
    return {name for name, _ in found}


def main() -> None:
    installed = {canonical(d.metadata["Name"]) for d in distributions()}
    surplus = sorted(installed - needed(sys.argv[1]) - {"pip"})
    # pip itself goes last: nothing is installed in a container.
    for names in (surplus, ["pip"]):
        if names:
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "-y", *names], check=True)


if __name__ == "__main__":
    main()
