"""Kill, carry on, judge: the loops that put a run through every death."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a campaign can be repeated
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.ports import Row
from agentkit.core.contracts.types import Decision
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.crash.plan import BORDERS
from agentkit.testing.crash.processes import Ended, ForkServer
from agentkit.testing.crash.scenario import STEPS, Folder, Order
from agentkit.testing.invariants import Evidence, ToolKind, Violation, check, read_rows

__all__ = ["SCENARIO", "Campaign", "NoProgress", "WorkerFailed"]

SCENARIO = "agentkit.testing.crash.scenario:work"
"""The worker's function, for `ForkServer`."""

TOOLS: dict[str, ToolKind] = {"lookup": "read", "upsert": "idempotent", "notify": "plain"}

MAX_WORKERS = 40
"""Workers that a run may take once nobody kills them any more."""


class WorkerFailed(AgentkitError):
    """A worker ended by an error of its own, which no kill may cause."""


class NoProgress(AgentkitError):
    """A run did not end although nobody killed its workers any more."""


@dataclass
class Campaign:
    """Puts runs of the scenario through kills and counts what happened.

    Args:
        server: of `SCENARIO`.
        base: an empty folder; each run gets one of its own in it.
        steps: how many turns of tools a run has.
    """

    server: ForkServer
    base: Path
    steps: int = 3
    runs: int = 0
    kills: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    @property
    def expected(self) -> str:
        """What an undisturbed run answers."""
        words = {"lookup": "value of", "upsert": "stored", "notify": "sent"}
        calls = [call for step in STEPS[: self.steps] for call in step]
        return "all done: " + ", ".join(f"{words[name]} {item}" for name, item in calls)

    @property
    def unhit(self) -> set[str]:
        """Known borders that no worker ever reached."""
        return set(BORDERS) - set(self.hits)

    def every_border(self, first: Sequence[int | None] = ()) -> int:
        """Kill the worker after those of `first` at border 1, 2, 3 … until one completes.

        Returns how many borders there were.
        """
        number = 0
        while True:
            number += 1
            if not self.run([*first, number]):
                return number - 1

    def run(self, deaths: Sequence[float | None]) -> bool:
        """One run: a worker for each death (a border as `int`, or seconds as `float`), then workers
        that nobody kills until it is done; and judge it.

        Returns whether the last of `deaths` happened.
        """
        self.runs += 1
        path = self.base / f"run{self.runs}"
        path.mkdir()
        return asyncio.run(_Ordeal(self, Folder(path)).go(deaths))

    def at_random(self, seed: int) -> None:
        """One run whose workers are killed at up to three random instants."""
        dice = random.Random(seed)  # noqa: S311 - no secret
        self.run([dice.uniform(0.0, 0.12) for _ in range(dice.randint(1, 3))])

    def summary(self) -> str:
        """Kills and borders in a few lines."""
        lines = [f"{self.runs} runs, {self.kills} kills, {sum(self.hits.values())} borders passed"]
        lines += [
            f"{border:15} {self.hits[border]:7} hit {self.killed_at[border]:6} killed"
            for border in BORDERS
        ]
        return "\n".join(lines)


class _Ordeal:
    """One run of a campaign, from its first worker to the verdict."""

    def __init__(self, campaign: Campaign, folder: Folder) -> None:
        self._campaign = campaign
        self._folder = folder
        self._store = folder.store()
        self._reads: list[tuple[Row, ...]] = []

    async def go(self, deaths: Sequence[float | None]) -> bool:
        """See `Campaign.run`."""
        died = False
        try:
            for death in deaths:
                died = (await self._worker(death)).how == "killed"
            state = await self._finish()
            self._judge(state)
        finally:
            await self._store.aclose()
        return died

    async def _finish(self) -> RunState:
        for _ in range(MAX_WORKERS):
            state = await load(self._store, "r1")
            if state.end is not None:
                return state
            await self._worker(None)
        raise NoProgress(f"{self._folder.path}: the run did not end in {MAX_WORKERS} workers")

    async def _worker(self, death: float | None) -> Ended:
        """One worker; where the run waits for a human, with the answers of one who looked."""
        state = await load(self._store, "r1")
        order = Order(
            folder=str(self._folder.path),
            at=death if isinstance(death, int) else None,
            steps=self._campaign.steps,
        )
        if state.status == "suspended":
            order = msgspec.structs.replace(
                order, action="resume", decisions=self._decisions(state)
            )
        ended = self._campaign.server.run(
            msgspec.to_builtins(order),
            kill_after_seconds=death if isinstance(death, float) else None,
        )
        if ended.how == "failed":
            raise WorkerFailed(f"{self._folder.path}: {ended.detail}")
        self._campaign.kills += ended.how == "killed"
        self._reads.append(await read_rows(self._store, "r1"))
        return ended

    def _decisions(self, state: RunState) -> dict[str, Decision]:
        """Look outside: what was done is said to be done, what was not is run again."""
        decisions = {}
        for question in state.questions:
            done = [
                effect
                for effect in self._folder.effects.effects()
                if effect.digest == question.digest
            ]
            decisions[question.id] = (
                Decision("done", done[0].result) if done else Decision("run_again")
            )
        return decisions

    def _judge(self, state: RunState) -> None:
        campaign, folder = self._campaign, self._folder
        campaign.hits.update(folder.borders.hits())
        campaign.killed_at.update(folder.borders.kills())
        evidence = Evidence(
            run="r1",
            rows=self._reads[-1],
            effects=tuple(folder.effects.read()),
            promises=tuple(folder.promises.read()),
            answers=tuple(folder.answers.read()),
            tools=TOOLS,
            earlier=tuple(self._reads),
        )
        found = check(evidence)
        output = getattr(state.end, "output", "")
        if output != campaign.expected:
            found.append(Violation("L1", "r1", f"it ended with {output!r}"))
        campaign.violations += [v._replace(run=str(folder.path)) for v in found]
