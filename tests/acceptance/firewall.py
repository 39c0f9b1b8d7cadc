"""Packets that the machine's firewall drops: the second way to lose a host without a word.

Where the tests run as root and iptables works. Rules are for the ports of one proxy, carry
the pid of who made them, and go with the block; those of a process that was killed go with
the next one.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import Self

import psutil

from producers.chaos.proxy import Proxy

_MARK = "fleet-test-"


class Firewall:
    """Use as a context manager. Needs root."""

    def __init__(self) -> None:
        self._rules: list[list[str]] = []

    def __enter__(self) -> Self:
        self._remove_stale()
        return self

    def __exit__(self, *_: object) -> None:
        self.pass_on()

    def drop(self, proxy: Proxy) -> None:
        """Nothing that is sent to or from the proxy arrives, at its clients or its server."""
        for port, peer in proxy.ports():
            for end, other in ("--sport", "--dport"), ("--dport", "--sport"):
                rule = ["INPUT", "-i", "lo", "-p", "tcp", end, str(port)]
                rule += [other, str(peer)] if peer else []
                rule += ["-m", "comment", "--comment", f"{_MARK}{os.getpid()}", "-j", "DROP"]
                _iptables("-I", *rule)
                self._rules.append(rule)

    def pass_on(self) -> None:
        """As before."""
        while self._rules:
            _iptables("-D", *self._rules.pop())

    def _remove_stale(self) -> None:
        for rule in _marked(_iptables("-S", "INPUT").splitlines()):
            pid = int(next(word for word in rule if word.startswith(_MARK)).removeprefix(_MARK))
            if not psutil.pid_exists(pid):
                _iptables("-D", *rule[1:])


def missing() -> str:
    """Why there is none, or an empty string."""
    if os.geteuid() != 0:
        return "these tests do not run as root"
    if shutil.which("iptables") is None:
        return "there is no iptables"
    try:
        _iptables("-S", "INPUT")
    except subprocess.CalledProcessError as exc:
        return f"iptables does not work here: {exc.stderr.strip()}"
    return ""


def _marked(rules: Iterable[str]) -> list[list[str]]:
    """Ours, as words: ``["-A", "INPUT", …]``."""
    return [rule.replace('"', "").split() for rule in rules if _MARK in rule]


def _iptables(*args: str) -> str:
    found = subprocess.run(
        ["iptables", "-w", "10", *args], check=True, capture_output=True, text=True
    )
    return found.stdout
