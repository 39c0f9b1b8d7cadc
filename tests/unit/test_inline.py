"""The contract with LangGraph that the inline saves rely on."""

import inspect
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import _executor
from langgraph.pregel._checkpoint import put_writes_accepts_task_path

from workers import inline
from workers.answered import AnsweredSaver


class State(TypedDict):
    n: Annotated[int, operator.add]


def _graph(seen: list[str]) -> Any:
    def node(state: State) -> State:
        seen.append(threading.current_thread().name)
        return {"n": 1}

    builder = StateGraph(State)
    builder.add_node("one", node)
    builder.add_node("two", node)
    builder.add_edge(START, "one")
    builder.add_edge(START, "two")
    builder.add_edge("one", END)
    builder.add_edge("two", END)
    return builder


def test_the_installed_langgraph_can_be_patched() -> None:
    """LangGraph's executor and loop have the shape that the patch was written for."""
    assert inline.patchable()


def test_install_twice_is_once() -> None:
    """The patch is put in once and says that async durability is safe."""
    assert inline.install() == inline.install() == "async"
    assert _executor.BackgroundExecutor.submit is inline._submit


def test_a_pool_is_made_for_nodes_side_by_side_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of the config, and none of its threads is left."""
    inline.install()
    pools: list[Any] = []
    stock = inline.get_executor_for_config
    monkeypatch.setattr(
        inline, "get_executor_for_config", lambda config: pools.append(config) or stock(config)
    )
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"n": 1})
    builder.add_edge(START, "one")
    assert builder.compile().invoke({"n": 0}) == {"n": 1}
    assert pools == []
    seen: list[str] = []
    before = threading.active_count()
    assert _graph(seen).compile().invoke({"n": 0}, {"max_concurrency": 1}) == {"n": 2}
    assert [config["max_concurrency"] for config in pools] == [1]
    assert len({*seen}) == 1 and threading.active_count() == before


def test_foreign_savers_keep_their_threads() -> None:
    """Only our saver's saves run inline; nodes and other savers use LangGraph's threads."""
    inline.install()
    savers: list[str] = []

    class Saver(InMemorySaver):
        def put(self, *args: Any, **kwargs: Any) -> Any:
            savers.append(threading.current_thread().name)
            return super().put(*args, **kwargs)

    seen: list[str] = []
    graph = _graph(seen).compile(checkpointer=Saver())
    graph.invoke({"n": 0}, {"configurable": {"thread_id": "t"}})
    main = threading.current_thread().name
    assert main not in savers and len(savers) >= 2
    assert main not in seen and len(seen) == 2


def test_langgraph_gives_the_saver_the_path_of_a_task() -> None:
    """It looks at the saver's signature, which is kept at hand."""
    assert put_writes_accepts_task_path(AnsweredSaver.put_writes)
    bound = object.__new__(AnsweredSaver).put_writes
    assert [*inspect.signature(bound).parameters] == ["config", "writes", "task_id", "task_path"]
