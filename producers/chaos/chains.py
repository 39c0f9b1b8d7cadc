"""The checkpoints of each thread: one chain, written by its messages in their order, and the
values at its end.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from infra.sql import query

from ..messages import run_id
from .books import Expected, Sent, differences


def forks(conn: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
    """(thread, what is wrong with it) where its checkpoints are not one chain."""
    for thread, namespace, said in conn.execute(query("check_forks")).fetchall():
        yield thread, f"{said} (namespace {namespace!r})"


def mixed_runs(conn: psycopg.Connection[Any], sent: Sequence[Sent]) -> Iterator[tuple[str, str]]:
    """(thread, what is wrong) where a message wrote after one that came after it."""
    seqs = {
        (thread, message): seq
        for thread, seq, message, *_ in conn.execute(query("check_messages")).fetchall()
    }
    at = {
        thread: checkpoints
        for thread, checkpoints, *_ in conn.execute(query("check_threads")).fetchall()
    }
    runs: dict[str, tuple[str, int]] = {}
    for one in sent:
        if (seq := seqs.get((one.thread_id, one.message_id))) is not None:
            run = run_id(one.message_id, at.get(one.thread_id, one.thread_id))
            runs[run] = (one.thread_id, seq)
    for _, written in conn.execute(query("check_runs")).fetchall():
        known = [runs[run] for run in written if run in runs]
        for (thread, before), (_, after) in pairwise(known):
            if after < before:
                yield thread, f"a checkpoint of message {after} came after one of {before}"


def states(
    conn: psycopg.Connection[Any], expected: Mapping[str, Expected], at: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(thread, difference) where its values are not those of the run without faults.

    at: LangGraph's thread_id by ours.
    """
    for thread, wanted in expected.items():
        if wanted.state is None or thread not in at:
            continue
        for said in differences(wanted.state, values(conn, at[thread])):
            yield thread, said


def values(conn: psycopg.Connection[Any], checkpoints: str) -> dict[str, Any]:
    """The values of the root graph's newest checkpoint; LangGraph's own channels left out."""
    config: Any = {"configurable": {"thread_id": checkpoints, "checkpoint_ns": ""}}
    found = PostgresSaver(conn).get_tuple(config)
    if found is None:
        return {}
    stored = found.checkpoint["channel_values"]
    return {k: v for k, v in stored.items() if not k.startswith("__") and ":" not in k}
