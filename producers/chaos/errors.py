"""What ends `fleet chaos` before it can say anything of the graph.

FleetError
├── ChaosUsage    a file, an answer or a result is missing or can't be used   exit code 2
└── ChaosFailed   the servers or workers of the run itself failed
"""

from typing import ClassVar

from infra.errors import FleetError


class ChaosUsage(FleetError):
    """Something that the user gives is missing or can't be used."""

    code: ClassVar[str] = "usage"
    exit_code: ClassVar[int] = 2


class ChaosFailed(FleetError):
    """The run could not be finished."""

    code: ClassVar[str] = "chaos_failed"
