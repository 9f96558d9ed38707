"""What the fold adds to reading and decoding a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentkit.core.contracts.ports import JournalPort
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.journal import PAGE_ROWS, load
from benchmarks.report import Cost, Stopwatch, budget, median, ratios, table, times
from benchmarks.workload import Model, run, sqlite_store

READ_BUDGET = 2.0


async def _decoded(store: JournalPort) -> int:
    """Read and decode the run in pages, and nothing else."""
    seq, check = 0, b""
    while True:
        rows = await store.read("run", after=seq, limit=PAGE_ROWS)
        decoded = decode_rows(rows, after=seq, before=check, run_id="run")
        for entry, last in decoded:
            seq, check = entry.seq, last
        if len(rows) < PAGE_ROWS:
            return seq


async def _measured(store: JournalPort, iterations: int, pairs: int) -> tuple[str, ...]:
    await run(store, Model(iterations))
    folded: list[Cost] = []
    decoded: list[Cost] = []
    for _ in range(pairs):
        with Stopwatch() as decoding:
            count = await _decoded(store)
        with Stopwatch() as folding:
            state = await load(store, "run")
        assert count == state.seq
        decoded.append(decoding.cost)
        folded.append(folding.cost)
    ratio = ratios(folded, decoded)
    milliseconds = [
        f"{cost.wall / 1000:,.1f} / {cost.cpu / 1000:,.1f}"
        for cost in (median(decoded), median(folded))
    ]
    return (f"{iterations:,}", *milliseconds, times(ratio), budget(ratio.wall, READ_BUDGET))


def reading(folder: Path, sizes: list[int], pairs: int) -> str:
    """Reading, decoding and folding a run of each size, beside reading and decoding it."""

    async def measure(size: int) -> tuple[str, ...]:
        store = sqlite_store(folder, f"reading-{size}")
        try:
            return await _measured(store, size, pairs)
        finally:
            await store.aclose()

    columns = ("iterations", "read, decode", "read, decode, fold", "ratio", "wall budget")
    title = "Reading a run back from SQLite, in milliseconds (wall / CPU)"
    return table(title, columns, [asyncio.run(measure(size)) for size in sizes])
