"""What doctor reads in the code of nodes."""

from pathlib import Path
from typing import Any

import pytest

from graphs.masked_state import masked
from graphs.registry import RegisteredGraph, Registry
from infra.masking import Rule
from producers.doctor.nodes import Reading
from tests.graphs import calling
from tests.harness import ROOT


def read(*names: str) -> Any:
    """The finding about a graph of these nodes of tests/graphs/calling.py."""
    reading = Reading()
    reading.read(RegisteredGraph("calling", calling.build(*names).compile(), "fleet"))
    return reading.finding()


@pytest.mark.parametrize(
    ("node", "call", "library"),
    [
        ("by_module", "httpx.post(…)", "httpx"),
        ("by_name", "send_it(…)", "httpx"),
        ("by_shared_client", "shared.delete(…)", "httpx"),
        ("by_local_client", "client.put(…)", "httpx"),
        ("by_annotated_function", "given().patch(…)", "httpx"),
        ("by_helper", "httpx.request(…)", "httpx"),
        ("by_async_client", "client.post(…)", "httpx"),
        ("by_urllib", "urllib.request.urlopen(…)", "urllib.request"),
        ("by_sql", "cursor.execute(…)", "psycopg"),
        ("by_argument", "db.execute(…)", "sqlite3"),
        ("by_mail", "server.sendmail(…)", "smtplib"),
        ("by_object", "self.slotted.post(…)", "httpx"),
        ("by_bound_method", "self.client.put(…)", "httpx"),
        ("by_own_method", "self.client.delete(…)", "httpx"),
        ("by_method_of_a_global", "self.client.delete(…)", "httpx"),
        ("by_late_client", "self.late.patch(…)", "httpx"),
        ("by_client_made_now", "self.now.post(…)", "httpx"),
        ("by_redis", "redis.Redis.from_url('redis://').incr(…)", "redis"),
    ],
)
def test_a_call_beside_effects_is_found(node: str, call: str, library: str) -> None:
    """However the node comes by its client; with place and node."""
    found = read(node)
    assert found.level == "problem"
    (told,) = found.data["calls"]
    assert (told["call"], told["library"], told["sure"]) == (call, library, True)
    assert told["nodes"] == [f"calling/{node}"]
    assert f"tests/graphs/calling.py:{told['line']}, node calling/{node}" in found.said
    line = Path(calling.__file__).read_text().splitlines()[told["line"] - 1]
    assert call.removesuffix("(…)").rpartition(".")[2] in line


@pytest.mark.parametrize(
    "node", ["reading", "behind_an_effect", "no_client", "safe_object", "protected_object"]
)
def test_what_only_reads_or_is_protected_is_let_be(node: str) -> None:
    """Reading again harms nobody, and an effect is what was asked for."""
    found = read(node)
    assert (found.level, found.data["calls"]) == ("ok", [])
    assert found.data["modules"] == ["tests.graphs.calling"]
    assert found.said.endswith("Read: tests/graphs/calling.py.")


def test_a_line_that_says_it_reads_is_taken_at_its_word() -> None:
    """Listed among what reads: nothing shows what a named statement does."""
    found = read("by_word")
    assert (found.level, found.data["calls"]) == ("ok", [])
    assert [call["function"] for call in found.data["reads"]] == ["by_word"]


def test_calls_that_only_read_are_listed_in_the_data() -> None:
    """For who wants to know what a node repeats."""
    reads = {call["call"] for call in read("reading").data["reads"]}
    assert {"client.get(…)", "client.request(…)", "urllib.request.urlopen(…)"} <= reads
    assert "conn.execute(…)" in reads


def test_a_call_whose_receiver_is_unknown_is_a_warning() -> None:
    """Its name tells, and the module imports a client."""
    found = read("perhaps")
    assert found.level == "warning" and "perhaps" in found.said
    assert [c["sure"] for c in found.data["calls"]] == [False]


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("refund", {"graphs.refund", "graphs.shop"}),
        ("booking", {"graphs.booking.graph", "graphs.booking.rooms"}),
    ],
)
def test_shipped_graphs_call_nothing_beside_effects(name: str, modules: set[str]) -> None:
    """And the modules that they lead to were read for it."""
    reading = Reading()
    reading.read(Registry.load(ROOT / "langgraph.json").get(name))
    found = reading.finding()
    assert (found.level, found.data["calls"]) == ("ok", [])
    assert modules <= set(found.data["modules"])


def test_what_wraps_a_graph_is_none_of_the_users_modules() -> None:
    """Neither the masking of its state nor what trims it is named, though they lie beside it."""
    from graphs.trimming import trim

    reading = Reading()
    builder = calling.build("reading")
    builder.add_node("trim", trim(turns=2))
    compiled = masked(builder.compile(), Rule())
    reading.read(RegisteredGraph("masked", compiled, "fleet"))
    found = reading.finding()
    assert found.data["modules"] == ["tests.graphs.calling"]
    assert found.data["files"] == ["tests/graphs/calling.py"]


def test_calls_of_subgraphs_and_of_tools_are_found() -> None:
    """A tool is a function that a node leads to; a subgraph's node is a node."""
    from langchain_core.tools import tool
    from langgraph.graph import START, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    def pay(url: str) -> str:
        """Pay."""
        return calling.httpx.post(url).text

    builder = StateGraph(calling.State)
    builder.add_node("tools", ToolNode([pay]))
    builder.add_node("inner", calling.build("by_mail").compile())
    builder.add_edge(START, "tools")
    builder.add_edge(START, "inner")
    reading = Reading()
    reading.read(RegisteredGraph("outer", builder.compile(), "fleet"))
    found = {call["call"] for call in reading.finding().data["calls"]}
    assert found == {"calling.httpx.post(…)", "server.sendmail(…)"}
