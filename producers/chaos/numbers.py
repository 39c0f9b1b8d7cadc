"""What a soak is judged by, in numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from .findings import Report

if TYPE_CHECKING:
    from .arena import Arena
    from .fire import Fire
    from .load import Load


@dataclass(frozen=True)
class Numbers:
    """seconds: how long it burned. kills, troubles: how many of each kind. processes: killed
    in those kills. accepted: messages. unavailable: sends that an outage refused or left open,
    sent again later. takeovers: seconds. rested: seconds from the end of the fire until all was
    done. fell: workers that served and then ended although nobody had killed them."""

    seed: int
    seconds: float
    kills: Mapping[str, int]
    troubles: Mapping[str, int]
    processes: int
    threads: int
    accepted: int
    unavailable: int
    takeovers: Sequence[float]
    rested: float
    fell: Sequence[str]
    report: Report
    took: float

    @classmethod
    def of(
        cls,
        seed: int,
        seconds: float,
        fire: "Fire",
        load: "Load",
        arena: "Arena",
        report: Report,
        rested: float,
        took: float,
    ) -> Self:
        return cls(
            seed=seed,
            seconds=seconds,
            kills=dict(fire.kills),
            troubles=dict(fire.troubles),
            processes=fire.processes,
            threads=report.looked_at["threads"],
            accepted=len(load.sent),
            unavailable=load.unavailable,
            takeovers=sorted(fire.takeovers.seconds),
            rested=rested,
            fell=[said for seat in arena.seats for said in seat.fell],
            report=report,
            took=took,
        )

    @property
    def ok(self) -> bool:
        return self.report.ok

    def found(self, *kinds: str) -> int:
        return sum(finding.kind in kinds for finding in self.report.findings)

    def takeover(self) -> dict[str, Any]:
        """How many turns were taken over, and seconds: of every second one at most, …"""
        at = self.takeovers
        ranks = {
            f"p{rank}_s": round(at[max(0, -(-rank * len(at) // 100) - 1)], 3) if at else None
            for rank in (50, 99, 100)
        }
        return {"count": len(at), **ranks}

    def as_dict(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "fire_seconds": round(self.seconds, 1),
            "seconds": round(self.took, 1),
            "kills": {"total": sum(self.kills.values()), **self.kills},
            "processes_killed": self.processes,
            "troubles": {"total": sum(self.troubles.values()), **self.troubles},
            "threads": self.threads,
            "accepted": self.accepted,
            "sent_again_after_an_outage": self.unavailable,
            "lost": self.found("lost", "unfinished"),
            "duplicate_effects": self.found("duplicate_effect", "unexpected_effect"),
            "forked_threads": self.found("forked", "stale_write"),
            "all_faults": len(self.report.findings),
            "takeover_under_fire": self.takeover(),
            "at_rest_after_s": round(self.rested, 1),
            "workers_that_ended_by_themselves": list(self.fell),
            "findings": self.report.as_dict()["findings"],
        }

    def show(self) -> None:
        """A table, and the faults if there are any."""
        from rich.console import Console
        from rich.table import Table

        console, table = Console(highlight=False), Table(show_header=False)
        for name, value in self._rows():
            table.add_row(name, value)
        console.print(table)
        if not self.ok:
            console.print(self.report.table())
        console.print("No fault found." if self.ok else f"{len(self.report.findings)} faults.")

    def _rows(self) -> list[tuple[str, str]]:
        takeover = self.takeover()
        return [
            ("seed", str(self.seed)),
            ("fire", f"{self.seconds:.0f} s"),
            ("kills", _counted(self.kills)),
            ("processes killed", str(self.processes)),
            ("troubles", _counted(self.troubles)),
            ("accepted", f"{self.accepted} messages of {self.threads} threads"),
            ("lost", str(self.found("lost", "unfinished"))),
            ("duplicate effects", str(self.found("duplicate_effect", "unexpected_effect"))),
            ("forked threads", str(self.found("forked", "stale_write"))),
            (
                "takeover under fire, s",
                f"p50 {takeover['p50_s']}, p99 {takeover['p99_s']}, longest {takeover['p100_s']}"
                f" ({takeover['count']})",
            ),
            ("all done after the fire", f"{self.rested:.1f} s"),
        ]


def _counted(numbers: Mapping[str, int]) -> str:
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(numbers.items()))
    return f"{sum(numbers.values())}: {listed}" if numbers else "0"
