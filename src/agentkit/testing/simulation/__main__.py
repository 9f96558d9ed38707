"""`python -m agentkit.testing.simulation`: play many schedules, or show one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys

import msgspec

from agentkit.core.runtime import SystemClock
from agentkit.testing.simulation._policies import POLICIES
from agentkit.testing.simulation.campaign import MAX_FAILED_SEEDS, Tally
from agentkit.testing.simulation.schedule import simulate

__all__ = ["main"]

_CHUNK = 25


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign. Returns the exit code: 1 where something was violated."""
    parser = argparse.ArgumentParser(
        prog="python -m agentkit.testing.simulation",
        description="Play schedules of the runtime in a simulated world, and check each.",
    )
    parser.add_argument("--schedules", type=int, default=1_000, help="how many at most")
    parser.add_argument("--seed", type=int, default=1, help="the first schedule's; then +1 each")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="how long at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        choices=sorted({*POLICIES.values()}),
        help="only tools of this policy (repeatable)",
    )
    parser.add_argument("--trace", action="store_true", help="show what happens (one process)")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    clock = SystemClock()
    began = clock.elapsed()
    if given.part is not None:
        return _play_part(given, until=began + given.seconds)
    tally, interrupted = Tally(), False
    try:
        if given.trace:
            _show(given, tally)
        else:
            asyncio.run(_campaign(given, tally))
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write(f"{tally.report(clock.elapsed() - began)}\n")
    return 130 if interrupted else 0 if tally.sound else 1


def _show(given: argparse.Namespace, tally: Tally) -> None:
    for seed in range(given.seed, given.seed + given.schedules):
        outcome = simulate(seed, policies=given.policy, traced=True)
        sys.stdout.write("\n".join([f"--- seed {seed}", *outcome.trace, "", ""]))
        tally.add(outcome)


async def _campaign(given: argparse.Namespace, tally: Tally) -> None:
    """Share the seeds among processes, and add up what each of them tells."""
    jobs = max(1, min(given.jobs, given.schedules))
    parts = [asyncio.create_task(_listen(given, part, jobs, tally)) for part in range(jobs)]
    try:
        await asyncio.gather(*parts)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def _listen(given: argparse.Namespace, part: int, jobs: int, tally: Tally) -> None:
    command = [sys.executable, "-m", "agentkit.testing.simulation", f"--part={part}"]
    command += [f"--jobs={jobs}", f"--seed={given.seed}", f"--schedules={given.schedules}"]
    command += [f"--seconds={given.seconds}", *(f"--policy={one}" for one in given.policy)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output = child.stdout
    if output is None:
        raise AssertionError("the pipe was asked for")
    try:
        while len(tally.failed) < MAX_FAILED_SEEDS:
            line = await output.readline()
            if not line:
                break
            tally.merge(msgspec.json.decode(line, type=Tally))
        else:
            return
        if await child.wait() != 0:
            raise RuntimeError(f"part {part} ended with exit code {child.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _play_part(given: argparse.Namespace, *, until: float) -> int:
    """Every n-th seed, telling the sums now and then; ends when nobody listens any more."""
    clock, tally = SystemClock(), Tally()
    gc.freeze()  # what is loaded by now is not garbage, and looking at it takes time
    for seed in range(given.seed + given.part, given.seed + given.schedules, given.jobs):
        if clock.elapsed() >= until:
            break
        tally.add(simulate(seed, policies=given.policy))
        if tally.schedules == _CHUNK or tally.failed:
            if not _tell(tally):
                return 1
            tally = Tally()
    return 0 if _tell(tally) else 1


def _tell(tally: Tally) -> bool:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(tally) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        return False
    return True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends with the sums so far
    sys.exit(main())
