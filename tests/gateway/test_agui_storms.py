"""AG-UI streams under random crashes, cuts and gaps: each is valid by itself, and in the end
the client holds the thread's messages."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from producers.gateway.agui_ends import End
from producers.gateway.agui_events import OutOfStep, Translator
from producers.live.events import Event
from tests.gateway.agui_streams import Client, event, said, snapshot, valid, valid_so_far, wire


class Storm:
    """A thread that talks, crashes and forgets, and one client that watches it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        first = {"u0": said("u0", "user", "hello")}
        self.messages: dict[str, dict[str, Any]] = dict(first)
        self.durable: dict[str, dict[str, Any]] = first
        self.open: dict[str, str] = {}
        self.epoch, self.n, self.names = 1, 0, 0
        self.client = Client()
        self.translator = Translator("chat:1", None)
        self.stream: list[dict[str, Any]] = []
        self.whole("first")

    # The thread

    def token(self) -> None:
        fresh = self.rng.random() < 0.4 or not self.open
        name = self.name() if fresh else self.rng.choice([*self.open])
        text = self.rng.choice(["a", "bc ", "明"])
        self.open[name] = self.open.get(name, "") + text
        self.happens("token", message_id=name, text=text)

    def complete(self) -> None:
        if not self.open:
            return
        name = self.rng.choice([*self.open])
        text = self.open.pop(name)
        text = self.rng.choice([text, text, text + "!", "otherwise"])
        self.speak(name, text)

    def at_once(self) -> None:
        self.speak(self.name(), "at once")

    def speak(self, name: str, text: str) -> None:
        calls = [{"id": f"c{name}", "name": "look", "args": {"n": 1}}]
        more = {"tool_calls": calls} if self.rng.random() < 0.3 else {}
        self.tell(
            said(name, "assistant", text if not more or self.rng.random() < 0.5 else "", **more)
        )

    def result(self) -> None:
        answered = {m.get("tool_call_id") for m in self.messages.values()}
        for found in list(self.messages.values()):
            for call in found.get("tool_calls", ()):
                if call["id"] not in answered:
                    self.tell(said(f"t{call['id']}", "tool", "seen", tool_call_id=call["id"]))
                    return

    def person(self) -> None:
        name = self.name()
        self.messages[name] = self.durable[name] = said(name, "user", "and?")
        self.happens("received", message_id=name, kind="input", content="and?")

    def remove(self) -> None:
        if len(self.messages) > 1:
            name = self.rng.choice([*self.messages][1:])
            del self.messages[name]
            self.happens("message", removed=name)

    def commit(self) -> None:
        self.durable = dict(self.messages)
        self.happens("step", node="chat", ns="", keys=[])

    def crash(self) -> None:
        self.messages, self.open = dict(self.durable), {}
        self.epoch, self.n = self.epoch + 1, 0
        self.whole("retracted")

    def end(self) -> None:
        self.open = {}
        self.durable = dict(self.messages)
        self.deliver(self.translator.finish(End("success"), self.now("first")))
        self.epoch, self.n = self.epoch + 1, 0

    def name(self) -> str:
        """Mostly a new one; at times that of something a crash has undone."""
        self.names += 1
        again = f"m{self.rng.randint(1, self.names)}"
        free = again not in self.messages and again not in self.open
        return again if free and self.rng.random() < 0.3 else f"m{self.names}"

    # The client

    def happens(self, type_: str, **data: Any) -> None:
        self.n += 1
        self.see(event(f"{self.epoch}-{self.n}", type_, **data))

    def tell(self, data: dict[str, Any]) -> None:
        self.messages[data["message_id"]] = data
        self.happens("message", **data)

    def see(self, found: Event) -> None:
        try:
            told = self.translator.event(found)
        except OutOfStep:
            self.whole("first")
            return
        if len(told) > 1 and self.rng.random() < 0.2:
            # Cut in the middle of what the event became: it comes once more.
            self.deliver(told[: self.rng.randrange(1, len(told))])
            self.cut()
            self.see(found)
        else:
            self.deliver(told)

    def now(self, reason: Any) -> Any:
        partial = [{"message_id": name, "text": text} for name, text in self.open.items()]
        listed = list(self.messages.values())
        return snapshot(f"{self.epoch}-{self.n}", reason=reason, messages=listed, partial=partial)

    def whole(self, reason: str) -> None:
        self.deliver(self.translator.snapshot(self.now(reason)))

    def gone(self) -> None:
        self.whole("gone")

    def cut(self) -> None:
        valid_so_far(self.stream)
        self.stream, self.translator = [], Translator("chat:1", None)

    def deliver(self, told: Any) -> None:
        events = wire(told)
        self.stream += events
        self.client.take(events)


WHAT_HAPPENS = [
    Storm.token, Storm.token, Storm.token, Storm.token, Storm.complete, Storm.complete,
    Storm.at_once, Storm.result, Storm.person, Storm.remove, Storm.commit, Storm.crash,
    Storm.end, Storm.gone, Storm.cut,
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_client_ends_with_the_threads_messages(seed: int, steps: int) -> None:
    """Whatever it met on the way: each message once, with its text and calls."""
    rng = random.Random(seed)
    storm = Storm(rng)
    for _ in range(steps):
        rng.choice(WHAT_HAPPENS)(storm)
    storm.end()
    valid(storm.stream)
    assert {m["id"]: m.get("content") or "" for m in storm.client.messages} == {
        name: m["text"] for name, m in storm.messages.items()
    }
    assert _calls(storm.client.messages) == {
        call["id"]: '{"n": 1}' for m in storm.messages.values() for call in m.get("tool_calls", ())
    }


def _calls(messages: list[dict[str, Any]]) -> dict[str, str]:
    return {c["id"]: c["arguments"] for m in messages for c in m.get("toolCalls", ())}
