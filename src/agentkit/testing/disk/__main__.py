"""`python -m agentkit.testing.disk`: campaigns against the disk below a SQLite store."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentkit.core.runtime import SystemClock
from agentkit.testing.disk.flips import (
    Flips,
    bit_flips,
    database,
    one_bit_of_each_byte,
    random_bits,
)
from agentkit.testing.disk.power import CASES_PER_RECORDING, Tally, power_loss
from agentkit.testing.disk.space import full_disk, on_small_disk
from agentkit.testing.disk.trouble import CHANGES, READS, Kind, Trial, trials

__all__ = ["main"]

_P = TypeVar("_P")
_R = TypeVar("_R")
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
    flips = modes.add_parser("bit-flips", help="flip a bit of a database file, read everything")
    flips.add_argument("--cases", type=int, default=1000, help="how many bits")
    flips.add_argument("--every-byte", action="store_true", help="instead: one bit of each byte")
    flips.add_argument("--bit", type=int, help="this one alone")
    flips.add_argument("--seed", type=int, default=1)
    flips.add_argument("--jobs", type=int, default=1, help="how many processes share the work")
    errors = modes.add_parser("io-errors", help="fail each operation, once and for ever")
    errors.add_argument("--stride", type=int, default=1, help="each so many-th operation alone")
    errors.add_argument("--reads", action="store_true", help="operations that only look, instead")
    full = modes.add_parser("full-disk", help="run on a small file system that is full")
    full.add_argument("--on", type=Path, help="a small, empty file system; else one is mounted")
    given = parser.parse_args(arguments)
    campaigns = {
        "power-loss": _power_loss,
        "bit-flips": _bit_flips,
        "io-errors": _io_errors,
        "full-disk": _full_disk,
    }
    log = logging.getLogger("agentkit")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what fails here is meant to
    try:
        return campaigns[given.mode](given)
    finally:
        log.setLevel(level)


def _io_errors(given: argparse.Namespace) -> int:
    operations = READS if given.reads else CHANGES
    kinds: tuple[Kind, ...] = ("error",) if given.reads else ("error", "full")
    code = 0
    for kind in kinds:
        for lasting in (False, True):
            what = f"{kind} {'from each operation on' if lasting else 'at each operation, once'}"
            made = trials(operations=operations, kind=kind, lasting=lasting, stride=given.stride)
            code |= _tell(what, made)
    return code


def _full_disk(given: argparse.Namespace) -> int:
    if given.on is not None:
        return _tell("a full file system", full_disk(given.on))
    with tempfile.TemporaryDirectory() as name:
        return on_small_disk(["full-disk", "--on", name], Path(name))


def _tell(what: str, made: Iterable[Trial]) -> int:
    """What trials came to, for people; the exit code."""
    clock = SystemClock()
    begun = clock.elapsed()
    done = list(made)
    hit = [trial for trial in done if trial.operation]
    stopped = sum(bool(trial.surfaced) for trial in hit)
    wrong = [trial for trial in done if trial.wrong]
    seconds = clock.elapsed() - begun
    verdict = f"{len(wrong)} went wrong" if wrong else "all ended right when the disk was well"
    head = (
        f"{what}: {len(hit)} runs in {seconds:.1f} s, {stopped} stopped with an error, "
        f"{len(hit) - stopped} went on; {verdict}"
    )
    lines = [head]
    lines += [
        f"trial {trial.number} ({trial.operation}): {trial.wrong}" for trial in wrong[:_SHOWN]
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


def _shared(work: Callable[[_P], _R], parts: Sequence[_P], jobs: int) -> Iterable[_R]:
    """Do the parts, in several processes if asked."""
    if jobs == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, parts)


def _bit_flips(given: argparse.Namespace) -> int:
    clock = SystemClock()
    begun = clock.elapsed()
    made = database(given.seed)
    bits = random_bits(made, range(given.cases), seed=given.seed)
    if given.every_byte:
        bits = one_bit_of_each_byte(made, seed=given.seed)
    if given.bit is not None:
        bits = [given.bit]
    parts = [bits[at :: given.jobs] for at in range(given.jobs)]
    shared = _shared(partial(bit_flips, made), parts, given.jobs)
    flips = Flips(tuple(flip for part in shared for flip in part.flips))
    seconds = clock.elapsed() - begun
    counts = ", ".join(f"{verdict} {number}" for verdict, number in flips.counts().most_common())
    what = f"bit flips, seed {given.seed}: {len(bits)} of {len(made.content) * 8} bits"
    lines = [f"{what} in {seconds:.1f} s: {counts}"]
    silent = flips.silent()
    lines += [
        f"bit {flip.bit} ({flip.place}): {flip.verdict}: {flip.what}" for flip in silent[:_SHOWN]
    ]
    if silent:
        lines.append(
            f"again: python -m agentkit.testing.disk bit-flips --seed {given.seed} "
            f"--bit {silent[0].bit}"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if silent else 0


def _power_loss(given: argparse.Namespace) -> int:
    clock = SystemClock()
    begun = clock.elapsed()
    numbers = range(given.cases) if given.case is None else (given.case,)
    blocks = [
        numbers[at : at + CASES_PER_RECORDING] for at in range(0, len(numbers), CASES_PER_RECORDING)
    ]
    work = partial(power_loss, seed=given.seed, synchronous=given.synchronous, keep=given.keep)
    tally = Tally()
    for part in _shared(work, blocks, given.jobs):
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
