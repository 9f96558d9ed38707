"""Lists of runs: order, filters, pages."""

from __future__ import annotations

from agentkit.core.contracts.errors import StoreMisused
from agentkit.core.contracts.heads import RunStatus, RunSummary
from agentkit.core.contracts.ports import JournalPort
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import Broken, equal, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, rows, started, summary

lists = Subject("lists", "journal")

_ENDLESS = 100
_STATUSES: tuple[RunStatus, ...] = (
    "submitted",
    "running",
    "suspended",
    "parked",
    "done",
    "failed",
    "cancelled",
    "saved",
)


async def _note(
    store: JournalPort,
    run: str,
    status: RunStatus = "running",
    *,
    at: int = 1,
    agent: str = "agent",
) -> None:
    made = summary(status, agent=agent, started_at=at)
    await store.append(run, rows(1), after=0, lease=None, summary=made)


async def _pages(store: JournalPort, limit: int, agent: str | None = None) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor = ""
    for _ in range(_ENDLESS):
        page, cursor = await store.list_runs(limit=limit, cursor=cursor, agent=agent)
        pages.append([one.run for one in page])
        if not cursor:
            return pages
    raise Broken(f"a list of runs: expected an end, but it went on for {_ENDLESS} pages")


@lists.check("JournalPort.list_runs")
async def newest_start_comes_first(it: Bench) -> None:
    """Runs are ordered by start, then by id in order of code points."""
    same = ["b", "a", "ä", "B", "a b", "😀", "\uff5e", "a:", "_", "z"]
    starts = [(run, 5) for run in same]
    for run, at in [("old", 1), *starts, ("new", 2**53 - 1), ("mid", 10), ("oldest", 0)]:
        await _note(it.store, run, at=at)

    page, cursor = await it.store.list_runs()

    order = ["new", "mid", *sorted(same), "old", "oldest"]
    equal("the runs", expected=order, actual=[one.run for one in page])
    equal("the cursor after all of them", expected="", actual=cursor)


@lists.check("JournalPort.list_runs")
async def pages_meet_without_a_gap_or_a_repetition(it: Bench) -> None:
    """Also where many runs have one start, and where the last page is just full."""
    order = [f"r{number:02}" for number in range(12)]
    for run in it.random.sample(order, len(order)):
        await _note(it.store, run, at=7 if run < "r09" else 3)

    for limit in (1, 2, 3, 5, 12, 13):
        pages = [order[first : first + limit] for first in range(0, 12, limit)]
        equal(f"pages of {limit}", expected=pages, actual=await _pages(it.store, limit))


@lists.check("JournalPort.list_runs")
async def paging_loses_and_repeats_no_run_while_others_begin(it: Bench) -> None:
    """Runs that were there at the begin come once each; later ones once at most."""
    store = it.store
    there = [f"r{number:02}" for number in range(20)]
    for number, run in enumerate(there):
        await _note(store, run, at=number * 10)
    seen: list[str] = []
    cursor = ""
    for pages in range(_ENDLESS):
        page, cursor = await store.list_runs(limit=3, cursor=cursor)
        seen += [one.run for one in page]
        if not cursor:
            break
        await _note(store, f"new{pages}", at=it.random.randrange(200))
        number = it.random.randrange(20)
        head = await store.head(there[number])
        seq = head.seq if head else 0
        moved = summary(started_at=number * 10)
        await store.append(there[number], rows(seq + 1), after=seq, lease=None, summary=moved)

    equal("the cursor at the end", expected="", actual=cursor)
    old = [run for run in seen if not run.startswith("new")]
    equal("the runs that were there", expected=there[::-1], actual=old)
    equal(
        "runs that came twice", expected=[], actual=sorted({r for r in seen if seen.count(r) > 1})
    )


@lists.check("JournalPort.list_runs")
async def a_start_that_becomes_known_later_counts(it: Bench) -> None:
    """A run begun by a note gets its start, and its place in the list, from a later summary."""
    await _note(it.store, "r", at=0)
    await _note(it.store, "s", at=5)
    later = summary(started_at=9)
    await it.store.append("r", rows(2), after=1, lease=None, summary=later)

    page, _ = await it.store.list_runs()

    found = [(one.run, one.summary.started_at) for one in page]
    equal("runs and their starts", expected=[("r", 9), ("s", 5)], actual=found)


@lists.check("RunSummary")
async def an_entry_tells_who_is_at_work(it: Bench) -> None:
    """A row says whether somebody holds the run now, and otherwise who did last."""
    lease = await started(it.store, "r", 2)
    brief = type(lease)("r", "worker", lease.epoch, it.brief_seconds, lease.head)

    live = (await it.store.list_runs())[0]
    await it.renew({"r": brief})
    await it.outlive(brief)
    lapsed = (await it.store.list_runs())[0]

    row = RunSummary("r", summary(), 2, lease.epoch, "worker", live=True)
    equal("the row while the lease lives", expected=[row], actual=live)
    row = RunSummary("r", summary(), 2, lease.epoch, "worker", live=False)
    equal("the row once it has lapsed", expected=[row], actual=lapsed)


