"""The object itself: its name, closing, cancelling, several loops, threads and handles."""

from __future__ import annotations

import asyncio
import threading

from agentkit.core.contracts.errors import HeadMoved, LeaseLost, RunInUse
from agentkit.core.contracts.heads import Renewal
from agentkit.core.contracts.ports import JournalPort
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, rows, started, summary

handles = Subject("handles", "journal")


@handles.check("JournalPort.location")
async def the_location_names_the_data_and_no_secret(it: Bench) -> None:
    """It stays the same while the store is used and after it is closed; another place has
    another one; nothing that describes the object shows a password.
    """
    before = it.store.location
    await started(it.store, "r")
    used = it.store.location
    await it.store.aclose()
    other = (await it.beside()).store.location

    equal("the location once used", expected=before, actual=used)
    equal("the location once closed", expected=before, actual=it.store.location)
    holds("another place has another location", true=other != before)
    holds("the location says something", true=before)
    for secret in it.harness.secrets:
        for shown in (before, repr(it.store), str(it.store)):
            holds("no secret is shown", true=secret not in shown)


@handles.check("JournalPort.location", "handles")
async def handles_on_one_place_have_one_location(it: Bench) -> None:
    """Two objects on the same data can be told to be that."""
    equal("the other handle's location", expected=it.store.location, actual=it.another().location)


@handles.check("JournalPort.aclose")
async def a_closed_store_opens_again(it: Bench) -> None:
    """Closing loses nothing, may be repeated, and the object works on afterwards."""
    await it.store.aclose()
    lease = await started(it.store, "r", 2)
    for seq in (3, 4):
        await it.store.aclose()
        await it.store.aclose()
        equal("rows", expected=rows(1, seq - 1), actual=await it.store.read("r"))
        await it.store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
    await it.store.aclose()

    equal("the renewal", expected={"r": Renewal(4)}, actual=await it.renew({"r": lease}))
    equal("rows", expected=rows(1, 4), actual=await it.store.read("r"))


@handles.check("JournalPort.aclose")
async def closing_waits_for_what_is_under_way(it: Bench) -> None:
    """Appends that were sent before end as if nobody had closed."""
    leases = {run: await started(it.store, run) for run in "abcdefgh"}
    appends = [
        asyncio.ensure_future(
            it.store.append(run, rows(2), after=1, lease=lease, summary=summary())
        )
        for run, lease in leases.items()
    ]
    await asyncio.sleep(0)  # noqa: TID251 - gives way, so that they are sent

    await it.store.aclose()

    equal(
        "where they are",
        expected=[2] * 8,
        actual=[one.seq for one in await asyncio.gather(*appends)],
    )
    for run in leases:
        equal("rows", expected=rows(1, 2), actual=await it.store.read(run))


@handles.check("JournalPort.append")
async def a_cancelled_append_is_carried_to_its_end(it: Bench) -> None:
    """Each task ends as cancelled after its append has been settled one way, and can go on."""
    leases = {f"r{number}": await started(it.store, f"r{number}") for number in range(8)}
    tasks = {
        run: asyncio.ensure_future(
            it.store.append(run, rows(2), after=1, lease=lease, summary=summary())
        )
        for run, lease in leases.items()
    }
    await asyncio.sleep(0)  # noqa: TID251 - gives way, so that they are sent

    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)

    for run, lease in leases.items():
        equal("rows after the cancellation", expected=rows(1, 2), actual=await it.store.read(run))
        head = await it.store.append(run, rows(3), after=2, lease=lease, summary=summary())
        equal("where the next append is", expected=3, actual=head.seq)


@handles.check("JournalPort.renew")
async def renewing_does_not_need_a_loop(it: Bench) -> None:
    """It blocks and answers: in the thread of the loop, and from several threads at once."""
    lease = await started(it.store, "r")
    found: list[dict[str, Renewal]] = [it.store.renew({"r": lease})]

    def keep_renewing() -> None:
        found.extend(it.store.renew({"r": lease}) for _ in range(5))

    threads = [threading.Thread(target=keep_renewing) for _ in range(4)]
    for thread in threads:
        thread.start()
    for seq in range(2, 8):
        await it.store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
    for thread in threads:
        await asyncio.to_thread(thread.join)

    equal("how many answers", expected=21, actual=len(found))
    holds("none of them is lost", true=not any(one["r"].lost for one in found))
    equal("the last one", expected={"r": Renewal(7)}, actual=await it.renew({"r": lease}))


