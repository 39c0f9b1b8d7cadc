"""`fleet answer` and `fleet resolve`: what a person decides."""

import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, MessageId, Thread, read_json
from .submit import Wait, ended_well, report

if TYPE_CHECKING:
    from ..client import Fleet
    from ..status import Receipt


def register(app: typer.Typer) -> None:
    app.command()(answer)
    app.command()(resolve)


def answer(
    thread: Thread,
    approve: Annotated[bool, typer.Option("--approve", help="Yes.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="No.")] = False,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="JSON|@FILE|-", help="What the question asks for."),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option("--question", metavar="ID", help="Which one, when several are open."),
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="Goes with the decision.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who answers; you, if left out.")
    ] = None,
    message_id: MessageId = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Answer the question of a thread."""
    given = _one_of(approve, reject, value, note)
    from ..client import Fleet

    with Fleet() as fleet:
        receipt = fleet.answer(
            thread, question, given, message_id=message_id, answered_by=by or _user()
        )
        _tell(fleet, receipt, wait, as_json)


def _one_of(approve: bool, reject: bool, value: str | None, note: str | None) -> Any:
    if approve + reject + (value is not None) != 1:
        raise typer.BadParameter("Give exactly one of them.", param_hint=_WAYS)
    if value is not None:
        if note is not None:
            raise typer.BadParameter("It goes with --approve or --reject.", param_hint="--note")
        return read_json(value, "--value")
    from ..answers import Verdict

    return Verdict(approve, note)


_WAYS = "--approve, --reject, --value"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def resolve(
    thread: Thread,
    request_id: Annotated[str, typer.Argument(help="Of the effect in doubt; see `fleet show`.")],
    happened: Annotated[
        str | None,
        typer.Option("--happened", metavar="JSON|@FILE|-", help="It did, with this result."),
    ] = None,
    did_not_happen: Annotated[
        bool, typer.Option("--did-not-happen", help="It did not; it will be done now.")
    ] = False,
    message_id: MessageId = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Settle an effect in doubt: say whether it happened."""
    if (happened is not None) == did_not_happen:
        raise typer.BadParameter(
            "Give exactly one of them.", param_hint="--happened, --did-not-happen"
        )
    result = None if happened is None else read_json(happened, "--happened")
    from ..client import Fleet

    with Fleet() as fleet:
        receipt = fleet.resolve(
            thread, request_id, happened is not None, result, message_id=message_id
        )
        _tell(fleet, receipt, wait, as_json)


def _tell(fleet: "Fleet", receipt: "Receipt", wait: float | None, as_json: bool) -> None:
    """The receipt, or what became of the thread where that is waited for."""
    if wait is None:
        report(receipt, as_json)
    elif not ended_well(fleet, receipt, wait, as_json):
        raise typer.Exit(1)
