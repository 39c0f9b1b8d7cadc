"""`fleet chaos GRAPH`, as a user runs it: what it finds, what it refuses, what it leaves."""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import Command, gone, temporary_folder_of
from tests.harness import ROOT

EXAMPLES = ROOT / "graphs/examples/langgraph.json"
CHAOTIC = ROOT / "tests/graphs/chaotic/langgraph.json"
ORDER = {"key": "A1002", "input": {"user_id": "u_42"}}
BARE: dict[str, Any] = {"key": "A1001", "input": {}}


@dataclass(frozen=True)
class Done:
    code: int
    report: dict[str, Any]
    messages: str
    page: str

    def faults(self) -> set[tuple[str, str]]:
        return {(f["node"], f["kind"]) for f in self.report["faults"]}

    def verdicts(self) -> dict[str, str]:
        return {n["node"]: n["verdict"] for n in self.report["nodes"]}


def attacked(
    folder: Path, graph: str, *args: str, file: Path | None = CHAOTIC, inputs: Any = (BARE,)
) -> Done:
    """Run it to its end, and read what it has said."""
    lines, page = folder / "inputs.jsonl", folder / "report.html"
    lines.write_text("".join(json.dumps(line) + "\n" for line in inputs))
    command = Command(
        *("chaos", graph, "--inputs", str(lines), "--html", str(page), "--json", *args),
        cwd=folder,
        graphs_file=file,
    )
    try:
        code = command.ends(110)
        said = command.output.read_text()
        return Done(
            code,
            json.loads(said) if said else {},
            command.messages(),
            page.read_text() if page.exists() else "",
        )
    finally:
        command.close()


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The bad example, attacked."""
    return attacked(tmp_path_factory.mktemp("bad"), "bad_refund", file=EXAMPLES, inputs=[ORDER])


def test_the_bad_example_has_exactly_its_mistakes(bad: Done) -> None:
    """Each by its node, the calls by their lines; the node that only reads is safe."""
    assert bad.code == 1, bad.messages
    assert bad.faults() == {
        ("ask_person", "repeats"),
        ("ask_person", "loses_answer"),
        ("pay", "repeats"),
    }
    assert bad.verdicts()["load_order"] == "safe"
    source = (EXAMPLES.parent / "bad_refund.py").read_text().splitlines()
    for fault in bad.report["faults"]:
        if fault["kind"] == "repeats":
            file, _, line = fault["where"].partition(":")
            assert file == "bad_refund.py"
            assert ".post(" in "".join(source[int(line) - 2 : int(line)])


def test_every_place_is_died_at(bad: Done) -> None:
    """Each in a run of its own, of which the report has the kill and the takeover."""
    assert bad.report["kills"] == len(bad.report["runs"]) >= 15
    assert bad.report["kills_missed"] == bad.report["places_left_out"] == 0
    for run in bad.report["runs"]:
        events = [event["what"] for event in run["timeline"]]
        assert events.count("kill") == 1 and run["status"] == "done"
        # Nothing is left to take over where the last commit had been made.
        last = run["kill"]["point"] == "turn.after_commit" and run["kill"]["place"][1] == "2"
        assert ("takeover" in events) != last


def test_a_call_before_a_question_needs_no_kill_to_be_repeated(bad: Done) -> None:
    """Its node runs again with the answer."""
    found = {f["node"]: f for f in bad.report["faults"] if f["kind"] == "repeats"}
    assert found["ask_person"]["without_kill"] and not found["pay"]["without_kill"]


def test_the_page_is_in_one_piece(bad: Done) -> None:
    """A section for each run, and nothing that a browser would load from anywhere."""
    assert bad.page.count("<details") == len(bad.report["runs"])
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(|<script|<link", bad.page)


@pytest.mark.parametrize(
    ("graph", "file", "inputs"),
    [
        ("good_refund", EXAMPLES, [ORDER]),
        ("refund", None, [ORDER, {"key": "A1001", "input": {"user_id": "u_42"}}]),
    ],
)
def test_a_good_graph_is_safe(
    tmp_path: Path, graph: str, file: Path | None, inputs: list[Any]
) -> None:
    """The good twin of the bad example, and the shipped graph on both of its ways."""
    done = attacked(tmp_path, graph, file=file, inputs=inputs)
    assert done.code == 0 and done.report["safe"], done.report or done.messages
    assert set(done.verdicts().values()) == {"safe"} and done.report["kills"] > 20


def test_real_effects_reach_the_dev_shop(tmp_path: Path) -> None:
    """The shipped graph is safe at a real provider too; it is asked for, --yes or not at all."""
    small = [{"key": "A1001", "input": {"user_id": "u_42"}}]
    refused = attacked(tmp_path, "refund", "--real-effects", file=None, inputs=small)
    assert refused.code == 2 and "--yes" in refused.messages
    done = attacked(tmp_path, "refund", "--real-effects", "--yes", file=None, inputs=small)
    assert done.code == 0, done.report or done.messages


def test_every_way_out_of_a_node_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib, asyncio, a process, SQLite; what only reads may be repeated."""
    monkeypatch.setenv("CHAOTIC_FOLDER", str(tmp_path))
    done = attacked(tmp_path, "outgoing")
    assert done.code == 1, done.report or done.messages
    assert done.faults() == {
        (node, "repeats") for node in ("over_http", "over_async_http", "in_a_process", "in_sqlite")
    }
    assert done.verdicts()["only_reads"] == "safe"
    assert all(f["where"].startswith("chaotic.py:") for f in done.report["faults"])


