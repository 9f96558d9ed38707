"""What one iteration costs and stores, beside the floor; and whether a long run costs more."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import apsw

from agentkit.models.providers._openai_wire import render
from benchmarks import floor
from benchmarks.report import Cost, Stopwatch, budget, median, ratios, shown, table, times
from benchmarks.workload import (
    Model,
    fingerprint,
    groups_of,
    memory_store,
    rows_of,
    run,
    sqlite_store,
)

FLOOR_BUDGET = 1.3
BYTES_BUDGET = 1_200
FLAT_BUDGET = 1.1


def cost_of(model: Model, start: int = 0, end: int = -1) -> Cost:
    """The cost of all iterations between two questions to the model."""
    first, last = model.moments[start], model.moments[end]
    return Cost((last.wall - first.wall) * 1e6, (last.process - first.process) * 1e6)


async def _one_round(folder: Path, name: str, iterations: int) -> tuple[Cost, Cost, Cost, int]:
    """Ours, the floor and bare commits, one after the other on the same bytes."""
    store = sqlite_store(folder, f"{name}-ours")
    ours = cost_of(await run(store, iterations))
    groups = groups_of(await rows_of(store))
    await store.aclose()
    wanted = [body for group in groups for body in group]
    assert len(groups) == 2 * iterations

    path = folder / f"{name}-floor.db"
    writer = floor.ThreadFloor(path)
    with Stopwatch() as on_floor:
        for group in groups:
            await writer.submit(group)
    writer.close()

    bare_path = folder / f"{name}-bare.db"
    db = floor.open_table(bare_path)
    with Stopwatch() as on_disk:
        floor.bare(db, groups)
    db.close()

    ours_stored = _stored(folder / f"{name}-ours.db")
    for stored in (ours_stored, floor.bodies_in(path), floor.bodies_in(bare_path)):
        assert fingerprint(wanted) == fingerprint(stored), "the floor wrote other bytes"
    size = (folder / f"{name}-ours.db").stat().st_size
    costs = [cost.per(iterations) for cost in (ours, on_floor.cost, on_disk.cost)]
    return costs[0], costs[1], costs[2], size


def _stored(path: Path) -> list[bytes]:
    """The bodies that the store's own file holds, those of the iterations alone."""
    db = apsw.Connection(str(path))
    bodies = [body for (body,) in db.execute("SELECT body FROM agentkit_entry ORDER BY place")]
    return bodies[2:-2]  # before them the start and the lease, behind them the answer and the end


def beside_the_floor(folder: Path, sizes: list[int], pairs: int) -> str:
    """Cost of an iteration at each size, on memory and on SQLite beside the floor."""
    rows = []
    for size in sizes:
        rounds = max(3, min(pairs, pairs * 500 // size))
        ours, floors, bares, memory, files = [], [], [], [], []
        for number in range(rounds):
            memory.append(cost_of(asyncio.run(run(memory_store(), size))).per(size))
            found = asyncio.run(_one_round(folder, f"{size}-{number}", size))
            ours.append(found[0])
            floors.append(found[1])
            bares.append(found[2])
            files.append(found[3])
        ratio = ratios(ours, floors)
        rows.append(
            (
                f"{size:,}",
                str(rounds),
                shown(median(memory)),
                shown(median(ours)),
                shown(median(floors)),
                shown(median(bares)),
                times(ratio),
                times(ratios(ours, bares)),
                f"{statistics.median(files) / size:,.0f}",
                budget(ratio.wall, FLOOR_BUDGET),
            )
        )
    columns = (
        "iterations", "pairs", "memory", "SQLite", "floor", "bare", "SQLite : floor",
        "SQLite : bare", "file bytes", "wall budget",
    )  # fmt: skip
    title = "One iteration, in microseconds (wall / CPU)"
    return table(title, columns, rows)


def stored_bytes(folder: Path, few: int, many: int) -> str:
    """By how much the closed file grows with each iteration."""

    async def size_of(iterations: int) -> tuple[int, int]:
        store = sqlite_store(folder, f"bytes-{iterations}")
        await run(store, iterations)
        rows = await rows_of(store)
        await store.aclose()
        path = folder / f"bytes-{iterations}.db"
        return path.stat().st_size, sum(len(row.body) + len(row.check) for row in rows)

    small, large = asyncio.run(size_of(few)), asyncio.run(size_of(many))
    on_disk = (large[0] - small[0]) / (many - few)
    rows_alone = (large[1] - small[1]) / (many - few)
    verdict = budget(on_disk, BYTES_BUDGET, "{:,.0f} B".format)
    row = (f"{few:,} to {many:,}", f"{on_disk:,.0f}", f"{rows_alone:,.0f}", verdict)
    columns = ("iterations", "file grows by", "of it rows", "budget")
    return table("Bytes stored per iteration, 200-byte tool result", columns, [row])


def flatness(steps: int, window: int, pairs: int) -> str:
    """The steps around the last against the first ones, in runs on the store in memory, where
    everything is ours; and what building a provider's request costs there, which grows by nature.
    """
    early, late, requests = [], [], []
    for _ in range(pairs):
        model = asyncio.run(run(memory_store(), steps))
        early.append(cost_of(model, 1, 1 + window).per(window))
        late.append(cost_of(model, steps - window, steps).per(window))
        requests.append(model.last_request)
    ratio = ratios(late, early)
    request = requests[-1]
    assert request is not None
    with Stopwatch() as watch:
        encoded = render(request, model="m", extra_body={})
    row = (
        f"{steps:,}",
        shown(median(early)),
        shown(median(late)),
        times(ratio),
        budget(ratio.cpu, FLAT_BUDGET),
        f"{watch.cost.cpu / 1000:,.1f} ms for {len(encoded) / 1000:,.0f} KB",
    )
    columns = ("steps", "first steps", "last steps", "last : first", "CPU budget", "request")
    return table("Is a step's cost flat? Microseconds (wall / CPU), memory", columns, [row])
