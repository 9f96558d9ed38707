"""Where a worker can be killed, and the plan that kills it there."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

from agentkit.testing.lines import JsonLines

__all__ = ["BORDERS", "BorderLog", "CrashPlan"]

BORDERS = (
    "acquire:before",
    "acquire:after",
    "append:before",
    "append:after",
    "release:before",
    "release:after",
    "note:before",
    "note:after",
    "model:before",
    "model:delta",
    "model:after",
    "tool:before",
    "effect:before",
    "effect:after",
    "tool:after",
)
"""Every border that the wrappers count, by its stable name. `release` is an append that gives the
lease back, `note` one without a lease; `effect` lies inside `tool`."""


class BorderLog:
    """Which borders were reached, by all workers of a run together; each line before its kill.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def note(self, border: str, number: int, *, killed: bool) -> None:
        """Write that this process reached its `number`-th border; `killed`: it gets its signal."""
        self._lines.write(
            {"border": border, "number": number, "killed": killed, "pid": os.getpid()}
        )

    def hits(self) -> list[str]:
        """The names of all borders reached, in order."""
        return [str(line["border"]) for line in self._lines.read()]

    def kills(self) -> list[str]:
        """The names of the borders at which a worker got its signal, in order."""
        return [str(line["border"]) for line in self._lines.read() if line["killed"]]


class CrashPlan:
    """Counts the borders that this process passes and kills it at one of them.

    The kill is a real one: SIGKILL from the process to itself, which nothing can catch and after
    which no line of Python runs, in no thread. With SIGSTOP the process stands still there until
    somebody continues it; with SIGINT or SIGTERM it gets what an operator sends.

    Args:
        at: the border at which to die: its number in this process, from 1, or its name; with
            `name#2` the second one of that name; `None` for never.
        how: the signal.
        log: where borders are noted.
    """

    def __init__(
        self,
        at: int | str | None = None,
        *,
        how: int = signal.SIGKILL,
        log: BorderLog | None = None,
    ) -> None:
        self.at = at
        self.how = how
        self.passed = 0
        self._log = log
        self._lock = threading.Lock()
        self._by_name: Counter[str] = Counter()

    def border(self, name: str) -> None:
        """Pass the border `name`, or get the signal at it. May be called from any thread."""
        if name not in BORDERS:
            raise ValueError(f"{name!r} is no border; known are {', '.join(BORDERS)}")
        with self._lock:
            self.passed += 1
            self._by_name[name] += 1
            times = self._by_name[name]
            mine = {self.passed, f"{name}#{times}", name if times == 1 else ""}
            killed = self.at in mine
            if self._log is not None:
                self._log.note(name, self.passed, killed=killed)
            if killed:
                # Delivered before `kill` returns, at least in this thread.
                os.kill(os.getpid(), self.how)