def test_harmless_hosts_are_taken_out(tmp_path: Path) -> None:
    """What repeats at a host that the user vouches for is a note, and no fault."""
    done = attacked(tmp_path, "bad_refund", "--harmless", "dev-shop", file=EXAMPLES, inputs=[ORDER])
    assert done.faults() == {("ask_person", "loses_answer")}
    assert any("harmless" in note for note in done.report["notes"])


def test_an_effect_in_doubt_is_for_a_person(tmp_path: Path) -> None:
    """The trial plays that person; the wait before the question is no wait of ours."""
    done = attacked(tmp_path, "parks")
    assert done.code == 0, done.report or done.messages
    assert any("a person had to say" in note for note in done.report["notes"])
    assert {run["status"] for run in done.report["runs"]} == {"done"}


def test_a_graph_that_fails_by_itself_never_ends(tmp_path: Path) -> None:
    """No kill is needed to see it, and none says that the nodes before it are safe; what its
    error holds is text on the page."""
    done = attacked(tmp_path, "breaks")
    assert done.code == 1 and done.faults() == {("raises", "never_ends")}
    assert done.verdicts()["begins"] == "not attacked"
    assert "<script" not in done.page and "&lt;script&gt;alert(1)" in done.page


def test_an_entrypoint_is_attacked_too(tmp_path: Path) -> None:
    """Its tasks are its nodes."""
    inputs = [{"key": "A1001", "input": {"amount": 4}}]
    done = attacked(tmp_path, "halves", inputs=inputs)
    assert done.code == 0 and set(done.verdicts().values()) == {"safe"}, done.report or (
        done.messages
    )
    assert "halves|halve" in done.verdicts()


def test_values_and_results_are_taken_from_files(tmp_path: Path) -> None:
    """Answers in order, results by the effects' names."""
    (tmp_path / "answers.json").write_text('{"value": [3]}')
    done = attacked(tmp_path, "counts", "--answers", str(tmp_path / "answers.json"))
    assert done.code == 0, done.report or done.messages
    (tmp_path / "results.json").write_text('{"chaotic.untyped": {"given": 1}}')
    done = attacked(tmp_path, "untyped", "--results", str(tmp_path / "results.json"))
    assert done.code == 0, done.report or done.messages


def test_a_line_brings_its_context_and_config(tmp_path: Path) -> None:
    """And all else that `fleet submit --from` takes; without them this graph fails."""
    config = {"configurable": {"shop": "north"}}
    line = BARE | {"context": {"by": "ann"}, "config": config, "priority": 5, "delay": 60}
    done = attacked(tmp_path, "given", inputs=[line | {"message_id": "m1"}])
    assert done.code == 0, done.report or done.messages


@pytest.mark.parametrize("wrong", [{"priority": 1000}, {"context": []}, {"on_existing": "never"}])
def test_a_line_that_can_not_be_right_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Before anything starts, with its number and what is wrong."""
    done = attacked(tmp_path, "counts", inputs=[BARE, BARE | wrong])
    assert done.code == 2 and done.report == {}
    said = json.loads(done.messages.splitlines()[-1])["error"]["message"]
    assert "line 2: " in said and next(iter(wrong)) in said


@pytest.mark.parametrize(
    ("graph", "args", "said"),
    [
        ("counts", (), "how many?"),
        ("away", (), "--allow chaos.invalid"),
        ("untyped", (), "chaotic.untyped"),
        ("nothing", (), "no graph 'nothing'"),
        ("counts", ("--answers", "missing.json"), "missing.json"),
        ("counts", ("--answers", "broken.json"), "broken.json"),
        ("counts", ("--answers", "odd.json"), "'valeu'"),
        ("untyped", ("--results", "list.json"), "list.json"),
        ("counts", ("--inputs", "missing.jsonl"), "missing.jsonl"),
        ("counts", ("--inputs", "broken.json"), "line 1"),
        ("counts", ("--html", "no/such/page.html"), "page.html"),
        ("counts", ("--minutes", "1"), "--minutes"),
        ("counts", ("--allow", "example.com"), "--yes"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    tmp_path: Path, graph: str, args: tuple[str, ...], said: str
) -> None:
    """Exit code 2, and an error that names it."""
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "odd.json").write_text('{"valeu": [1]}')
    (tmp_path / "list.json").write_text("[]")
    done = attacked(tmp_path, graph, *args)
    assert done.code == 2 and done.report == {}, done.messages
    assert said in json.loads(done.messages.splitlines()[-1])["error"]["message"] + str(
        json.loads(done.messages.splitlines()[-1])["error"]["hint"]
    )


def test_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    """Servers, workers and the folder go."""
    (tmp_path / "inputs.jsonl").write_text(json.dumps(ORDER))
    command = Command("chaos", "refund", "--inputs", "inputs.jsonl", cwd=tmp_path)
    try:
        command.says("Killing a run of its own")
        family = command.family()
        folder = temporary_folder_of(family)
        command.send(signal.SIGINT)
        assert command.ends(15) == 130
        gone(family, 3.0)
        assert not folder.exists()
    finally:
        command.close()
