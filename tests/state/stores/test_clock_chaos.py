"""Workers whose wall clocks are hours apart, stand still or run backwards: no run takes harm."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import LeaseLost, RunInUse
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, open_store
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import tool
from tests.agents.kit import TASK, agent_of, call, calls, context, entries_of, then
from tests.state.stores.helpers import TTL_SECONDS, rows, summary

TWO_HOURS = 7_200.0


class Skewed(SystemClock):
    """A machine's clocks, the wall clock as `wall` says; elapsed time is as it is."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall

    def now(self) -> float:
        """See `ClockPort.now`."""
        return self._wall()


def _clocks() -> dict[str, ClockPort]:
    begun, steps = time.time(), itertools.count()
    return {
        "right": SystemClock(),
        "two hours ahead": Skewed(lambda: time.time() + TWO_HOURS),
        "two hours behind": Skewed(lambda: time.time() - TWO_HOURS),
        "frozen": Skewed(lambda: begun),
        "running backwards": Skewed(lambda: begun - next(steps)),
    }


Open = Callable[[ClockPort], JournalPort]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """How a worker with this clock opens the store. A server has a clock of its own, and takes no
    other; an embedded store has the worker's.
    """
    if request.param == "sqlite":
        yield lambda clock: SqliteCheckpointStore(tmp_path / "runs.db", clock=clock)
    else:
        name = {"postgres": "postgres_dsn", "redis": "redis_url"}[request.param]
        url: str = request.getfixturevalue(name)
        yield lambda _: open_store(url)


async def test_a_lease_is_neither_stolen_nor_outlived(opened: Open) -> None:
    """Whatever two workers believe the time to be: a held run is refused, the next epoch is
    higher, and whoever was replaced can neither append nor renew.
    """
    stores = {name: opened(clock) for name, clock in _clocks().items()}
    for one, two in itertools.product(stores, stores):
        run, mine, theirs = f"{one}, {two}", stores[one], stores[two]
        lease = await mine.acquire(run, "first", TTL_SECONDS)
        await mine.append(run, rows(1), after=0, lease=lease, summary=summary())

        with pytest.raises(RunInUse):
            await theirs.acquire(run, "second", TTL_SECONDS)
        assert not mine.renew({"k": lease})["k"].lost
        taken = await theirs.acquire(run, "second", TTL_SECONDS, supersede=lease.epoch)

        assert lease.epoch < taken.epoch, run
        assert mine.renew({"k": lease})["k"].lost
        with pytest.raises(LeaseLost):
            await mine.append(run, rows(2), after=1, lease=lease, summary=summary())
        await theirs.append(run, rows(2), after=1, lease=taken, summary=summary(), release=True)
        assert rows(1, 2) == await mine.read(run)
    for store in stores.values():
        await store.aclose()


@tool(side_effecting=True)
async def send(item: str) -> str:
    """Send something."""
    return f"sent {item}"


AGENT = agent_of(send)
LLM = then([calls(call("send", item="a")), calls(call("send", call_id="c2", item="b"))])


async def test_runs_end_as_they_should_and_order_is_by_number(opened: Open) -> None:
    """Times are for display: with each clock the run is sound, and its entries are in the order in
    which they were recorded.
    """
    for name, clock in _clocks().items():
        store = opened(clock)

        result = await AGENT.run(TASK, context(LLM, store, run_id=name, clock=clock))

        assert "done" == result.output, name
        entries = await entries_of(store, name)
        assert list(range(1, len(entries) + 1)) == [entry.seq for entry in entries]
        assert [] == check(Evidence(run=name, rows=await read_rows(store, name))), name
        await store.aclose()
