"""What operators do: cancel, retry and drop work, hold a graph, look at workers.

:class:`Operations` is the part of :class:`Fleet` that does it. Nothing here writes
beside a turn: a thread is changed under its own lock, or not at all.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import queries
from .batches import Item, foresee, starts_of
from .errors import (
    EffectInDoubt,
    NothingToDo,
    ThreadBusy,
    UnknownWorker,
)
from .messages import check_graph
from .messages import thread_id as make_thread_id
from .names import check_text_name
from .operated import Cancellation, Dropped, EffectName, Hold, QueueRow, Retried, WorkerRow
from .refusals import unknown_graph, unknown_thread
from .runs import parted
from .status import Receipt

if TYPE_CHECKING:
    from .inputs import InputSchemas
    from .messages import OnExisting
    from .sessions import Sessions


class Operations:
    """Mixed into Fleet."""

    tenant: str
    _sessions: "Sessions"
    _schemas: "InputSchemas"
    _wakes: Any

    if TYPE_CHECKING:

        def submit(
            self,
            graph: str,
            key: str,
            input: Mapping[str, Any],
            *,
            message_id: str | None = None,
            on_existing: OnExisting = "use_existing",
            force: bool = False,
            context: Mapping[str, Any] | None = None,
            config: Mapping[str, Any] | None = None,
        ) -> Receipt: ...

        def _names(self, thread_id: str) -> dict[str, str]: ...

        def _published(self, found: list[dict[str, Any]]) -> bool: ...

    # Threads

    def cancel(self, thread_id: str) -> Cancellation:
        """Call off all that is open of the thread, at once or at its turn's next step.

        An effect in flight is finished and recorded first. Raises UnknownThread.
        """
        thread = self._thread(thread_id)
        done = Cancellation.model_validate(self._operate("cancel", thread))
        # The call that the running turn is about to finish is not in doubt.
        return done.model_copy(update={"in_doubt": []}) if done.outcome == "requested" else done

    def retry(self, thread_id: str, *, new_request: bool = False) -> Retried:
        """Work on a dead message again, its counts forgotten; it goes on where it stopped.

        new_request: calls that failed for good are made anew, under new request ids;
        without it their recorded failures are met again. Raises UnknownThread, ThreadBusy,
        NothingToDo, EffectInDoubt.
        """
        thread = self._thread(thread_id)
        found = self._operate("retry", thread, new_request=new_request, notify=self._wakes is None)
        return Retried.model_validate({**found, "published": self._published([found])})

    def drop(self, thread_id: str) -> Dropped:
        """Give up the quarantined (dead or in-doubt) message; later mail goes on.

        Raises UnknownThread, ThreadBusy, NothingToDo.
        """
        thread = self._thread(thread_id)
        found = self._operate("drop", thread, notify=self._wakes is None)
        self._published([found])
        return Dropped.model_validate(found)

    def restart(
        self,
        thread_id: str,
        input: Mapping[str, Any] | None = None,
        *,
        message_id: str | None = None,
        force: bool = False,
    ) -> Receipt:
        """Begin the thread anew, from a clean state; its open mail is dropped.

        input: that of the last start, with its context and config, if left out. Effects are
        made anew too, but for keyed ones; force: also where one is in doubt or a node was done
        by hand. Raises UnknownThread, NothingToDo when there is no input to be had, and as
        submit.
        """
        names = self._names(thread_id)
        run: dict[str, Any] = {}
        given = self.latest_start(thread_id)["input"]
        if input is None:
            if given is None or _is_fork(given):
                raise _no_input(self._thread(thread_id), given)
            input, run = parted(given)
        return self.submit(
            names["graph"],
            names["key"],
            input,
            message_id=message_id,
            on_existing="restart",
            force=force,
            **run,
        )

    def latest_start(self, thread_id: str) -> dict[str, Any]:
        """``{"input", "effects": [{"name", "request_id", "state"}], "repeated"}`` of the last
        start; repeated: as `Repeated`, or None."""
        thread = self._thread(thread_id)
        found = self._sessions.run(
            lambda conn: queries.row(conn, "latest_start", thread_id=thread), reads=True
        )
        if found is None:
            raise unknown_thread(thread)
        return dict(found)

    def check_many(self, items: Iterable[Item]) -> None:
        """Raise what submit_many would, as far as it can be known; nothing is accepted."""
        foresee(self._sessions, self._schemas, starts_of(items, self.tenant))

    # Graphs

    def graphs(self) -> list[str]:
        """Names of the registered graphs."""
        return list(self._sessions.run(lambda conn: queries.rows(conn, "graph_names"), reads=True))

    def pause(self, graph: str) -> Hold:
        """Hold the graph's mail; turns under way go on to their end. Raises UnknownGraph."""
        return self._hold(graph, True)

    def resume(self, graph: str) -> Hold:
        """Let the graph's mail go on. Raises UnknownGraph."""
        hold = self._hold(graph, False)
        due = self._sessions.run(
            lambda conn: queries.rows(conn, "due_of_graph", graph=graph), reads=True
        )
        self._published(due)
        return hold

    def _hold(self, graph: str, paused: bool) -> Hold:
        check_graph(graph)
        said = self._sessions.run(
            lambda conn: queries.row(conn, "set_paused", graph=graph, paused=paused)
        )
        if said["outcome"] == "unknown_graph":
            raise unknown_graph(graph, said["known"])
        # A transaction of its own: mail that is accepted from now on has seen the change.
        self._sessions.run(lambda conn: queries.row(conn, "sort_paused"))
        mail = self._sessions.run(
            lambda conn: queries.row(conn, "graph_mail", graph=graph), reads=True
        )
        return Hold(graph=graph, paused=paused, **mail)

    # Workers

    def queues(self) -> list[QueueRow]:
        """The queues that graphs, workers or mail name, and the work in each."""
        found = self._sessions.run(lambda conn: queries.rows(conn, "queues"), reads=True)
        return [QueueRow.model_validate(row) for row in found]

    def workers(self) -> list[WorkerRow]:
        """The workers that have announced themselves, and what each runs now."""
        found = self._sessions.run(lambda conn: queries.rows(conn, "workers"), reads=True)
        return [WorkerRow.model_validate(row) for row in found]

    def drain(self, worker: str, *, undo: bool = False) -> WorkerRow:
        """Let the worker take no more turns; those it has stop at their next step and go on
        elsewhere. It stays up, drained, until `undo` or until it is started anew.

        Raises UnknownWorker, InvalidKey.
        """
        worker = check_text_name(worker, "worker name")
        said = self._sessions.run(
            lambda conn: queries.row(conn, "drain_worker", worker=worker, drain=not undo)
        )
        found = [row for row in self.workers() if row.worker == worker]
        if said["outcome"] == "unknown_worker" or not found:
            raise UnknownWorker(
                f"There is no worker {worker}.",
                f"Known: {', '.join(said['known'])}." if said.get("known") else "None is up.",
                worker=worker,
                known=said.get("known", []),
            )
        return found[0]

    def notify_again(self, channel: str) -> int:
        """Send what this channel's receiver wanted no more of, and what was given up, again; to
        whatever address is set now. How many questions, of all tenants: those answered
        meanwhile need none. Raises InvalidKey."""
        channel = check_text_name(channel, "channel")
        return int(self._sessions.run(lambda c: queries.row(c, "notify_again", channel=channel)))

    # Inside

    def _thread(self, thread_id: str) -> str:
        return make_thread_id(**self._names(thread_id))

    def _operate(self, query: str, thread: str, **args: Any) -> dict[str, Any]:
        """What the function said; its refusals are raised."""
        found = self._sessions.run(lambda conn: queries.row(conn, query, thread_id=thread, **args))
        outcome = found["outcome"]
        if outcome == "unknown_thread":
            raise unknown_thread(thread)
        if outcome == "running":
            raise ThreadBusy(f"{thread} is being worked on.", thread_id=thread)
        if outcome == "in_doubt":
            raise _in_doubt(thread, found)
        if outcome in ("nothing", "nothing_failed"):
            raise _nothing(query, thread, found)
        return dict(found)


