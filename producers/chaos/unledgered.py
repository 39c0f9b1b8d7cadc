"""Calls of nodes that no ledger knows: noticed, recorded with where they were made.

Told by what leaves the process: the first write on a socket after it was connected or read
from, statements that change something (psycopg, sqlite3), processes that are started. What
only reads (GET, SELECT) may be repeated and is left out; what can't be told is counted.
Not seen: clients in C that bring sockets of their own, and threads that a node starts
without its context. The fleet's own traffic, and what a declared effect sends, is no call.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from graphs import own_code, position
from graphs.errors import EffectOutsideTurn
from graphs.running import current_call

from .outside import node_of
from .record import Recorder, current_attempt

#: Methods that ask and change nothing.
_READS = ("GET ", "HEAD ", "OPTIONS ")
_METHODS = ("POST ", "PUT ", "PATCH ", "DELETE ")
_LOCAL = ("localhost", "ip6-localhost", "::1", "")


class OutsideRefused(RuntimeError):
    """A connection to somewhere that the run was not told to allow."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may reach. own: (host, port) of the fleet's servers. allow: host names.
    named: what addresses, ``host:port``, are called."""

    own: frozenset[tuple[str, int]]
    allow: frozenset[str]
    named: Mapping[str, str]


class Observer:
    """Told of what leaves the process; decides whether it is a node's call."""

    def __init__(self, recorder: Recorder, limits: Limits, project: Path) -> None:
        self._recorder = recorder
        self._limits = limits
        self._project = project.resolve()
        self._names: dict[str, str] = {}

    def is_own(self, host: str, port: int) -> bool:
        """Whether it is one of the fleet's own servers."""
        return (host, port) in self._limits.own

    def resolved(self, name: str, addresses: Collection[str]) -> None:
        """Remember under which name an address was asked for."""
        for address in addresses:
            self._names[address] = name

    def require_allowed(self, host: str) -> None:
        """Raise OutsideRefused for what is neither this machine nor allowed."""
        name = self._names.get(host, host)
        local = host in _LOCAL or host.startswith("127.")
        if local or {host, name} & self._limits.allow:
            return
        node = self._node()
        self._recorder.write("refused", host=name, site=self.site(), node=node)
        raise OutsideRefused(
            f"a chaos run makes no connection to {name}: it would be made for real, many times. "
            f"Allow it with --allow {name}"
        )

    def wrote(self, address: str, data: bytes) -> None:
        """The first bytes of what was sent to an address, ``host:port``."""
        line = data[:400].split(b"\r\n")[0].decode("latin-1")
        if line.startswith(_READS):
            return
        host, _, port = address.rpartition(":")
        shown = f"{self._names.get(host, host)}:{port}" if port else address
        shown = self._limits.named.get(shown, shown)
        method, path, *_ = line.split(" ") if line.startswith(_METHODS) else ("", "")
        self.call(f"{method} {shown}".strip(), path.partition("?")[0])

    def call(self, target: str, path: str = "") -> None:
        """Record a call, if a node makes it and not an effect."""
        if current_attempt.get() is None or _in_effect():
            return
        try:
            place = position.here()
        except EffectOutsideTurn:
            return
        self._recorder.write(
            "call",
            node=node_of(place),
            place=position.nodes(place),
            site=self.site(),
            target=target,
            path=path,
        )

    def site(self) -> str:
        """The innermost line of the user's own code, ``file.py:12``; "" where there is none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if own_code.is_own(file):
                return f"{own_code.named(file, self._project)}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _node(self) -> str:
        try:
            return node_of(position.here())
        except EffectOutsideTurn:
            return ""


def _in_effect() -> bool:
    try:
        current_call()
    except EffectOutsideTurn:
        return False
    return True
