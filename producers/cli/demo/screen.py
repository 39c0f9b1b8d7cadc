"""The demo's terminal: what happens, line by line on stderr; the table on stdout."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.errors import FleetError

from .orders import Decision, Ended, Order

_YES, _NO, _ALL = ("a", "approve", "y", "yes"), ("r", "reject", "n", "no"), ("all",)


class NoTerminal(FleetError):
    """There is nobody to ask."""

    code = "usage"
    exit_code = 2

    def __init__(self) -> None:
        super().__init__(
            "There is no terminal to ask in which refunds to approve.",
            "Pass --yes to approve all of them but the last.",
        )


class Screen:
    """Narrates with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._told = Console(stderr=True, highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """One thing that happens, and why it matters."""
        at = f"{time.monotonic() - self._begun:5.1f} s"
        if not self._told.is_terminal:
            self._told.print(f"{at}  {text}", soft_wrap=True, markup=False)
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right", style="dim", no_wrap=True)
        grid.add_column(style=style, overflow="fold")
        grid.add_row(at, Text(text))
        self._told.print(grid)

    def fail(self, title: str, lines: str) -> None:
        """What a process wrote before things went wrong."""
        self._told.print(Text(f"--- {title}", style="bold"))
        self._told.print(Text(lines, style="dim"))

    def approve_most(self, waiting: Sequence[Order]) -> dict[str, Decision]:
        """All but the last, so that the table shows both; a single one is approved."""
        decisions: dict[str, Decision] = {order.order_id: "approved" for order in waiting}
        if len(waiting) > 1:
            decisions[waiting[-1].order_id] = "rejected"
        said = [
            f"{verb} {_listed([o for o, d in decisions.items() if d == decision])}"
            for verb, decision in (("approves", "approved"), ("rejects", "rejected"))
            if decision in decisions.values()
        ]
        self.say(f"--yes {' and '.join(said)}, in place of a person.")
        return decisions

    def ask(self, waiting: Sequence[Order]) -> dict[str, Decision]:
        """Ask for each order in the terminal."""
        self._told.print()
        self._told.print(f"  [bold]Waiting for you: {len(waiting)}.[/] They would wait for days.")
        self._told.print("  [dim]a = approve, r = reject, all = approve this and all others[/]")
        decisions: dict[str, Decision] = {}
        rest = False
        for order in waiting:
            answer = "all" if rest else self._answer(order)
            rest = answer in _ALL
            decisions[order.order_id] = "rejected" if answer in _NO else "approved"
        self._told.print()
        return decisions

    def _answer(self, order: Order) -> str:
        while True:
            self._told.print(
                f"  Refund [bold]{order.amount}[/] for order [bold]{order.order_id}[/]? "
                "[magenta](a/r/all)[/] ",
                end="",
            )
            try:
                answer = input().strip().lower()
            except EOFError:
                # Ctrl-D leaves, as Ctrl-C does.
                raise KeyboardInterrupt from None
            if answer in _YES + _NO + _ALL:
                return answer

    def show(self, ended: Ended) -> None:
        """The end: the table on stdout, the verdict beside it."""
        out = Console(highlight=False)
        table = Table()
        for heading in ("order", "amount", "decision", "status"):
            table.add_column(heading, justify="right" if heading == "amount" else "left")
        for heading in ("attempts", "calls at the shop", "refunds at the shop"):
            table.add_column(heading, justify="right")
        for row in ended.rows:
            hit = row.order in ended.caught
            cells = [f"{row.order} *" if hit else row.order, row.amount, row.decision, row.status]
            numbers = [str(row.attempts), str(row.calls), str(row.refunds)]
            table.add_row(*cells, *numbers, style="bold yellow" if hit else "")
        out.print(table)
        out.print("* its worker was killed after the shop had paid", style="dim")
        for problem in ended.problems:
            out.print(problem, style="bold red")
        if ended.ok:
            took = f"{ended.takeover_s * 1000:.0f} ms"
            out.print(
                f"By the shop's own books {counted(ended.refunded, 'order')} refunded exactly "
                f"once, and no other was. Takeover after kill -9: {took}.",
                style="bold green",
            )


def counted(number: int, noun: str) -> str:
    """`1 order was`, `3 orders were`."""
    return f"{number} {noun} was" if number == 1 else f"{number} {noun}s were"


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