def _in_doubt(thread: str, found: Mapping[str, Any]) -> EffectInDoubt:
    effects = [EffectName.model_validate(e) for e in found["in_doubt"]]
    named = ", ".join(map(str, effects))
    first = effects[0].request_id if effects else "REQUEST_ID"
    return EffectInDoubt(
        f"{thread} has effects that may have happened: {named or 'see `fleet show`'}.",
        f"Look it up outside, then `fleet resolve {thread} {first} --happened JSON` or "
        "--did-not-happen.",
        thread_id=thread,
        in_doubt=[e.request_id for e in effects],
    )


def _is_fork(start: Mapping[str, Any]) -> bool:
    return start.keys() == {"forked_from"} and isinstance(start["forked_from"], dict)


def _no_input(thread: str, start: Mapping[str, Any] | None) -> NothingToDo:
    if start is None:
        why = f"The input of {thread} is not kept any more."
    else:
        source = start["forked_from"].get("thread_id")
        why = f"{thread} was forked from {source} and never had an input of its own."
    return NothingToDo(why, f"Give one: `fleet restart {thread} --input JSON`.", thread_id=thread)


def _nothing(query: str, thread: str, found: Mapping[str, Any]) -> NothingToDo:
    status = found["status"]
    if found["outcome"] == "nothing_failed":
        return NothingToDo(
            f"{thread} has no effect on record that failed for good, so no new request is needed.",
            "Use `fleet retry` without --new-request.",
            thread_id=thread,
            status=status,
        )
    what = {"retry": "no dead message to retry", "drop": "no quarantined message to drop"}[query]
    return NothingToDo(f"{thread} is {status} and has {what}.", thread_id=thread, status=status)
