"""The functional API: tasks, a question, and what the last run left (LangGraph docs)."""

from typing import Any

from langgraph.func import entrypoint, task
from langgraph.types import interrupt
from scripted import Scripted, echo

model = Scripted(answer=echo)


@task
def write(topic: str, section: int) -> str:
    return model.invoke(f"{topic}, section {section}").text


@entrypoint()
def graph(inputs: dict[str, Any], *, previous: Any = None) -> Any:
    sections = [write(inputs["topic"], n) for n in range(3)]
    essay = "; ".join(section.result() for section in sections)
    review = interrupt({"essay": essay, "action": "approve or say what to change"})
    value = {"essay": essay, "review": review, "before": previous and previous["essay"]}
    return entrypoint.final(value=value, save=value)
