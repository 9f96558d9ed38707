"""Runs of an agent: each worker a process of its own, forked from one that imported everything."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from agentkit.core.contracts.types import JSONObject
from agentkit.testing.crash import Ended, ForkServer, WorkerStuck
from agentkit.testing.crashtest.judge import Trial
from agentkit.testing.crashtest.story import Story
from agentkit.testing.crashtest.watch import Line
from agentkit.testing.crashtest.worker import WORK, Files, Order, Setup
from agentkit.testing.lines import JsonLines

__all__ = ["Border", "Ran", "Workers"]


_TRIES = 4
"""How often a run is made that misses its place to die."""


class Border(NamedTuple):
    """A place to die, see `TracedPlan`. `tool`: whose it is."""

    place: str
    tool: str = ""

    @property
    def kind(self) -> str:
        """Its name without numbers."""
        return self.place.partition("@")[0]


class Ran(NamedTuple):
    """A run: what it left, and the borders that its last worker passed."""

    trial: Trial
    borders: tuple[Border, ...]


class Workers:
    """Makes runs, any number at once. Use it in a `with` statement.

    Args:
        setup: what all workers are told.
        base: an empty folder.
        timeout_seconds: the longest a worker may take.
        keep: leave the runs' folders where they are.

    Attributes:
        fresh: each worker is started from nothing instead of being forked: for modules that start
            threads when they are imported, which do not survive a fork.
    """

    def __init__(self, setup: Setup, base: Path, *, timeout_seconds: float, keep: bool) -> None:
        self.fresh = False
        self._base = base
        self._timeout = timeout_seconds
        self._keep = keep
        self._numbers = count()
        self._idle: SimpleQueue[ForkServer] = SimpleQueue()
        self._busy: set[ForkServer] = set()
        self._stopped = False
        self._file = base / "setup.json"
        self._file.write_bytes(msgspec.json.encode(setup))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the servers that wait for orders."""
        with ExitStack() as stack:
            while not self._idle.empty():
                stack.callback(self._idle.get().close)

    def kill(self) -> None:
        """End all workers at once, whatever they do: nobody wants to know any more."""
        self._stopped = True
        for server in tuple(self._busy):
            server.kill()

    def run(self, *kills: str) -> Ran:
        """One run: a worker for each place at which one is to die, and one that goes on to the end.

        Which places there are varies a little with how many outcomes share an append, so a run
        that misses one is made again, a few times.
        """
        for _ in range(_TRIES - 1):
            ran = self._once(kills)
            if ran.trial.died == len(kills) or ran.trial.trouble:
                return ran
        return self._once(kills)

    def _once(self, kills: tuple[str, ...]) -> Ran:
        run = f"crash-{next(self._numbers):05}"
        files = Files(self._base / run)
        files.path.mkdir()
        died, trouble, passed = 0, "", 0
        for at in (*kills, None):
            passed = len(files.trace.read())
            try:
                ended = self._worker(Order(str(files.path), run, at))
            except WorkerStuck as stuck:
                more = "if its tools are that slow, raise --timeout (timeout_seconds=)"
                trouble = f"a worker did not end: {stuck}; {more}"
                break
            died += ended.how == "killed"
            trouble = _trouble(ended, at)
            if ended.how == "failed" or (ended.how == "completed" and at is not None):
                break
        stories = files.stories.read()
        story = msgspec.convert(stories[-1], Story) if stories else None
        lines = [msgspec.convert(line, Line) for line in JsonLines(files.effects).read()]
        ran = Ran(
            Trial(kills, died, story, tuple(lines), trouble), _borders(files.trace, after=passed)
        )
        if not self._keep:
            shutil.rmtree(files.path)
        return ran

    def _worker(self, order: Order) -> Ended:
        """Run one worker in a server that is free.

        A server whose worker got stuck has been ended and does not come back.
        """
        try:
            server = self._idle.get_nowait()
        except Empty:
            setup: JSONObject = {"setup": str(self._file)}
            server = ForkServer(WORK, setup=setup, limit_seconds=self._timeout)
        self._busy.add(server)
        if self._stopped:
            server.kill()
        try:
            ended = server.run(msgspec.to_builtins(order))
        except KeyboardInterrupt:
            server.kill()
            server.close()
            raise
        finally:
            self._busy.discard(server)
        if self.fresh:
            server.close()
        else:
            self._idle.put(server)
        return ended


def _trouble(ended: Ended, at: str | None) -> str:
    if ended.how == "failed":
        lines = ended.detail.strip().splitlines()
        return lines[-1].removeprefix("agentkit.core.contracts.errors.") if lines else "it failed"
    if ended.how == "killed" and at is None:
        return "a worker was killed, and not by the crash test: out of memory?"
    return ""


def _borders(trace: JsonLines, *, after: int) -> tuple[Border, ...]:
    return tuple(Border(str(line["place"]), str(line["tool"])) for line in trace.read()[after:])
