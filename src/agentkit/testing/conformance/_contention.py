"""Many at once."""

from __future__ import annotations

import asyncio

import msgspec

from agentkit.core.contracts.errors import RunInUse
from agentkit.core.contracts.ports import JournalPort
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, rows, started, summary

contention = Subject("contention", "journal")


@contention.check("JournalPort.acquire")
async def of_twenty_contenders_one_has_the_lease(it: Bench) -> None:
    """For a new run, for one that was released, and for one whose holder is superseded."""
    store = it.store

    async def contend(name: int, supersede: int | None) -> bool:
        try:
            await store.acquire("r", f"worker {name}", TTL_SECONDS, supersede=supersede)
        except RunInUse:
            return False
        return True

    epoch: int | None = None
    for what in ("a new run", "a holder proved dead", "another one"):
        won = await asyncio.gather(*(contend(name, epoch) for name in range(20)))
        equal(f"winners of {what}", expected=1, actual=sum(won))
        head = await store.head("r")
        winner = f"worker {won.index(True)}"
        equal("the owner", expected=winner, actual=head and head.owner)
        epoch = head.epoch if head else 0


@contention.check("JournalPort.append")
async def appends_of_many_runs_at_once_keep_to_their_runs(it: Bench) -> None:
    """Twenty runs with ten appends each, all at once: every run is whole and its own."""
    await _many(it, runs=20, appends=10)


@contention.check("JournalPort.append", slow=True)
async def a_hundred_appends_of_a_hundred_runs_at_once_keep_to_their_runs(it: Bench) -> None:
    """The same with 10,000 appends."""
    await _many(it, runs=100, appends=100)


async def _many(it: Bench, *, runs: int, appends: int) -> None:
    store = it.store

    async def work(number: int) -> None:
        run = f"r{number}"
        lease = await started(store, run, owner=run)
        for seq in range(2, appends + 1):
            made = summary(agent=run, started_at=number)
            head = await store.append(
                run, rows(seq, text=run), after=seq - 1, lease=lease, summary=made
            )
            equal("where an append is", expected=(run, seq), actual=(head.run, head.seq))

    await asyncio.gather(*map(work, range(runs)))

    for number in range(runs):
        run = f"r{number}"
        expected = [*rows(1), *rows(2, appends - 1, run)]
        holds(f"the rows of {run} are its own", true=await store.read(run) == expected)
    listed = (await store.list_runs(limit=runs + 1))[0]
    expected_runs = [f"r{number}" for number in range(runs)][::-1]
    equal("the list", expected=expected_runs, actual=[one.run for one in listed])


@contention.check("JournalPort.append")
async def failures_of_some_do_not_touch_the_others(it: Bench) -> None:
    """Good appends, repetitions and refusals sent together each get their own answer."""
    store = it.store
    leases = {f"r{number}": await started(store, f"r{number}", 2) for number in range(12)}

    async def attempt(run: str, kind: int) -> str:
        lease = leases[run]
        after, fits = ((2, True), (1, True), (5, True), (2, False))[kind]
        if not fits:
            lease = msgspec.structs.replace(lease, epoch=lease.epoch - 1)
        made = summary("done" if kind else "running")
        try:
            await store.append(run, rows(after + 1), after=after, lease=lease, summary=made)
        except Exception as exc:  # noqa: BLE001 - compared below
            return type(exc).__name__
        return "ok"

    answers = await asyncio.gather(*(attempt(f"r{n}", n % 4) for n in range(12)))

    equal("answers", expected=["ok", "ok", "HeadMoved", "LeaseLost"] * 3, actual=answers)
    for number in range(12):
        expected = rows(1, 3 if number % 4 == 0 else 2)
        equal(f"rows of r{number}", expected=expected, actual=await store.read(f"r{number}"))
        head = plain(await store.head(f"r{number}"))
        equal("the summary", expected=summary(), actual=head and head.summary)


@contention.check("JournalPort")
async def everything_at_once_stays_in_order(it: Bench) -> None:
    """Appends, reads, lists, renewals, claims and deletions of one store, interleaved."""
    store = it.store
    leases = {f"r{number}": await started(store, f"r{number}") for number in range(6)}

    async def write(run: str) -> None:
        for seq in range(2, 12):
            await store.append(run, rows(seq), after=seq - 1, lease=leases[run], summary=summary())

    async def watch(reader: JournalPort) -> None:
        for _ in range(10):
            listed, _ = await reader.list_runs()
            for one in listed:
                found = await reader.read(one.run)
                holds(
                    "a listed run has its rows",
                    true=found[: one.seq] == rows(1, one.seq) or one.run.startswith("gone"),
                )

    async def come_and_go() -> None:
        for number in range(10):
            run = f"gone{number}"
            await store.append(run, rows(1), after=0, lease=None, summary=summary("saved"))
            holds("a run that was made is deleted", true=await store.delete_run(run))

    async def hold() -> None:
        for _ in range(10):
            renewed = await it.renew(leases)
            holds("no lease is lost", true=not any(one.lost for one in renewed.values()))

    await asyncio.gather(*map(write, leases), watch(store), watch(store), come_and_go(), hold())

    for run in leases:
        equal(f"rows of {run}", expected=rows(1, 11), actual=await store.read(run))
    listed = sorted(one.run for one in (await store.list_runs())[0])
    equal("the list", expected=sorted(leases), actual=listed)
