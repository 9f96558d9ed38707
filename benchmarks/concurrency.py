"""Many runs at once on one SQLite file: how many iterations a second, and how late the latest."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks import floor
from benchmarks.report import budget, table
from benchmarks.workload import Model, groups_of, rows_of, run, sqlite_store

CONCURRENT_BUDGET = 1.0
BUDGET_RUNS = 10


class Throughput(NamedTuple):
    """Microseconds of wall time that one iteration takes of the process, and the 99th percentile
    of one run's own iterations.
    """

    each: float
    p99: float
    cpu: float = 0.0


def throughput(stamps: Sequence[Sequence[float]], cpu_seconds: float) -> Throughput:
    """Taken while all runs were under way: from the last one's start to the first one's end; of
    runs too short for that, over all of it.
    """
    begin, end = max(run[0] for run in stamps), min(run[-1] for run in stamps)
    if begin >= end:
        begin, end = min(run[0] for run in stamps), max(run[-1] for run in stamps)
    total = sum(len(run) - 1 for run in stamps)
    spans = [b - a for run in stamps for a, b in pairwise(run)]
    within = sum(begin < b <= end for run in stamps for b in run[1:])
    each = (end - begin) / within
    p99 = statistics.quantiles(spans, n=100)[98] if len(spans) > 1 else spans[0]
    return Throughput(each * 1e6, p99 * 1e6, cpu_seconds / total * 1e6)


async def _ours(path: Path, runs: int, iterations: int) -> tuple[Throughput, list[list[bytes]]]:
    store = sqlite_store(path.parent, path.stem)
    await run(store, Model(2), run_id="first")  # opens the file
    floor.warm(path)
    began = time.process_time()
    models = await asyncio.gather(
        *(run(store, Model(iterations), run_id=f"run-{number}") for number in range(runs))
    )
    cpu = time.process_time() - began
    groups = groups_of(await rows_of(store, "run-0"))
    await store.aclose()
    stamps = [[moment.wall for moment in model.asked] for model in models]
    return throughput(stamps, cpu), groups


async def looped(writer: floor.ThreadFloor, runs: int, groups: list[list[bytes]]) -> Throughput:
    """As many loops as there were runs, each with the groups of one, through one thread."""
    await writer.submit(groups[0])

    async def one() -> list[float]:
        stamps = [time.perf_counter()]
        for first, second in zip(groups[::2], groups[1::2], strict=True):
            await writer.submit(first)
            await writer.submit(second)
            stamps.append(time.perf_counter())
        return stamps

    began = time.process_time()
    stamps = await asyncio.gather(*(one() for _ in range(runs)))
    cpu = time.process_time() - began
    writer.close()
    return throughput(stamps, cpu)


async def _on_floor(path: Path, runs: int, groups: list[list[bytes]]) -> Throughput:
    return await looped(floor.on_file(path), runs, groups)


def _bare(path: Path, groups: list[list[bytes]]) -> float:
    db = floor.open_table(path)
    floor.warm(path)
    began = time.perf_counter()
    floor.bare(db, groups)
    took = time.perf_counter() - began
    db.close()
    return took / (len(groups) // 2) * 1e6


def concurrency(folder: Path, sizes: list[int], total: int, pairs: int) -> str:
    """Iterations a second and p99 with so many runs, about `total` iterations each time."""
    rows = []
    for runs in sizes:
        iterations = max(total // runs, 4)
        ours, floors, bares = [], [], []
        for number in range(pairs):
            name = f"runs-{runs}-{number}"
            found, groups = asyncio.run(_ours(folder / f"{name}-ours.db", runs, iterations))
            ours.append(found)
            floors.append(asyncio.run(_on_floor(folder / f"{name}-floor.db", runs, groups)))
            bare_groups = (groups * (200 // len(groups) + 1))[:200]
            bares.append(_bare(folder / f"{name}-bare.db", bare_groups))
        to_bare = statistics.median(a.each / b for a, b in zip(ours, bares, strict=True))
        to_floor = statistics.median(a.each / b.each for a, b in zip(ours, floors, strict=True))
        rows.append(
            (
                f"{runs:,}",
                *shown_throughput(ours),
                *shown_throughput(floors)[:2],
                f"{1e6 / statistics.median(bares):,.0f}",
                f"{to_floor:.2f}",
                f"{to_bare:.2f}",
                budget(to_bare, CONCURRENT_BUDGET) if runs == BUDGET_RUNS else "",
            )
        )
    columns = (
        "runs", "it/s", "p99 ms", "CPU µs", "floor it/s", "floor p99 ms", "bare it/s",
        "time : floor", "time : bare", "wall budget",
    )  # fmt: skip
    return table("Concurrent runs on one SQLite file", columns, rows)


def shown_throughput(found: list[Throughput]) -> tuple[str, str, str]:
    """Iterations a second, p99 in ms, CPU in µs: medians."""
    each, p99, cpu = (statistics.median(column) for column in zip(*found, strict=True))
    return f"{1e6 / each:,.0f}", f"{p99 / 1000:,.1f}", f"{cpu:,.0f}"
