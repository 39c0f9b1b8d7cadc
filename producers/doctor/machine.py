"""What runs here: Python, and the packages that this release was tested with."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from .finding import Finding, ok, problem

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


def look() -> Iterator[Finding]:
    yield python(sys.version_info[:2])
    yield packages()


def python(running: tuple[int, ...]) -> Finding:
    said = f"Python {platform.python_version()} runs the fleet"
    if OLDEST_PYTHON <= running <= NEWEST_PYTHON:
        return ok("python", f"{said}.", version=list(running))
    oldest, newest = (".".join(map(str, v)) for v in (OLDEST_PYTHON, NEWEST_PYTHON))
    return problem(
        "python",
        f"{said}, which was not tested.",
        f"Use Python {oldest} to {newest}.",
        version=list(running),
    )


def packages(distribution: str = "threadfleet") -> Finding:
    """Installed versions against the distribution's own requirements."""
    try:
        wanted = [Requirement(line) for line in requires(distribution) or []]
    except PackageNotFoundError:
        return problem(
            "packages",
            f"The package {distribution} is not installed, so nothing says what it needs.",
            "Install it with pip, or start through ./fleet.",
        )
    wrong = []
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            wrong.append({"package": requirement.name, "wanted": str(requirement.specifier)})
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(
                {
                    "package": requirement.name,
                    "wanted": str(requirement.specifier),
                    "installed": found,
                }
            )
    if not wrong:
        return ok("packages", f"All {len(wanted)} are of the versions that were tested.")
    said = "; ".join(
        f"{w['package']} {w.get('installed', 'is missing')} (wanted {w['wanted']})" for w in wrong
    )
    return problem(
        "packages",
        f"Packages are not of the versions that were tested: {said}.",
        "Install what requirements.lock names: pip install -r requirements.lock.",
        packages=wrong,
    )
