"""What a user gives to `fleet chaos` is refused in the words of a command that accepts nothing."""

from collections import Counter
from pathlib import Path

import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from producers import InvalidInput, InvalidPayload
from producers.chaos.errors import ChaosUsage
from producers.chaos.given import Answers, read_inputs
from producers.status import Question

QUESTION = Question.model_validate(
    {
        "question_id": "q1",
        "kind": "value",
        "payload": "how many?",
        "asked_at": "2026-01-01T00:00:00Z",
    }
)


@pytest.mark.parametrize("content", [None, "{", '{"key": "A1", "colour": "red"}'])
def test_inputs_that_can_not_be_read_say_that_nothing_was_run(
    tmp_path: Path, content: str | None
) -> None:
    """Whether the file is missing or a line of it is wrong: usage, and the file is named."""
    file = tmp_path / "inputs.jsonl"
    if content is not None:
        file.write_text(content)
    graph = Registry.load(get_settings().graphs_path).get("refund")
    with pytest.raises(InvalidPayload, match=r"inputs\.jsonl.*Nothing was run; correct") as refused:
        read_inputs(str(file), graph)
    assert refused.value.exit_code == 2


def test_an_input_that_does_not_fit_is_refused_as_at_the_door(tmp_path: Path) -> None:
    """InvalidInput, exit code 1, as `fleet submit` has it; the line is named."""
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"key": "A1", "input": {"user_id": "u"}}\n{"key": "A2", "input": {}}\n')
    graph = Registry.load(get_settings().graphs_path).get("refund")
    with pytest.raises(InvalidInput, match=r"line 2: .*does not fit graph 'refund'") as refused:
        read_inputs(str(file), graph)
    assert refused.value.exit_code == 1
    assert refused.value.hint == "Nothing was run; correct the line."


def test_a_question_without_an_answer_says_which_kinds_have_one() -> None:
    """A kind may be any word of the graph's own: one that is misspelt shows at the question."""
    answers = Answers({"valeu": [1]})
    with pytest.raises(ChaosUsage, match=r"\(kind value\).*how many") as refused:
        answers.to(QUESTION, Counter())
    assert "answers to 'valeu' only" in refused.value.hint
