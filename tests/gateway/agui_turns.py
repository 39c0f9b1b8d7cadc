"""Runs against a gateway whose turns are real: a slot in the test's process works the mail."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.gateway.agui_streams import valid, valid_so_far
from tests.harness import Database, registered_graphs
from workers.drain import drain
from workers.slot import Slot

NAMES = ("talk", "held", "endless", "breaks", "both", "tools")


def write_agui_graphs(folder: Path, database: Database) -> Path:
    """A graphs file of tests/graphs/agui.py and the refund graph, known to the doors; its path."""
    places = {name: f"agui.py:{name}" for name in NAMES}
    places["refund"] = "../../graphs/refund.py:graph"
    return registered_graphs(folder, database, places)


class Working:
    """Turns are taken inside of the `with`, in a thread of the test's process."""

    def __init__(self, slot: Slot, database: Database) -> None:
        self._slot = slot
        self._database = database
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        sql = "SELECT DISTINCT thread_id FROM fleet.messages WHERE status = 'pending'"
        with self._database.connect() as conn:
            while not self._stop.is_set():
                for (thread_id,) in conn.execute(sql).fetchall():
                    drain(self._slot, thread_id)
                time.sleep(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(20)


def asked(thread: str, run_id: str = "run-1", *messages: tuple[str, str], **more: Any) -> Any:
    """A RunAgentInput; messages: (id, text) of a person's."""
    said = [{"id": name, "role": "user", "content": text} for name, text in messages]
    return {"threadId": thread, "runId": run_id, "messages": said, **more}


class Stream:
    """Server-sent events as they come: the events, and the id of the last one that had one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id: str | None = None
        self._chunks = response.iter_lines()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data = None
        for line in self._chunks:
            if line.startswith("data: "):
                data = json.loads(line[6:])
            elif line.startswith("id: "):
                self.last_id = line[4:]
            elif not line and data is not None:
                found, data = data, None
                yield found

    def comment(self) -> str:
        """The next line that is not empty."""
        return next(line for line in self._chunks if line)

    def until(self, *types: str) -> list[dict[str, Any]]:
        """Events up to and with the first of these types."""
        found = []
        for event in self:
            found.append(event)
            if event["type"] in types:
                return found
        raise AssertionError(f"the stream ended before {types}: {found}")


@contextmanager
def streaming(client: httpx.Client, method: str, path: str, **more: Any) -> Iterator[Stream]:
    with client.stream(method, path, **more) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        yield Stream(response)


def run(client: httpx.Client, given: Any, path: str = "/agent/run") -> list[dict[str, Any]]:
    """A whole run, checked."""
    with streaming(client, "POST", path, json=given) as stream:
        return valid(list(stream))


def follow(
    client: httpx.Client, thread: str, *until: str, after: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Events of a thread up to one of the types, checked as far as they came; the last id."""
    query = {"thread_id": thread, **({"from_event_id": after} if after else {})}
    with streaming(client, "GET", "/agent/events", params=query) as stream:
        found = stream.until(*until)
        valid_so_far(found)
        return found, stream.last_id
