"""Commands that take one thread, or several: by their ids, or from stdin."""

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from ..errors import EffectInDoubt, NothingToDo, ThreadBusy, UnknownThread
from ..names import split_thread_id
from . import complete
from .failures import tell
from .output import print_facts, print_json, print_table

Threads = Annotated[
    list[str],
    typer.Argument(
        help="A thread's id, for example refund:A1001, or several; - takes those on stdin, as "
        "`fleet threads` lists them.",
        autocompletion=complete.threads,
        show_default=False,
    ),
]

#: What says nothing of the next thread.
_REFUSALS = (EffectInDoubt, NothingToDo, ThreadBusy, UnknownThread)


def is_one(given: list[str]) -> bool:
    """Whether a single thread is named: then the answer is its own, and no list."""
    return len(given) == 1 and given[0] != "-"


def each(
    given: list[str], do: Callable[[str], Any], tell_of: Callable[[Any], None], as_json: bool
) -> None:
    """Do it to each thread and print what came of it, then what else there is to be told.

    All ids are checked before anything is done. Of a single thread a refusal is raised; of
    several it is told, the others go on, and the exit code is 1 in the end.
    """
    threads = [*dict.fromkeys(thread for one in given for thread in _read(one))]
    for thread in threads:
        split_thread_id(thread)
    if is_one(given):
        done, refused = [do(threads[0])], False
        print_done(done[0], as_json)
    else:
        done, refused = _done(threads, do, as_json)
    for one in done:
        tell_of(one)
    if refused:
        raise typer.Exit(1)


def _done(threads: list[str], do: Callable[[str], Any], as_json: bool) -> tuple[list[Any], bool]:
    """What was done, once printed, and whether something was refused."""
    done, refused = [], False
    try:
        for thread in threads:
            try:
                done.append(do(thread))
            except _REFUSALS as error:
                refused = True
                tell(error, as_json)
    finally:
        # Also where Postgres went away in the middle of it.
        if as_json:
            print_json({"threads": [one.model_dump(mode="json") for one in done]})
        elif done:
            print_table("", [*type(done[0]).model_fields], [_facts(one) for one in done])
    return done, refused


def print_done(done: Any, as_json: bool) -> None:
    """One answer of the fleet's, without what it has nothing to say of."""
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    print_facts({name: value for name, value in _facts(done).items() if value not in (None, "")})


def _facts(done: Any) -> dict[str, Any]:
    """Its fields, lists in words."""
    facts = {name: getattr(done, name) for name in type(done).model_fields}
    return {n: ", ".join(map(str, v)) if isinstance(v, list) else v for n, v in facts.items()}


def _read(one: str) -> Iterator[str]:
    if one != "-":
        yield one
        return
    try:
        lines = sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise typer.BadParameter("stdin is not UTF-8.", param_hint="thread") from None
    for line in lines:
        # A table in a pipe: its header, and the first of its columns.
        thread = line.partition("\t")[0].strip()
        if thread and thread != "thread_id":
            yield thread
