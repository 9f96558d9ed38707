"""The crash test itself: two runs that nobody kills, then one for each place to die."""

from __future__ import annotations

import os
import random  # noqa: TID251 - seeded: a crash test can be repeated
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, TypeVar

import msgspec

from agentkit.agents import Agent
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.runtime import SystemClock
from agentkit.testing.crash import BORDERS
from agentkit.testing.crashtest.judge import Rules, Trial, policy_of
from agentkit.testing.crashtest.report import CrashReport
from agentkit.testing.crashtest.summary import findings_of, tool_reports
from agentkit.testing.crashtest.worker import Setup
from agentkit.testing.crashtest.workers import Border, Ran, Workers

__all__ = ["DEFAULT_KILLS", "DEFAULT_TIMEOUT_SECONDS", "Options", "Plan", "Progress", "run_plan"]

DEFAULT_KILLS = 500
"""Places (or pairs of them) that are tried at most, where nothing else is said."""

DEFAULT_TIMEOUT_SECONDS = 30.0
"""How long one worker may take, where nothing else is said."""

_PLACE = re.compile(rf"({'|'.join(BORDERS)})(:[\w-]+)?@\d+(#\d+)?")

Progress = Callable[[int, int], None]
"""`progress(done, of)`: told after each killed run."""


_T = TypeVar("_T")


