"""Kill, carry on, judge: the loops that put a run through every death."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a campaign can be repeated
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.types import Decision
from agentkit.core.runtime import SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing._facts import tell
from agentkit.testing._outer_rules import takeovers_seconds
from agentkit.testing.crash.plan import BORDERS
from agentkit.testing.crash.processes import Ended, ForkServer
from agentkit.testing.crash.scenario import STEPS, Folder, Order
from agentkit.testing.invariants import (
    Evidence,
    Kill,
    ToolKind,
    Violation,
    check,
    read_rows,
    seen_by_strangers,
)

__all__ = ["SCENARIO", "Campaign", "Death", "NoProgress", "Ordeal", "WorkerFailed"]

SCENARIO = "agentkit.testing.crash.scenario:work"
"""The worker's function, for `ForkServer`."""

_TOOLS: dict[str, ToolKind] = {"lookup": "read", "upsert": "idempotent", "notify": "plain"}

Death: TypeAlias = "int | str | float | None"
"""A border, by number or name (see `CrashPlan`); or seconds after the start, as a `float`; or none:
the worker goes as far as it can."""

_clock = SystemClock()

_BEYOND = 2

_MAX_WORKERS = 40
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
        store: URL of a store that all runs share; else each has a SQLite file in its folder.
        secrets: what the workers know and may write nowhere.
    """

    server: ForkServer
    base: Path
    steps: int = 3
    store: str = ""
    secrets: tuple[str, ...] = ()
    runs: int = 0
    kills: int = 0
    questions: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    takeovers_seconds: list[float] = field(default_factory=list)
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

    def every_border(self, first: Sequence[Death] = ()) -> int:
        """Kill the worker after those of `first` at border 1, 2, 3 … until there is none.

        How many there are varies a little, with how many outcomes share an append; so it takes
        `_BEYOND` workers in a row that completed. Returns how many were killed.
        """
        with self.ordeal() as begun:
            for death in first:
                begun.worker(death)
        number = missed = 0
        while missed < _BEYOND:
            number += 1
            missed = 0 if self.run([number], begun=begun) else missed + 1
        return number - _BEYOND

    def run(self, deaths: Sequence[Death], *, begun: Ordeal | None = None) -> bool:
        """One run: a worker for each death, then workers that nobody kills; and judge it.

        Args:
            deaths: see `Death`.
            begun: a run that goes on in a copy, as it was when its `with` statement ended.

        Returns whether the last of `deaths` happened.
        """
        died = False
        with self.ordeal(begun) as ordeal:
            for death in deaths:
                died = ordeal.worker(death).how == "killed"
            ordeal.finish()
            ordeal.judge()
        return died

    def ordeal(self, begun: Ordeal | None = None) -> Ordeal:
        """A run that has not begun, or a copy of one, to be used in a `with` statement."""
        self.runs += 1
        path = self.base / f"run{self.runs}"
        if begun is None:
            path.mkdir()
        else:
            shutil.copytree(begun.folder.path, path)
        ordeal = Ordeal(self, Folder(path, self.store))
        ordeal.reads += begun.reads if begun is not None else []
        return ordeal

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


class Ordeal:
    """One run of a campaign, from its first worker to the verdict.

    Args:
        campaign: whose server is used and whose numbers grow.
        folder: where the run's facts are.

    Attributes:
        folder: as given.
        reads: the journal as it was read after each worker.
        kills: when each killed worker was known to be gone.
    """

    def __init__(self, campaign: Campaign, folder: Folder) -> None:
        self.folder = folder
        self.reads: list[tuple[Row, ...]] = []
        self.kills: list[Kill] = []
        self._campaign = campaign
        # In a store of many campaigns the id tells the runs apart; a file holds just this one.
        self._run = f"{folder.path.parent.name}-{folder.path.name}" if folder.url else "r1"
        self._store = folder.store()
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._store.aclose())
        self._loop.close()

    def state(self) -> RunState:
        """The run as it is in the store now."""
        return self._loop.run(load(self._store, self._run))

    def head(self) -> Head | None:
        """The run's head row."""
        return self._loop.run(self._store.head(self._run))

    def order(self, death: Death = None, *, how: int = signal.SIGKILL) -> Order:
        """What the next worker is told: to go on, and where the run waits for a human, with the
        answers of one who looked outside.
        """
        state = self.state()
        order = Order(
            folder=str(self.folder.path),
            run=self._run,
            store=self.folder.url,
            at=None if isinstance(death, float) else death,
            how=how,
            steps=self._campaign.steps,
        )
        if state.status != "suspended":
            return order
        decisions = self._decisions(state)
        return msgspec.structs.replace(order, action="resume", decisions=decisions)

    def worker(self, death: Death = None) -> Ended:
        """Run one worker to its end, by SIGKILL where `death` says so.

        Raises:
            WorkerFailed: it ended by an error.
        """
        ended = self._campaign.server.run(
            msgspec.to_builtins(self.order(death)),
            kill_after_seconds=death if isinstance(death, float) else None,
        )
        if ended.how == "failed":
            raise WorkerFailed(f"{self.folder.path}: {ended.detail}")
        gone_at = _clock.now()
        rows = self.read()
        if ended.how == "killed":
            self._campaign.kills += 1
            self.kills.append(Kill(len(rows), gone_at))
        return ended

    def read(self) -> tuple[Row, ...]:
        """Read the journal, and remember what it was."""
        rows = self._loop.run(read_rows(self._store, self._run))
        self.reads.append(rows)
        return rows

    def finish(self) -> RunState:
        """Workers that nobody kills, until the run has ended."""
        for _ in range(_MAX_WORKERS):
            state = self.state()
            if state.end is not None:
                return state
            if state.parked is not None:
                raise NoProgress(f"{self.folder.path}: the run is parked: {state.parked.message}")
            self.worker()
        raise NoProgress(f"{self.folder.path}: the run did not end in {_MAX_WORKERS} workers")

    def judge(self) -> list[Violation]:
        """Check everything that must hold; the campaign keeps count and violations."""
        campaign, folder = self._campaign, self.folder
        campaign.hits.update(folder.borders.hits())
        campaign.killed_at.update(folder.borders.kills())
        rows = self.read()
        campaign.questions += len(tell(rows).of("question_asked"))
        campaign.takeovers_seconds += takeovers_seconds(rows, self.kills)
        evidence = Evidence(
            run=self._run,
            rows=rows,
            head=self.head(),
            effects=tuple(folder.effects.read()),
            promises=tuple(folder.promises.read()),
            answers=tuple(folder.answers.read()),
            tools=_TOOLS,
            earlier=tuple(self.reads),
            kills=tuple(self.kills),
            output=campaign.expected,
            scope="",
            strangers=self._loop.run(seen_by_strangers(self._store, self._run)),
            secrets=campaign.secrets,
            stored={path.name: path.read_bytes() for path in folder.path.iterdir()},
        )
        found = check(evidence)
        found = [violation._replace(run=str(folder.path)) for violation in found]
        campaign.violations += found
        return found

    def _decisions(self, state: RunState) -> dict[str, Decision]:
        """What was done is said to be done, what was not is run again."""
        effects = {effect.digest: effect for effect in self.folder.effects.effects()}
        decisions = {}
        for question in state.questions:
            done = effects.get(question.digest)
            decisions[question.id] = (
                Decision("run_again") if done is None else Decision("done", done.result)
            )
        return decisions
