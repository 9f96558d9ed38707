"""Workers that drive many runs at a time on a server that fails, and what becomes of the runs.

An error of the store is a worker's to bear: it tries again, or leaves the run to the next one. In
the end every run has to be finished, and each is judged as after a kill.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from agentkit.agents import AgentEvent
from agentkit.core.contracts.errors import (
    AgentkitError,
    LeaseLost,
    RunInUse,
    RunSuspended,
    StoreError,
)
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSONObject
from agentkit.core.runtime import SystemClock
from agentkit.testing.crash.loop import Campaign, NoProgress, Ordeal
from agentkit.testing.crash.plan import CrashPlan
from agentkit.testing.crash.processes import ForkServer, WorkerStuck
from agentkit.testing.crash.scenario import TASK, Folder, Order, make_agent, promise
from agentkit.testing.crash.scenario import warm_up as _warm_up
from agentkit.testing.invariants import Violation
from agentkit.testing.lines import JsonLines

__all__ = ["POLL_SECONDS", "PROGRESS_SECONDS", "Load", "pause", "warm_up", "work"]

PROGRESS_SECONDS = 120.0
"""Within this time something has to get on."""

POLL_SECONDS = 0.05
"""How often what is waited for is looked at."""

_WORK = "agentkit.testing.crash.load:work"
_RUNS_AT_ONCE = 6
_TRIES = 4
_WORKER_SECONDS = 300.0
_TROUBLES = "troubles.jsonl"

_clock = SystemClock()
_T = TypeVar("_T")


def warm_up(setup: JSONObject) -> None:
    """See `ForkServer`."""
    _warm_up(setup)


def work(argument: JSONObject) -> None:
    """One worker's life: drive all runs of `orders` at a time, through one store."""
    orders = msgspec.convert(argument["orders"], list[Order])
    asyncio.run(_drive_all(orders))


async def _drive_all(orders: Sequence[Order]) -> None:
    store = Folder(Path(orders[0].folder), orders[0].store).store()
    async with asyncio.TaskGroup() as runs:
        for order in orders:
            runs.create_task(_drive(store, order))
    await store.aclose()


async def _drive(store: JournalPort, order: Order) -> None:
    """Drive a run as far as it goes; what the store raised is written down."""
    folder = Folder(Path(order.folder), order.store)
    for _ in range(_TRIES):
        try:
            await _drive_once(store, order, folder)
            return
        except RunSuspended:
            return
        except (StoreError, LeaseLost, RunInUse) as error:
            what = f"{type(error).__name__}: {error}"
            JsonLines(folder.path / _TROUBLES).write({"error": what})
            if order.action == "resume":
                return  # whether the decisions arrived is for the next worker to see


async def _drive_once(store: JournalPort, order: Order, folder: Folder) -> None:
    plan = CrashPlan(log=folder.borders)
    agent, context = make_agent(store, plan, folder, run=order.run, steps=order.steps)
    if order.action == "resume":
        result = await agent.resume(order.run, order.decisions, context)
        folder.promises.write(promise(order.run, AgentEvent("final", result=result)))
        return
    async for event in agent.stream(TASK, context):
        folder.promises.write(promise(order.run, event))


class Load:
    """Batches of runs, each driven by one worker after the other until all its runs have ended.

    Args:
        base: where the runs' folders go; those that broke something stay.
        url: of the store.

    Attributes:
        at_work: whether a worker is driving runs just now.
        judged: how many runs were.
        troubles: errors that the store raised to a worker, by class.
        violations: what was wrong.
    """

    def __init__(self, base: Path, url: str) -> None:
        self._base = base
        self._url = url
        self.at_work = False
        self.judged = 0
        self.troubles: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def run(self, over: threading.Event) -> None:
        """Drive and judge batches until it is over, or something was wrong."""
        self._base.mkdir(parents=True)
        setup: JSONObject = {"store": self._url}
        with ForkServer(_WORK, setup=setup, limit_seconds=_WORKER_SECONDS) as server:
            campaign = Campaign(server, self._base, store=self._url)
            while not over.is_set() and not self.violations:
                self._batch(campaign)

    def _batch(self, campaign: Campaign) -> None:
        ordeals = [campaign.ordeal() for _ in range(_RUNS_AT_ONCE)]
        try:
            self._drive(campaign, ordeals)
            for ordeal in ordeals:
                found = _patiently(ordeal.judge)
                self.violations += found
                self.judged += 1
                self.troubles.update(_troubles(ordeal.folder.path))
                if not found:
                    shutil.rmtree(ordeal.folder.path)
        except AgentkitError as error:
            self.violations.append(Violation("L1", str(self._base), str(error)))
        finally:
            for ordeal in ordeals:
                ordeal.__exit__(None, None, None)

    def _drive(self, campaign: Campaign, ordeals: Sequence[Ordeal]) -> None:
        until = _clock.elapsed() + _WORKER_SECONDS
        left = list(ordeals)
        while left:
            orders = [msgspec.to_builtins(_patiently(ordeal.order)) for ordeal in left]
            self.at_work = True
            ended = campaign.server.run({"orders": orders})
            self.at_work = False
            if ended.how != "completed":
                raise WorkerStuck(f"{self._base}: a worker {ended.how}: {ended.detail}")
            for ordeal in left:
                _patiently(ordeal.read)
            left = [ordeal for ordeal in left if not _has_ended(ordeal)]
            if left and _clock.elapsed() > until:
                raise NoProgress(f"{left[0].folder.path}: not ended in {_WORKER_SECONDS:g} s")


def _has_ended(ordeal: Ordeal) -> bool:
    state = _patiently(ordeal.state)
    if state.parked is not None:
        raise NoProgress(f"{ordeal.folder.path}: the run is parked: {state.parked.message}")
    return state.end is not None


def _patiently(ask: Callable[[], _T]) -> _T:
    """Ask the store until it can be reached."""
    until = _clock.elapsed() + PROGRESS_SECONDS
    while True:
        try:
            return ask()
        except StoreError:
            if _clock.elapsed() > until:
                raise
        pause(POLL_SECONDS)


def _troubles(folder: Path) -> Iterator[str]:
    for line in JsonLines(folder / _TROUBLES).read():
        yield str(line["error"]).partition(":")[0]


def pause(seconds: float) -> None:
    """Let so much time pass."""
    threading.Event().wait(seconds)