class Options(TypedDict, total=False):
    """Where and how a crash test kills.

    Args:
        tool: kill only while this tool is in flight; empty for everywhere.
        borders: kill only at borders of these names, or whose names begin so (`append`).
        kills_per_border: how many borders of one name are tried; 0 for all.
        max_kills: how many places (or pairs) are tried at most.
        seed: which ones, where not all are tried.
        jobs: how many runs at once.
        pairs: kill the worker that recovers too, at each of its borders.
        at: try this one death alone, `append:after@2`; or these one after the other, with commas.
        timeout_seconds: how long one worker may take.
        keep: a new folder where the journals and logs of all runs are kept.
        varies: tools whose results may differ from run to run.
        replay: the command that repeats a kill, with `{at}` for where; for the report.
    """

    tool: str
    borders: Sequence[str]
    kills_per_border: int
    max_kills: int
    seed: int
    jobs: int
    pairs: bool
    at: str
    timeout_seconds: float
    keep: str
    varies: Sequence[str]
    replay: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a crash test does: `setup` is what all workers are told, the rest are `Options`."""

    setup: Setup
    tool: str = ""
    borders: Sequence[str] = ()
    kills_per_border: int = 0
    max_kills: int = DEFAULT_KILLS
    seed: int = 0
    jobs: int = 1
    pairs: bool = False
    at: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    keep: str = ""
    varies: Sequence[str] = ()
    replay: str = "crash_test(…, at='{at}')"

    @property
    def deaths(self) -> tuple[str, ...]:
        """The places of `at`."""
        return tuple(filter(None, self.at.split(",")))


def run_plan(plan: Plan, agent: Agent, *, progress: Progress = lambda *_: None) -> CrashReport:
    """Carry the plan out.

    Args:
        plan: what to do.
        agent: the agent as this process knows it, for the names and policies of its tools.
        progress: see `Progress`.

    Raises:
        InvalidSpec: the plan names what is not there, or the agent cannot be tested: the run that
            nobody kills does not finish.
    """
    _check(plan, agent)
    clock = SystemClock()
    began = clock.elapsed()
    notes: list[str] = []
    with _folder(plan) as base, _workers(plan, base) as workers:
        first, second = _undisturbed(workers, notes)
        rules = Rules(
            (first.trial, second.trial),
            {tool.name: policy_of(tool) for tool in agent.cognition.tools},
            plan.varies,
        )
        wanted = [plan.deaths] if plan.at else _chosen(plan, first.borders, notes)
        ran = _all(plan, workers, wanted, progress)
        if plan.pairs and not plan.at:
            pairs = _pairs(plan, ran, notes)
            ran += _all(plan, workers, pairs, progress)
    trials = [one.trial for one in ran]
    if plan.at and not any(trial.died for trial in trials):
        raise InvalidSpec(
            f"no worker passed {plan.at!r}, so nobody was killed and nothing was tested; a run "
            f"passes {', '.join(border.place for border in first.borders)}"
        )
    findings = findings_of(trials, rules, replay=plan.replay)
    notes += _notes(trials, rules)
    return CrashReport(
        agent=plan.setup.target.reference,
        task=plan.setup.task,
        kills=sum(trial.died for trial in trials),
        runs=len(trials) + 2,
        borders=len(first.borders),
        tested=len(trials),
        seconds=round(clock.elapsed() - began, 3),
        tools=tool_reports(trials, rules, findings),
        findings=findings,
        notes=tuple(notes),
        kept=plan.keep,
    )


def _check(plan: Plan, agent: Agent) -> None:
    names = [tool.name for tool in agent.cognition.tools]
    for name in (*plan.varies, *filter(None, [plan.tool])):
        if name not in names:
            known = ", ".join(names) or "none"
            raise InvalidSpec(f"agent {agent.name!r} has no tool {name!r}; it has {known}")
    for border in plan.borders:
        if not any(known.startswith(border) for known in BORDERS):
            raise InvalidSpec(f"there is no border {border!r}; there are {', '.join(BORDERS)}")
    for place in plan.deaths:
        if not _PLACE.fullmatch(place):
            raise InvalidSpec(f"{place!r} is no place to die; one looks like append:after@2")


@contextmanager
def _folder(plan: Plan) -> Iterator[Path]:
    if not plan.keep:
        with tempfile.TemporaryDirectory(prefix="agentkit-crashtest-", dir=_in_memory()) as base:
            yield Path(base)
        return
    kept = Path(plan.keep)
    try:
        kept.mkdir(parents=True)
    except OSError as exc:
        raise InvalidSpec(f"{plan.keep!r} cannot be made as a new folder: {exc.strerror}") from exc
    yield kept.resolve()


def _in_memory() -> str | None:
    """Where syncing costs nothing: what a process wrote survives its SIGKILL in memory too."""
    folder = Path("/dev/shm")  # noqa: S108 - only a name of our own is made in it
    return str(folder) if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) else None


def _workers(plan: Plan, base: Path) -> Workers:
    return Workers(plan.setup, base, timeout_seconds=plan.timeout_seconds, keep=bool(plan.keep))


def _undisturbed(workers: Workers, notes: list[str]) -> tuple[Ran, Ran]:
    """Two runs that nobody kills: what is expected, and what differs without any kill.

    Raises:
        InvalidSpec: one does not finish.
    """
    first = workers.run()
    _check_undisturbed(first.trial)
    story = first.trial.story
    if story is not None and story.threads > 1:
        notes.append(
            f"importing the agent started {story.threads - 1} threads, which no fork survives: "
            "every worker was started from nothing, which takes longer"
        )
        workers.close()
        workers.fresh = True
    second = workers.run()
    _check_undisturbed(second.trial)
    return first, second


def _check_undisturbed(trial: Trial) -> None:
    story = trial.story
    if story is not None and story.status == "finished":
        return
    why = trial.trouble or (
        f"it is {story.status}: {story.message}" if story else "it left nothing"
    )
    raise InvalidSpec(
        f"the run that nobody kills did not finish, so there is nothing to compare with: {why}"
    )


def _chosen(plan: Plan, borders: Sequence[Border], notes: list[str]) -> list[tuple[str, ...]]:
    """The places that the plan asks for, in the order in which a run passes them."""
    chosen = [
        border
        for border in (_around(plan.tool, borders) if plan.tool else borders)
        if not plan.borders or border.kind.startswith(tuple(plan.borders))
    ]
    dice = random.Random(plan.seed)  # noqa: S311 - no secret
    if plan.kills_per_border:
        groups: dict[str, list[Border]] = defaultdict(list)
        for border in chosen:
            groups[border.kind].append(border)
        kept = [
            one for group in groups.values() for one in _some(group, plan.kills_per_border, dice)
        ]
        chosen = [border for border in chosen if border in kept]
    if not chosen:
        raise InvalidSpec("no border is left to kill at: nothing was tested; ask for less")
    some = _some(chosen, plan.max_kills, dice)
    if len(some) < len(chosen):
        notes.append(f"{len(some)} of {len(chosen)} places were tried: raise --max-kills")
    return [(border.place,) for border in some]


def _pairs(plan: Plan, ran: Sequence[Ran], notes: list[str]) -> list[tuple[str, ...]]:
    """Each first death with each border that its successor passed."""
    pairs = [
        (*one.trial.kills, border.place) for one in ran if one.trial.died for border in one.borders
    ]
    dice = random.Random(plan.seed)  # noqa: S311 - no secret
    some = _some(pairs, max(plan.max_kills - len(ran), 0), dice)
    if len(some) < len(pairs):
        notes.append(f"{len(some)} of {len(pairs)} pairs of kills were tried: raise --max-kills")
    return some


def _some(things: Sequence[_T], most: int, dice: random.Random) -> list[_T]:
    """At most so many of them, in their order."""
    if len(things) <= most:
        return list(things)
    return [things[index] for index in sorted(dice.sample(range(len(things)), most))]


def _around(tool: str, borders: Sequence[Border]) -> list[Border]:
    """The borders between a tool's intent and its outcome."""
    kept: set[int] = set()
    for index, border in enumerate(borders):
        if border.tool == tool:
            before = (i for i in range(index, -1, -1) if borders[i].kind == "append:after")
            after = (i for i in range(index, len(borders)) if borders[i].kind == "append:before")
            kept |= {index, next(before, index), next(after, index)}
    return [borders[index] for index in sorted(kept)]


def _all(
    plan: Plan, workers: Workers, wanted: Sequence[tuple[str, ...]], progress: Progress
) -> list[Ran]:
    ran: list[Ran] = []
    with ThreadPoolExecutor(plan.jobs) as pool:
        pending = [pool.submit(workers.run, *kills) for kills in wanted]
        try:
            for one in pending:
                ran.append(one.result())
                progress(len(ran), len(wanted))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.kill()
            raise
    return ran


def _notes(trials: Sequence[Trial], rules: Rules) -> Iterator[str]:
    missed = sum(trial.died < len(trial.kills) for trial in trials)
    if missed:
        places = "one place was" if missed == 1 else f"{missed} places were"
        yield f"{places} not reached again, so nobody was killed there"
    calm = rules.undisturbed[0].story
    for call in calm.calls if calm is not None else ():
        if call.outcome != "ok":
            yield (
                f"{call.tool} ended with {call.outcome!r} even where nobody was killed "
                f"({call.content[:120]!r}): a crash test of such a call proves little"
            )