@handles.check("JournalPort", "loops")
async def one_object_serves_several_loops_and_threads(it: Bench) -> None:
    """Loops that come and go, one after the other and at once, share the object."""
    store = it.store

    async def work(run: str) -> int:
        lease = await started(store, run)
        for seq in range(2, 9):
            await store.append(run, rows(seq), after=seq - 1, lease=lease, summary=summary())
        return len(await store.read(run))

    async def many(name: str) -> list[int]:
        return await asyncio.gather(*(work(f"{name}-{number}") for number in range(4)))

    counts: list[int] = await many("here")
    for name in ("second", "third"):
        counts += await asyncio.to_thread(asyncio.run, many(name))
    at_once = await asyncio.gather(
        many("and here"),
        *(asyncio.to_thread(asyncio.run, many(name)) for name in ("fourth", "fifth", "sixth")),
    )

    counts += [count for counts_of_loop in at_once for count in counts_of_loop]
    equal("rows of each run", expected=[8] * 28, actual=counts)


@handles.check("JournalPort", "loops")
async def what_a_loop_left_unfinished_holds_nobody_up(it: Bench) -> None:
    """A loop that ends with appends under way takes nothing along that another one needs."""
    store = it.store

    async def leave() -> None:
        lease = await started(store, "left")
        asyncio.ensure_future(  # noqa: RUF006 - it is left on purpose
            store.append("left", rows(2), after=1, lease=lease, summary=summary())
        )
        await asyncio.sleep(0)  # noqa: TID251 - gives way, so that it is sent

    await asyncio.to_thread(lambda: asyncio.run(leave()))

    await started(store, "r", 3)
    equal("rows", expected=rows(1, 3), actual=await store.read("r"))
    holds("the one that was left is whole", true=await store.read("left") in (rows(1), rows(1, 2)))


@handles.check("JournalPort", "handles")
async def two_handles_agree(it: Bench) -> None:
    """What one has done the other sees at once, and goes on from there."""
    one, two = it.store, it.another()
    lease = await started(one, "r")

    await two.append("r", rows(2), after=1, lease=lease, summary=summary())
    equal("rows, by the first", expected=rows(1, 2), actual=await one.read("r"))
    await one.aclose()
    await two.append("r", rows(3), after=2, lease=lease, summary=summary())

    equal("rows, by the first", expected=rows(1, 3), actual=await one.read("r"))
    equal("the heads", expected=plain(await two.head("r")), actual=plain(await one.head("r")))
    listed = [one.run for one in (await two.list_runs())[0]]
    equal("the list, by the second", expected=["r"], actual=listed)


@handles.check("JournalPort.acquire", "handles")
async def handles_fence_each_other(it: Bench) -> None:
    """A lease that was acquired through one handle counts for all."""
    one, two = it.store, it.another()
    old = await started(one, "r")

    await refused(RunInUse, two.acquire("r", "b", TTL_SECONDS), what="a second lease")
    await refused(RunInUse, two.delete_run("r"), what="deleting by the other handle")
    new = await two.acquire("r", "b", TTL_SECONDS, supersede=old.epoch)
    late = one.append("r", rows(2), after=1, lease=old, summary=summary())
    await refused(LeaseLost, late, what="an append by the first handle's old lease")
    renewed = await asyncio.to_thread(one.renew, {"old": old, "new": new})
    equal("renewals", expected={"old": Renewal(1, lost=True), "new": Renewal(1)}, actual=renewed)


@handles.check("JournalPort.append", "handles")
async def two_handles_do_not_overwrite_each_other(it: Bench) -> None:
    """Of two notes for one place, sent through two handles at once, one is in, every time."""
    one, two = it.store, it.another()

    async def note(store: JournalPort, seq: int, text: str) -> bool:
        given = rows(seq, text=text)
        try:
            await store.append("r", given, after=seq - 1, lease=None, summary=summary("saved"))
        except HeadMoved:
            return False
        return True

    for seq in range(1, 16):
        won = await asyncio.gather(note(one, seq, "one"), note(two, seq, "two"))
        equal("how many of two notes are in", expected=1, actual=sum(won))
    found = [row.seq for row in await one.read("r")]
    equal("the numbers of the rows", expected=list(range(1, 16)), actual=found)
