"""`python -m agentkit.testing.crash.outages`: a server fails under load, and no run takes harm.

Workers drive many runs at a time through one store each, while sessions are ended, processes of the
server are killed, and it is restarted, each time after the runs have got on since the last time. An
error of the store is a worker's to bear: it tries again, or leaves the run to the next one. In the
end every run has to be finished, and each is judged as after a kill.
"""

from __future__ import annotations

import argparse
import random  # noqa: TID251 - seeded: the order of the outages can be repeated
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.runtime import SystemClock
from agentkit.testing.crash._victims import Victim, victim
from agentkit.testing.crash.load import POLL_SECONDS, PROGRESS_SECONDS, Load, pause
from agentkit.testing.crash.loop import NoProgress
from agentkit.testing.invariants import Violation, report

__all__ = ["STORES", "Figures", "Outages", "main", "run_campaign"]

STORES = ("postgres", "pgbouncer", "redis")
"""Whose servers can fail."""

_LONGEST_PEACE_SECONDS = 0.3

_clock = SystemClock()


class Outages:
    """Lets a server fail again and again, as the dice say.

    Args:
        server: the server.
        dice: say how and when.
        count: how many outages.

    Attributes:
        happened: how often each kind struck sessions.
    """

    def __init__(self, server: Victim, dice: random.Random, *, count: int) -> None:
        self._server = server
        self._dice = dice
        self._count = count
        self._entries = 0
        self.happened: Counter[str] = Counter(dict.fromkeys(server.acts, 0))

    def run(self, loads: Sequence[Load]) -> None:
        """Let them happen, each while workers are at work, after the journals have grown.

        Args:
            loads: the workers.

        Raises:
            NoProgress: the journals did not grow, or the workers have given up.
            ServerFailed: the server did not come back.
        """
        for kind in self._kinds():
            self._wait_for_progress(loads)
            pause(self._dice.uniform(0.0, _LONGEST_PEACE_SECONDS))
            self.happened[kind] += self._server.acts[kind]()

    def _kinds(self) -> Iterator[str]:
        """Each kind once in so many, until enough have happened."""
        kinds = list(self._server.acts)
        while self.happened.total() < self._count:
            yield from self._dice.sample(kinds, len(kinds))

    def _wait_for_progress(self, loads: Sequence[Load]) -> None:
        until = _clock.elapsed() + PROGRESS_SECONDS
        while (entries := self._server.entries()) <= self._entries or not _any_at_work(loads):
            if _clock.elapsed() > until or any(load.violations for load in loads):
                raise NoProgress(f"no run got on in {PROGRESS_SECONDS:g} s after {self.happened}")
            pause(POLL_SECONDS)
        self._entries = entries


class Figures(msgspec.Struct, frozen=True):
    """What a campaign came to.

    Args:
        outages: how often each kind struck sessions.
        runs: how many were judged.
        troubles: errors that the store raised to a worker, by class.
        violations: what was wrong.
        seconds: how long it took.
    """

    outages: dict[str, int]
    runs: int
    troubles: dict[str, int]
    violations: list[Violation]
    seconds: float

    def summary(self) -> str:
        """The figures in some lines."""
        lines = [f"{sum(self.outages.values())} outages, {self.runs} runs, {self.seconds:.0f} s"]
        lines += [f"{kind:18} {count:5}" for kind, count in self.outages.items()]
        lines += [f"raised to a worker: {name} {n}" for name, n in sorted(self.troubles.items())]
        return "\n".join([*lines, report(self.violations)])


def run_campaign(
    base: Path, *, store: str = "postgres", outages: int, seed: int = 1, jobs: int = 2
) -> Figures:
    """Let a server of our own fail so many times under the load of `jobs` workers.

    Args:
        base: an empty folder; runs that broke something stay there.
        store: one of `STORES`.
        outages: how many.
        seed: of their order and instants.
        jobs: how many workers drive runs at a time.
    """
    begun = _clock.elapsed()
    dice = random.Random(seed)  # noqa: S311 - no secret
    with victim(store, dice) as server:
        trouble = Outages(server, dice, count=outages)
        over = threading.Event()
        loads = [Load(base / f"job{number}", server.url) for number in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            jobs_running = [pool.submit(load.run, over) for load in loads]
            violations = []
            try:
                trouble.run(loads)
            except AgentkitError as error:
                violations.append(Violation("L1", "all", str(error)))
            finally:
                over.set()
            for job in jobs_running:
                job.result()
    troubles: Counter[str] = Counter()
    for load in loads:
        violations += load.violations
        troubles.update(load.troubles)
    runs = sum(load.judged for load in loads)
    return Figures(trouble.happened, runs, troubles, violations, _clock.elapsed() - begun)


def _any_at_work(loads: Sequence[Load]) -> bool:
    return any(load.at_work for load in loads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agentkit.testing.crash.outages")
    parser.add_argument("--store", choices=STORES, default=STORES[0], help="whose server fails")
    parser.add_argument("--outages", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of their order and instants")
    parser.add_argument("--jobs", type=int, default=2, help="how many workers at a time")
    given = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="agentkit-outages-"))
    figures = run_campaign(
        base, store=given.store, outages=given.outages, seed=given.seed, jobs=given.jobs
    )
    sys.stdout.write(figures.summary() + "\n")
    missed = [kind for kind, count in figures.outages.items() if not count]
    if figures.violations or not figures.runs or missed:
        sys.stdout.write(f"never happened: {missed}; what was left is in {base}\n")
        return 1
    shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
