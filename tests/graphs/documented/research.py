"""The functional API, async: tasks side by side, a question, a saved value (LangGraph docs)."""

import asyncio
from typing import Any

from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.types import interrupt
from scripted import Scripted, echo

model = Scripted(answer=echo)


@task
async def look_up(topic: str, source: int) -> str:
    return (await model.ainvoke(f"{topic} in source {source}")).text


@task
async def combine(found: list[str]) -> str:
    return " / ".join(found)


@entrypoint()
async def graph(inputs: dict[str, Any], *, previous: Any = None) -> Any:
    found = await asyncio.gather(*(look_up(inputs["topic"], n) for n in range(3)))
    get_stream_writer()({"found": len(found)})
    report = await combine([*found])
    verdict = interrupt({"report": report})
    return entrypoint.final(
        value={"report": report, "verdict": verdict}, save=[*(previous or []), verdict]
    )
