"""The worker: looks for runs of its agents that want one, and drives some of them at a time.

Everything that makes a run safe is in the run's own path. A worker only decides which run it tries
next, so any number of them may share a store, and none of them is needed to keep what is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from agentkit.agents import Agent
from agentkit.agents.draining import DRAIN_SECONDS
from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidSpec,
    LeaseLost,
    RunInterrupted,
    RunInUse,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Claimable
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import Services
from agentkit.dispatch.driving import agents_by_name, drive_run
from agentkit.dispatch.events import WorkerEvent, about, how_it_went, why_due
from agentkit.dispatch.picking import Key, Rests, key_of, next_rest, pick
from agentkit.dispatch.suspects import Suspects
from agentkit.state.checkpoints.adapters import open_store
from agentkit.state.journal.drives import drives_of, known
from agentkit.state.journal.owner import is_dead
from agentkit.tools.execute import left_behind

__all__ = [
    "CONCURRENCY",
    "LEAVE_SECONDS",
    "LONGEST_OUTAGE_SECONDS",
    "POLL_SECONDS",
    "SURVEY_SECONDS",
    "Worker",
]

CONCURRENCY = 4
"""Runs that a worker drives at a time."""

POLL_SECONDS = 1.0
"""How often a worker with room for a run looks for one."""

LONGEST_OUTAGE_SECONDS = 30.0
"""The longest wait between two looks at a store that does not answer."""

SURVEY_SECONDS = 60.0
"""How often a worker looks for runs of agents that it does not have."""

LEAVE_SECONDS = 10.0
"""How long runs may take to be given back when the grace is over, before their tasks are cut off.
"""

_PAGE = 100


class Worker:
    """Keeps runs going: those whose worker died or left them, whose time has come, that were
    answered, and that were submitted. Of all scopes of the store, and of its own agents.

    Args:
        agents: their runs, by name or reference; others are let be.
        store: where the runs are, or its URL.
        concurrency: how many are driven at a time.
        poll_seconds: how often to look while there is room for one.
        grace_seconds: see `stop`.
        services: what the runs work with; the checkpointer is made of `store`.
        on_event: is told what happens; must return at once.

    Raises:
        InvalidSpec: no agent, two of one name, or a number that is not positive.
        InvalidStoreUrl: the URL is malformed or unknown.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        store: JournalPort | str,
        concurrency: int = CONCURRENCY,
        poll_seconds: float = POLL_SECONDS,
        grace_seconds: float = DRAIN_SECONDS,
        services: Services | None = None,
        on_event: Callable[[WorkerEvent], None] = lambda _: None,
    ) -> None:
        if concurrency < 1 or not 0 < poll_seconds < float("inf"):  # nor is it nan
            message = f"a worker of {concurrency} runs at a time, every {poll_seconds} s"
            raise InvalidSpec(f"{message}: both must be positive")
        self._agents = agents_by_name(agents)
        self._store: JournalPort = open_store(store) if isinstance(store, str) else store
        self._owns_store = isinstance(store, str)
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._grace_seconds = grace_seconds
        self._services = services or Services()
        self._tell = on_event
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._rests = Rests(self._services.clock.elapsed)
        self._suspects = Suspects(self._store)
        self._news = asyncio.Event()
        self._stop_at: float | None = None
        self._answered = False
        self._outage_seconds = 0.0
        self._surveyed_at: float | None = None
        self._told: set[str] = set()

    @property
    def failing(self) -> int:
        """How many runs are let be for a while because the last attempt at them failed."""
        return self._rests.failing

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop` is called, or there is nothing left to do `until_idle`.

        When this returns, or is cancelled, no run is held any more, unless it did not let go of its
        task within `LEAVE_SECONDS`; a tool that ignores its cancellation may go on. A store that
        does not answer is waited for, once it has answered.

        Raises:
            StoreError: the store did not answer at the beginning, or cannot be used at all.
        """
        names = ", ".join(sorted({agent.name for agent in self._agents.values()}))
        self._tell(WorkerEvent("begun", f"worker of {names} on {self._store.location}"))
        try:
            while self._stop_at is None:
                self._news.clear()
                taken = await self._take() if len(self._tasks) < self._concurrency else 0
                if until_idle and not taken and not self._tasks and not self._outage_seconds:
                    break
                await self._wait(self._outage_seconds or self._poll_seconds)
            await self._give_back()
        finally:
            await self._cut_off()
            if self._owns_store:
                await self._store.aclose()
        self._tell(WorkerEvent("stopped", self._how_left()))

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Take no run any more, and leave those that are driven: acts under way have the grace to
        end, see `drain`. To be called in the worker's loop; again, with another grace, it takes
        the place of what was asked before.

        Args:
            grace_seconds: the worker's own where it is left out.
        """
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        self._stop_at = self._services.clock.elapsed() + grace
        held = len(self._tasks)
        self._tell(WorkerEvent("stopping", f"stopping: {held} runs have {grace:g} s to be left"))
        self._drain()
        self._news.set()

    # --- taking runs -------------------------------------------------------------------------

    async def _take(self) -> int:
        """Begin to drive what is due, as far as there is room; how many runs."""
        try:
            chosen = await self._choose()
        except StoreUnreachable as error:
            if not self._answered:
                raise
            if not self._outage_seconds:
                self._tell(WorkerEvent("outage", f"the store does not answer: {error}"))
            self._outage_seconds = min(next_rest(self._outage_seconds), LONGEST_OUTAGE_SECONDS)
            return 0
        if self._outage_seconds:
            self._tell(WorkerEvent("back", "the store answers again"))
        self._answered, self._outage_seconds = True, 0.0
        for one in [] if self._stop_at is not None else chosen:
            task = asyncio.get_running_loop().create_task(self._drive(one))
            self._tasks[key_of(one)] = task
            task.add_done_callback(partial(self._over, key_of(one)))
        return len(chosen)

    async def _choose(self) -> Sequence[Claimable]:
        due, spread = await self._look(), self._services.chance.fraction()

        def choose(without: Collection[Key]) -> Sequence[Claimable]:
            return pick(
                due,
                beside={*self._tasks, *self._rests.resting(), *without},
                free=self._concurrency - len(self._tasks),
                spread=spread,
                is_dead=partial(is_dead, known_drives=known),
            )

        return await self._suspects.apart(choose, driven=self._tasks.keys())

    async def _look(self) -> list[Claimable]:
        """Runs that want a worker; those that are not to be taken crowd none of the others out."""
        now = self._services.clock.elapsed()
        if self._surveyed_at is None or now - self._surveyed_at >= SURVEY_SECONDS:
            for one in await self._store.claimable(limit=_PAGE):
                if one.agent not in self._agents and one.agent not in self._told:
                    self._told.add(one.agent)
                    text = "this worker has no agent of that name; its runs are let be"
                    self._tell(WorkerEvent("unknown_agent", text, one.run, one.scope, one.agent))
            self._surveyed_at = now
        limit = _PAGE + len(self._tasks) + len(self._rests)
        return await self._store.claimable(agents=list(self._agents), limit=limit)

    def _over(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        self._news.set()
        if not task.cancelled():
            task.exception()  # looked at: whatever it is, it was told

    async def _wait(self, seconds: float) -> None:
        """Wait until a run was given back, or so long."""
        waits = [self._services.clock.sleep(seconds), self._news.wait()]
        tasks = [asyncio.ensure_future(one) for one in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    # --- one run -----------------------------------------------------------------------------

    async def _drive(self, one: Claimable) -> None:
        """Drive a run as far as it goes, and tell; its trouble is no other run's."""
        tell = partial(about, one)
        key = key_of(one)
        try:
            driven = await drive_run(
                one.run,
                agents=self._agents,
                store=self._store,
                scope=Scope.of_key(one.scope),
                services=self._services,
                on_claimed=lambda lease: self._tell(tell("claimed", why_due(lease))),
            )
        except RunInUse:  # another worker was faster
            self._rests.after_nothing(key)
        except (LeaseLost, RunInterrupted) as error:
            self._rests.after_nothing(key)
            self._tell(tell("left", str(error)))
        except asyncio.CancelledError:
            self._tell(tell("left", "cut off"))
            raise
        except Exception as error:  # noqa: BLE001 - the worker outlives what a run or an agent raises
            seconds = self._rests.after_failure(key)
            text = str(error) if isinstance(error, AgentkitError) else repr(error)
            self._tell(tell("failed", f"{text} (tried again in {seconds:g} s)"))
        else:
            if driven.worked:
                self._rests.end(key)
                self._tell(how_it_went(one, driven))
            else:
                self._rests.after_nothing(key)

    # --- leaving -----------------------------------------------------------------------------

    def _drain(self) -> None:
        """Have the runs left that are driven here."""
        loop = asyncio.get_running_loop()
        left = (self._stop_at or 0.0) - self._services.clock.elapsed()
        location = self._store.location
        mine = {(location, scope, run) for scope, run in self._tasks}
        for record in drives_of(loop):
            if record.key in mine and record.drain is not None:
                record.drain(max(left, 0.0))

    async def _give_back(self) -> None:
        """Wait until all runs are left; one whose drive only begins hears of it, too."""
        while self._tasks:
            self._drain()
            late = self._services.clock.elapsed() - (self._stop_at or 0.0)
            if late > LEAVE_SECONDS:
                return
            await asyncio.wait([*self._tasks.values()], timeout=0.5)

    async def _cut_off(self) -> None:
        """Cancel what is still driven, which leaves it resumable, and wait for that."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=LEAVE_SECONDS)

    def _how_left(self) -> str:
        held = [f"run {run!r}" for _, run in self._tasks]
        stuck = sorted({*held, *left_behind().values()} - {""})
        if not stuck:
            return "stopped; no run is held here any more"
        return f"stopped; goes on here until the process ends: {', '.join(stuck)}"
