"""`python -m agentkit.testing.crash.outages`: a Postgres fails under load, and no run takes harm.

Workers drive many runs at a time through one store each, while sessions are ended, backends are
killed, and the server is restarted or killed, each time after the runs have got on since the last
time. An error of the store is a worker's to bear: it tries again, or leaves the run to the next
one. In the end every run has to be finished, and each is judged as after a kill.
"""

from __future__ import annotations

import argparse
import os
import random  # noqa: TID251 - seeded: the order of the outages can be repeated
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.runtime import SystemClock
from agentkit.testing.crash.load import POLL_SECONDS, PROGRESS_SECONDS, Load, pause
from agentkit.testing.crash.loop import NoProgress
from agentkit.testing.invariants import Violation, report
from agentkit.testing.servers import PostgresServer, ServerFailed

__all__ = ["KINDS", "Figures", "Outages", "main", "run_campaign"]

KINDS = ("end sessions", "kill a backend", "restart", "stop at once", "kill the server")
"""`pg_terminate_backend`; SIGKILL of a backend, after which Postgres restarts them all; an orderly
restart; one without a checkpoint; SIGKILL of postmaster and backends.
"""

_LONGEST_PEACE_SECONDS = 0.3

_OURS = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type LIKE 'client%'"
_SESSIONS = f"SELECT pid FROM pg_stat_activity WHERE {_OURS} ORDER BY pid"  # noqa: S608 - ours
_END_SESSIONS = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OURS}"  # noqa: S608
_ENTRIES = "SELECT count(*) FROM agentkit.agentkit_entry"

_clock = SystemClock()


class Outages:
    """Lets a server fail again and again, as the dice say.

    Args:
        server: the server.
        database: the one with the store.
        seed: of the dice.
        count: how many outages.
    """

    def __init__(self, server: PostgresServer, database: str, *, seed: int, count: int) -> None:
        self._server = server
        self._database = database
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self._count = count
        self._entries = 0
        self.happened: Counter[str] = Counter()

    def run(self, loads: Sequence[Load]) -> None:
        """Let them happen, each while workers are at work, after the journals have grown.

        Args:
            loads: the workers.

        Raises:
            NoProgress: the journals did not grow, or the workers have given up.
            ServerFailed: the server did not come back.
        """
        acts: dict[str, Callable[[], bool]] = {
            "end sessions": self._end_sessions,
            "kill a backend": self._kill_a_backend,
            "restart": lambda: self._again(self._server.restart),
            "stop at once": lambda: self._again(lambda: self._server.restart("immediate")),
            "kill the server": lambda: self._again(self._server.kill, self._server.start),
        }
        for kind in self._kinds():
            self._wait_for_progress(loads)
            pause(self._dice.uniform(0.0, _LONGEST_PEACE_SECONDS))
            self.happened[kind] += acts[kind]()

    def _kinds(self) -> Iterator[str]:
        """Each kind at least once in so many, until enough have happened."""
        while self.happened.total() < self._count:
            yield from self._dice.sample(KINDS, len(KINDS))

    def _wait_for_progress(self, loads: Sequence[Load]) -> None:
        until = _clock.elapsed() + PROGRESS_SECONDS
        while (entries := self._number(_ENTRIES)) <= self._entries or not _any_at_work(loads):
            if _clock.elapsed() > until or any(load.violations for load in loads):
                raise NoProgress(f"no run got on in {PROGRESS_SECONDS:g} s after {self.happened}")
            pause(POLL_SECONDS)
        self._entries = entries

    def _end_sessions(self) -> bool:
        return "t" in self._ask(_END_SESSIONS)

    def _kill_a_backend(self) -> bool:
        pids = self._ask(_SESSIONS).split()
        if pids:
            os.kill(int(self._dice.choice(pids)), signal.SIGKILL)
        return bool(pids)

    def _again(self, *acts: Callable[[], None]) -> bool:
        busy = bool(self._ask(_SESSIONS))
        for act in acts:
            act()
        return busy

    def _ask(self, statement: str) -> str:
        """The answer; empty while the server recovers."""
        try:
            return self._server.sql(statement, database=self._database)
        except ServerFailed:
            return ""

    def _number(self, statement: str) -> int:
        return int(self._ask(statement) or 0)


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
        lines += [f"{kind:16} {self.outages.get(kind, 0):5}" for kind in KINDS]
        lines += [f"raised to a worker: {name} {n}" for name, n in sorted(self.troubles.items())]
        return "\n".join([*lines, report(self.violations)])


def run_campaign(base: Path, *, outages: int, seed: int = 1, jobs: int = 2) -> Figures:
    """Let a server of our own fail so many times under the load of `jobs` workers.

    Args:
        base: an empty folder; runs that broke something stay there.
        outages: how many.
        seed: of their order and instants.
        jobs: how many workers drive runs at a time.
    """
    begun = _clock.elapsed()
    with PostgresServer() as server:
        database = server.new_database()
        trouble = Outages(server, database, seed=seed, count=outages)
        over = threading.Event()
        loads = [Load(base / f"job{number}", server.dsn(database)) for number in range(jobs)]
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
    parser.add_argument("--outages", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of their order and instants")
    parser.add_argument("--jobs", type=int, default=2, help="how many workers at a time")
    given = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="agentkit-outages-"))
    figures = run_campaign(base, outages=given.outages, seed=given.seed, jobs=given.jobs)
    sys.stdout.write(figures.summary() + "\n")
    missed = [kind for kind in KINDS if not figures.outages.get(kind)]
    if figures.violations or not figures.runs or missed:
        sys.stdout.write(f"never happened: {missed}; what was left is in {base}\n")
        return 1
    shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
