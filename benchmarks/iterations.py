"""What one iteration costs and stores, beside the floor; and whether a long run costs more."""

from __future__ import annotations

import asyncio
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
    """The cost of the iterations between two questions to the model; nothing paused in between."""
    first, last = model.left[start], model.asked[end]
    return Cost((last.wall - first.wall) * 1e6, (last.process - first.process) * 1e6)


class Beside:
    """Measures the floor and bare commits on what a run on SQLite has just stored, block by block.

    Args:
        folder, name: where the three files go.
        iterations: of the run.
        block: iterations of a block.
    """

    def __init__(self, folder: Path, name: str, *, iterations: int, block: int) -> None:
        self._paths = [folder / f"{name}-{kind}.db" for kind in ("ours", "floor", "bare")]
        self._store = sqlite_store(folder, f"{name}-ours")
        self._writer = floor.on_file(self._paths[1])
        self._db = floor.open_table(self._paths[2])
        floor.warm(self._paths[2])
        self._model = Model(iterations, self._pause, every=block)
        self._block = block
        self._seen = 0
        self._groups: list[list[bytes]] = []
        self.ours: list[Cost] = []
        self.floors: list[Cost] = []
        self.bares: list[Cost] = []

    async def measure(self) -> None:
        """Run it.

        Raises:
            AssertionError: the three files do not hold the same bytes.
        """
        await self._store.head("nobody")  # opens the file
        floor.warm(self._paths[0])
        await run(self._store, self._model)
        await self._store.aclose()
        self._writer.close()
        self._db.close()
        stored = _stored(self._paths[0])[: sum(map(len, self._groups))]
        for others in map(floor.bodies_in, self._paths[1:]):
            assert fingerprint(stored) == fingerprint(others), "the floor wrote other bytes"

    async def _pause(self) -> None:
        now = len(self._model.asked) - 1
        ours = cost_of(self._model, now - self._block, now)
        rows = await self._store.read("run", after=self._seen)
        self._seen += len(rows)
        groups = groups_of(rows)
        self._groups += groups
        assert len(groups) == 2 * self._block
        with Stopwatch() as on_floor:
            for group in groups:
                await self._writer.submit(group)
        with Stopwatch() as on_disk:
            floor.bare(self._db, groups)
        self.ours.append(ours.per(self._block))
        self.floors.append(on_floor.cost.per(self._block))
        self.bares.append(on_disk.cost.per(self._block))


def _stored(path: Path) -> list[bytes]:
    """The bodies that the store's own file holds, from the first iteration on."""
    db = apsw.Connection(str(path))
    bodies = [body for (body,) in db.execute("SELECT body FROM agentkit_entry ORDER BY place")]
    return bodies[2:]  # the start and the lease stand before them


def beside_the_floor(folder: Path, sizes: list[int], pairs: int) -> str:
    """Cost of an iteration at each size, on memory and on SQLite beside the floor."""
    columns = (
        "iterations", "pairs", "memory", "SQLite", "floor", "bare", "SQLite : floor",
        "SQLite : bare", "wall budget",
    )  # fmt: skip
    title = "One iteration, in microseconds (wall / CPU)"
    return table(title, columns, [_row(folder, size, pairs) for size in sizes])


def _row(folder: Path, size: int, pairs: int) -> tuple[str, ...]:
    block = min(10, size)
    memory: list[Cost] = []
    ours: list[Cost] = []
    floors: list[Cost] = []
    bares: list[Cost] = []
    for number in range(max(2, pairs * block // size)):
        memory.append(cost_of(asyncio.run(run(memory_store(), Model(size)))).per(size))

        async def measured(name: str) -> Beside:
            beside = Beside(folder, name, iterations=size, block=block)
            await beside.measure()
            return beside

        beside = asyncio.run(measured(f"{size}-{number}"))
        ours += beside.ours
        floors += beside.floors
        bares += beside.bares
    ratio = ratios(ours, floors)
    return (
        f"{size:,}",
        f"{len(ours):,}",
        shown(median(memory)),
        shown(median(ours)),
        shown(median(floors)),
        shown(median(bares)),
        times(ratio),
        times(ratios(ours, bares)),
        budget(ratio.wall, FLOOR_BUDGET),
    )


def stored_bytes(folder: Path, few: int, many: int) -> str:
    """By how much the closed file grows with each iteration."""

    async def size_of(iterations: int) -> tuple[int, int]:
        store = sqlite_store(folder, f"bytes-{iterations}")
        await run(store, Model(iterations))
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
        model = asyncio.run(run(memory_store(), Model(steps)))
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