@lists.check("JournalPort.list_runs")
async def filters_narrow_the_list(it: Bench) -> None:
    """Status and agent are compared exactly; what fits neither is an empty list, never all."""
    for number, status in enumerate(_STATUSES):
        for agent in ("x", "y"):
            await _note(it.store, f"{agent}{number}", status, agent=agent)

    async def found(status: RunStatus | None = None, agent: str | None = None) -> list[str]:
        page, _ = await it.store.list_runs(status=status, agent=agent)
        return [one.run for one in page]

    for number, status in enumerate(_STATUSES):
        both = [f"x{number}", f"y{number}"]
        equal(f"runs that are {status}", expected=both, actual=await found(status))
        one = [f"y{number}"]
        equal(f"runs of y that are {status}", expected=one, actual=await found(status, "y"))
    every = [f"x{number}" for number in range(len(_STATUSES))]
    equal("runs of x", expected=every, actual=await found(agent="x"))
    for agent in ("x' OR 1=1 --", "%", "_", "X", "", "*", "x ", "x\\"):
        equal(f"runs of {agent!r}", expected=[], actual=await found(agent=agent))


@lists.check("JournalPort.list_runs")
async def a_run_that_changes_is_found_under_what_it_is_now(it: Bench) -> None:
    """Status and agent of the newest summary count, and no others."""
    store = it.store
    lease = await started(store, "r")
    end = summary("done", agent="other")
    await store.append("r", rows(2), after=1, lease=lease, summary=end, release=True)

    async def found(status: RunStatus | None = None, agent: str | None = None) -> int:
        return len((await store.list_runs(status=status, agent=agent))[0])

    equal("found as running", expected=0, actual=await found("running"))
    equal("found as done", expected=1, actual=await found("done"))
    equal("found under its old agent", expected=0, actual=await found(agent="agent"))
    equal("found under its agent", expected=1, actual=await found(agent="other"))
    await store.delete_run("r")
    equal("found after it was deleted", expected=0, actual=await found())


@lists.check("JournalPort.list_runs")
async def a_filtered_list_has_pages_too(it: Bench) -> None:
    """The cursor goes on within the filter."""
    for number in range(9):
        await _note(it.store, f"r{number}", agent="even" if number % 2 == 0 else "odd")

    pages = await _pages(it.store, 2, "even")

    equal("pages", expected=[["r0", "r2"], ["r4", "r6"], ["r8"]], actual=pages)


@lists.check("JournalPort.list_runs")
async def claims_are_in_no_list(it: Bench) -> None:
    """A run that was claimed and never started has no entry, so it is not listed."""
    await it.store.acquire("claimed", "worker", TTL_SECONDS)
    await _note(it.store, "r")

    page, _ = await it.store.list_runs()

    equal("the list", expected=["r"], actual=[one.run for one in page])


@lists.check("JournalPort.list_runs")
async def a_made_up_cursor_is_refused(it: Bench) -> None:
    """A cursor comes from the store; anything else is an error, not the first page."""
    await _note(it.store, "r")
    for cursor in ("nonsense", "bm9uc2Vuc2U=", "WzFd", "' OR 1=1 --", "0", "é", "\x00"):
        attempt = it.store.list_runs(cursor=cursor)
        await refused(StoreMisused, attempt, what=f"a list from the cursor {cursor!r}")


@lists.check("JournalPort.read")
async def places_and_limits_may_be_any_number(it: Bench) -> None:
    """Below 0 they are 0, and none is too large."""
    store, huge = it.store, 10**30
    await started(store, "r", 3)

    async def numbers(after: int, limit: int) -> list[int]:
        return [row.seq for row in await store.read("r", after=after, limit=limit)]

    equal("behind -1", expected=[1, 2, 3], actual=await numbers(-1, 9))
    equal("one behind -2", expected=[1], actual=await numbers(-2, 1))
    equal("at most -1", expected=[], actual=await numbers(0, -1))
    equal("at most 10 ** 30", expected=[2, 3], actual=await numbers(1, huge))
    equal("behind 10 ** 30", expected=[], actual=await numbers(huge, huge))
    for limit, found in ((huge, 1), (-huge, 0)):
        equal("runs", expected=found, actual=len((await store.list_runs(limit=limit))[0]))
        equal("scopes", expected=found, actual=len(await store.scopes(limit=limit)))
        equal("due runs", expected=[], actual=await store.claimable(limit=limit))
