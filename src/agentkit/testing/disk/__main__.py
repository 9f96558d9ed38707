"""`python -m agentkit.testing.disk`: campaigns against the disk below a SQLite store."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from agentkit.core.runtime import SystemClock
from agentkit.testing.disk.power import CASES_PER_RECORDING, Tally, power_loss

__all__ = ["main"]

_SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign. Returns the exit code: 1 if something was found that must not be."""
    parser = argparse.ArgumentParser(prog="python -m agentkit.testing.disk", description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    power = modes.add_parser("power-loss", help="fail the power, open what the disk may then hold")
    power.add_argument("--cases", type=int, default=1000, help="how many states of a disk")
    power.add_argument("--case", type=int, help="this one alone")
    power.add_argument("--seed", type=int, default=1)
    power.add_argument("--jobs", type=int, default=1, help="how many processes share the work")
    power.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL")
    power.add_argument("--keep", type=Path, help="a folder for the files of cases that fail")
    given = parser.parse_args(arguments)
    return _power_loss(given)


def _power_loss(given: argparse.Namespace) -> int:
    clock = SystemClock()
    begun = clock.elapsed()
    numbers = range(given.cases) if given.case is None else (given.case,)
    blocks = [
        numbers[at : at + CASES_PER_RECORDING] for at in range(0, len(numbers), CASES_PER_RECORDING)
    ]
    work = partial(power_loss, seed=given.seed, synchronous=given.synchronous, keep=given.keep)
    tally = Tally()
    if given.jobs == 1 or len(blocks) == 1:
        for block in blocks:
            tally = tally.plus(work(block))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
            for part in pool.map(work, blocks):
                tally = tally.plus(part)
    seconds = clock.elapsed() - begun
    _print(tally, seconds=seconds, synchronous=given.synchronous, seed=given.seed)
    return 1 if tally.findings else 0


def _print(tally: Tally, *, seconds: float, synchronous: str, seed: int) -> None:
    """What a campaign came to, for people."""
    moments = ", ".join(f"{kind} {number}" for kind, number in sorted(tally.events.items()))
    head = (
        f"power loss under synchronous={synchronous}, seed {seed}: {tally.cases} cases in "
        f"{seconds:.1f} s ({tally.cases / max(seconds, 0.001):.0f} cases/s), "
        f"{tally.checked} acknowledged entries checked, {tally.losses} losses, "
        f"{tally.corrupt} corrupt"
    )
    lines = [head, f"the power failed after: {moments}"]
    for finding in tally.findings[:_SHOWN]:
        kind = "lost" if finding.lost else "corrupt"
        lines.append(f"case {finding.case}: {kind}: {finding.what}")
    if tally.findings:
        first = tally.findings[0].case
        lines.append(
            f"again: python -m agentkit.testing.disk power-loss --seed {seed} "
            f"--synchronous {synchronous} --case {first}"
        )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
