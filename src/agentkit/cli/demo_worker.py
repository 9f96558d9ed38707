"""Workers of `agentkit demo`: real processes of the command line, and the moment to kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentkit.cli.demo_agent import (
    FOLDER_VARIABLE,
    SLOW_VARIABLE,
    TASK,
    TOOLS,
    effects_in,
)
from agentkit.cli.demo_model import DemoModel
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Question
from agentkit.core.runtime import SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.effects import EffectLog

__all__ = ["MOMENTS", "RUN", "Crew", "Ended", "decide", "versions"]

RUN = "demo"

_REFERENCE = "agentkit.cli.demo_agent:buyer"

MOMENTS = ("check_stock", "model", "place_order", "send_email")
"""In the middle of what workers are killed: these tools, and an answer of the model."""

_POLL_SECONDS = 0.02

_THINKING_SECONDS = 0.4
"""A real model that has been asked for so long is taken to be in the middle of its answer."""


@dataclass(frozen=True)
class Ended:
    """How a worker ended. `killed_in`: in the middle of what; empty where it left by itself."""

    pid: int
    command: str
    code: int
    killed_in: str = ""
    stdout: str = ""
    stderr: str = ""


@dataclass
class Crew:
    """Starts workers one after the other and kills each once, in the middle of something new.

    Args:
        folder: where the run's files are.
        store: the run's store, to look at.
        model: what the workers talk to.
        limit_seconds: the longest a worker may take.
        left: in the middle of what nobody has been killed yet.
    """

    folder: Path
    store: JournalPort
    model: DemoModel
    limit_seconds: float
    left: list[str] = field(default_factory=lambda: list(MOMENTS))

    @property
    def effects(self) -> EffectLog:
        """The outside world."""
        return effects_in(self.folder)

    @property
    def store_url(self) -> str:
        """As the workers are given it."""
        return f"sqlite:///{self.folder}/runs.db"

    async def work(self, answers: Sequence[str] = ()) -> Ended:
        """Run one worker until it leaves, or until it is in the middle of something to kill it in.

        Args:
            answers: for the questions that the run waits for, as `--answer` takes them.

        Raises:
            TimeoutError: it took longer than the limit.
        """
        verb = ["run", _REFERENCE, TASK, "--run-id", RUN]
        if answers:
            verb = ["resume", RUN, "--agent", _REFERENCE]
            verb += [part for answer in answers for part in ("--answer", answer)]
        rest = ["--store", self.store_url, "--model", self.model.name, "--json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "agentkit", *verb, *rest),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
        )
        ends = asyncio.ensure_future(process.communicate())
        killed_in = ""
        try:
            async with asyncio.timeout(self.limit_seconds):
                killed_in = await self._moment(process.pid, ends)
        finally:
            if not ends.done():
                process.kill()
            stdout, stderr = await ends
        if killed_in and process.returncode == -signal.SIGKILL:
            self.left.remove(killed_in)
        else:
            killed_in = ""  # it was faster and has left by itself
        shown = f"agentkit {verb[0]} {RUN if answers else _REFERENCE} …"
        code = process.returncode or 0
        return Ended(
            process.pid, shown, code, killed_in, stdout.decode(), stderr.decode(errors="replace")
        )

    def _environment(self) -> dict[str, str]:
        slow = ",".join(name for name in self.left if name in TOOLS)
        own = {FOLDER_VARIABLE: str(self.folder), SLOW_VARIABLE: slow}
        return {**os.environ, **self.model.environment, **own}

    async def _moment(self, pid: int, ends: asyncio.Future[tuple[bytes, bytes]]) -> str:
        """Wait until the worker leaves, or is in the middle of something in `left`."""
        clock = SystemClock()
        found = (await load(self.store, RUN)).seq
        asked: tuple[int, float] = (0, 0.0)
        while not ends.done():
            state = await load(self.store, RUN)
            for name in self.left:
                if name == "model":
                    asked = _asked(state, asked, clock.elapsed(), found=found)
                    if self._answering(clock.elapsed() - asked[1]):
                        return name
                elif self._inside(name, pid) and self._alone(state):
                    return name
            await clock.sleep(_POLL_SECONDS)
        return ""

    def _answering(self, asked_seconds: float) -> bool:
        if self.model.provider is not None:
            return self.model.holding
        return asked_seconds >= _THINKING_SECONDS

    def _inside(self, name: str, pid: int) -> bool:
        """Whether this worker is in the tool; of one with effects, after the effect."""
        wanted = {"run"} if TOOLS[name] == "read" else {"effect", "refused"}
        return any(
            one.pid == pid and one.tool == name and one.kind in wanted
            for one in self.effects.read(RUN)
        )

    def _alone(self, state: RunState) -> bool:
        """Whether the quick calls of the turn have their outcomes."""
        turn = state.main.turn
        calls = turn.calls if turn is not None else []
        return all(call.settled or call.record.name in self.left for call in calls)


def decide(questions: Sequence[Question], effects: EffectLog) -> list[tuple[Question, str]]:
    """What a person would answer who looked outside: done with its result, or run again."""
    had = {effect.digest: effect.result for effect in effects.effects(RUN)}
    return [
        (
            question,
            f"done:{had[question.digest]}" if question.digest in had else "run_again",
        )
        for question in questions
    ]


def _asked(
    state: RunState, before: tuple[int, float], now: float, *, found: int
) -> tuple[int, float]:
    """At which seq, and since when, the model has had the word and nothing else was recorded.

    `found` is the seq at which the worker found the run: what was so before it came does not count.
    """
    if state.seq == found or not state.main.wants_model or not state.main.turns:
        return (0, now)
    return before if before[0] == state.seq else (state.seq, now)


def versions(entries: Sequence[e.Entry]) -> list[int]:
    """The checkpoints that were ever taken; `list_versions` hides them once a run has finished."""
    return [entry.body.version for entry in entries if isinstance(entry.body, e.StepCompleted)]
