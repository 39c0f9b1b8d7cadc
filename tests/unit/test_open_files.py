"""A process that serves many takes as many open files as it may have."""

import subprocess
import sys

from tests.harness import ROOT

_PROGRAM = """
import resource
from infra.open_files import allow_many
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
print(allow_many())
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """Without root, and no further."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.split() == ["256"], done.stderr
