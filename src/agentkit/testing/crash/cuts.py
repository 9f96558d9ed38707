"""`python -m agentkit.testing.crash.cuts`: the answer to an append is lost, a thousand times.

A proxy stands before a server of our own. It lets an append pass, and the server carry it out, and
cuts the connection before the answer is through; so whoever sent it cannot know whether it
happened. Workers drive runs through it all the time, and each run is judged as after a kill.
"""

from __future__ import annotations

import argparse
import contextlib
import random  # noqa: TID251 - seeded
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentkit.core.runtime import SystemClock
from agentkit.testing.crash.load import POLL_SECONDS, PROGRESS_SECONDS, Load, pause
from agentkit.testing.invariants import Violation, report
from agentkit.testing.servers import LoseAnswer, PostgresServer, Proxy, RedisServer

__all__ = ["STORES", "Figures", "main", "run_campaign"]

STORES = ("postgres", "redis")
"""What can be cut off."""

_MOST_SKIPPED = 12
_clock = SystemClock()


class Figures(msgspec.Struct, frozen=True):
    """What a campaign came to.

    Args:
        cuts: how many answers were lost.
        runs: how many were judged.
        troubles: errors that the store raised to a worker, by class.
        violations: what was wrong.
        seconds: how long it took.
    """

    cuts: int
    runs: int
    troubles: dict[str, int]
    violations: list[Violation]
    seconds: float

    def summary(self) -> str:
        """The figures in some lines."""
        lines = [f"{self.cuts} answers lost, {self.runs} runs, {self.seconds:.0f} s"]
        lines += [f"raised to a worker: {name} {n}" for name, n in sorted(self.troubles.items())]
        return "\n".join([*lines, report(self.violations)])


class _Stand(NamedTuple):
    """A proxy before a server, the store's URL through it, and what a request has that is cut."""

    proxy: Proxy
    url: str
    request: bytes


@contextlib.contextmanager
def _stand(store: str) -> Iterator[_Stand]:
    if store == "postgres":
        with PostgresServer() as server, Proxy(server.port) as proxy:
            url = server.dsn(server.new_database(), port=proxy.port)
            yield _Stand(proxy, f"{url}?sslmode=disable", b"agentkit_append")
    else:
        with (
            RedisServer(appendonly=True, appendfsync="always") as redis,
            Proxy(redis.port) as proxy,
        ):
            yield _Stand(proxy, redis.url.replace(str(redis.port), str(proxy.port)), b"EVALSHA")


def run_campaign(base: Path, *, store: str, cuts: int, seed: int = 1, jobs: int = 2) -> Figures:
    """Lose so many answers under the load of `jobs` workers.

    Args:
        base: an empty folder; runs that broke something stay there.
        store: one of `STORES`.
        cuts: how many.
        seed: of the dice that say how many requests pass between two cuts.
        jobs: how many workers drive runs at a time.
    """
    begun = _clock.elapsed()
    dice = random.Random(seed)  # noqa: S311 - no secret
    violations: list[Violation] = []
    with _stand(store) as stand, ThreadPoolExecutor(jobs) as pool:
        over = threading.Event()
        loads = [Load(base / f"job{number}", stand.url) for number in range(jobs)]
        running = [pool.submit(load.run, over) for load in loads]
        done = 0
        while done < cuts and not any(load.violations for load in loads):
            passed = dice.randint(0, _MOST_SKIPPED)
            stand.proxy.fail_next(LoseAnswer(request=stand.request, skip=passed))
            if not _struck(stand.proxy, done + 1, loads):
                text = f"no request was cut within {PROGRESS_SECONDS:g} s, after {done}"
                violations.append(Violation("L1", store, text))
                break
            done += 1
        over.set()
        for job in running:
            job.result()
        struck = stand.proxy.struck["LoseAnswer"]
    troubles: dict[str, int] = {}
    for load in loads:
        violations += load.violations
        for name, number in load.troubles.items():
            troubles[name] = troubles.get(name, 0) + number
    judged = sum(load.judged for load in loads)
    return Figures(struck, judged, troubles, violations, _clock.elapsed() - begun)


def _struck(proxy: Proxy, times: int, loads: Sequence[Load]) -> bool:
    until = _clock.elapsed() + PROGRESS_SECONDS
    while proxy.struck["LoseAnswer"] < times:
        if _clock.elapsed() > until or any(load.violations for load in loads):
            return False
        pause(POLL_SECONDS / 10)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agentkit.testing.crash.cuts")
    parser.add_argument("--store", choices=STORES, required=True)
    parser.add_argument("--cuts", type=int, default=1_000, help="how many answers are lost")
    parser.add_argument("--seed", type=int, default=1, help="of what passes between two cuts")
    parser.add_argument("--jobs", type=int, default=2, help="how many workers at a time")
    given = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="agentkit-cuts-"))
    figures = run_campaign(
        base, store=given.store, cuts=given.cuts, seed=given.seed, jobs=given.jobs
    )
    sys.stdout.write(f"{given.store}: {figures.summary()}\n")
    if figures.violations or figures.cuts < given.cuts or not figures.runs:
        sys.stdout.write(f"what was left is in {base}\n")
        return 1
    shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
