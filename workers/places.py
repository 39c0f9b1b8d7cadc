"""Where in a graph something was told."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was told: the node, the nodes around its graph (``outer|inner``), and
    the ids of the tasks that it runs in, the innermost last."""

    node: str = ""
    ns: str = ""
    tasks: tuple[str, ...] = ()

    @classmethod
    def of(cls, namespace: str) -> "Place":
        """From the ``checkpoint_ns`` of a running task."""
        parts = [p.partition(":") for p in namespace.split("|") if p and not p.isdigit()]
        if not parts:
            return cls()
        names = [name for name, _, _ in parts]
        return cls(names[-1], "|".join(names[:-1]), tuple(task for _, _, task in parts if task))

    def data(self) -> dict[str, Any]:
        return {"node": self.node, "ns": self.ns}
