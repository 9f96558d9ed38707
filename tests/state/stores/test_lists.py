"""Lists of runs: order, filters, pages."""

import pytest

from agentkit.core.contracts.errors import StoreMisused
from agentkit.core.contracts.heads import RunSummary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing.clock import FakeClock
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary


async def _pages(store: JournalPort, limit: int) -> list[list[str]]:
    pages, cursor = [], ""
    while True:
        page, cursor = await store.list_runs(limit=limit, cursor=cursor)
        pages.append([entry.run for entry in page])
        if not cursor:
            return pages


async def test_newest_start_comes_first(store: JournalPort) -> None:
    """Runs are ordered by start, then by id; pages meet without a gap or a repetition."""
    for run, at in (("old", 1), ("b", 5), ("a", 5), ("ä", 5), ("new", 9)):
        await store.append(run, rows(1), after=0, lease=None, summary=summary(started_at=at))

    order = ["new", "a", "b", "ä", "old"]
    assert [order] == await _pages(store, 5)
    assert [order[:2], order[2:4], order[4:]] == await _pages(store, 2)
    assert [[one] for one in order] == await _pages(store, 1)


async def test_a_start_that_becomes_known_later_counts(store: JournalPort) -> None:
    """A run begun by a note gets its start, and its place in the list, from a later summary."""
    await store.append("r", rows(1), after=0, lease=None, summary=summary(started_at=0))
    await store.append("s", rows(1), after=0, lease=None, summary=summary(started_at=5))
    await store.append("r", rows(2), after=1, lease=None, summary=summary(started_at=9))

    page, _ = await store.list_runs()

    assert [("r", 9), ("s", 5)] == [(one.run, one.summary.started_at) for one in page]


async def test_an_entry_tells_who_is_at_work(store: JournalPort, clock: FakeClock) -> None:
    """A row says whether somebody holds the run now."""
    lease = await started(store, "r", 2)

    live = (await store.list_runs())[0]
    clock.advance(TTL_SECONDS)
    lapsed = (await store.list_runs())[0]

    assert [RunSummary("r", summary(), 2, lease.epoch, "worker", live=True)] == live
    assert [RunSummary("r", summary(), 2, lease.epoch, "worker", live=False)] == lapsed


async def test_filters_narrow_the_list(store: JournalPort) -> None:
    """Status and agent are compared exactly; what fits neither is an empty list, never all."""
    for run, status, agent in (("a", "done", "x"), ("b", "parked", "x"), ("c", "done", "y")):
        await store.append(
            run,
            rows(1),
            after=0,
            lease=None,
            summary=summary(status, agent=agent),  # type: ignore[arg-type]  # from a table
        )

    async def found(**filters: str) -> list[str]:
        page, _ = await store.list_runs(**filters)  # type: ignore[arg-type]  # from a table
        return [one.run for one in page]

    assert ["a", "c"] == await found(status="done")
    assert ["a", "b"] == await found(agent="x")
    assert ["a"] == await found(status="done", agent="x")
    assert [] == await found(agent="x' OR 1=1 --")
    assert [] == await found(agent="%")
    assert [] == await found(agent="")


async def test_a_filtered_list_has_pages_too(store: JournalPort) -> None:
    """The cursor goes on within the filter."""
    for number in range(6):
        await store.append(
            f"r{number}",
            rows(1),
            after=0,
            lease=None,
            summary=summary(agent="even" if number % 2 == 0 else "odd"),
        )

    first, cursor = await store.list_runs(agent="even", limit=2)
    rest, end = await store.list_runs(agent="even", limit=2, cursor=cursor)

    assert ["r0", "r2", "r4"] == [one.run for one in [*first, *rest]]
    assert "" == end


@pytest.mark.parametrize("cursor", ["nonsense", "bm9uc2Vuc2U=", "WzFd"])
async def test_a_made_up_cursor_is_refused(store: JournalPort, cursor: str) -> None:
    """A cursor comes from the store; anything else is an error, not the first page."""
    with pytest.raises(StoreMisused, match="cursor"):
        await store.list_runs(cursor=cursor)
