"""Fencing: what those who may no longer act cannot do, and why epochs tell them apart."""

from __future__ import annotations

from agentkit.core.contracts.errors import LeaseLost
from agentkit.core.contracts.heads import Renewal
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, rows, started, summary

fencing = Subject("fencing", "journal")


@fencing.check("JournalPort.append")
async def the_old_holder_can_do_nothing(it: Bench) -> None:
    """After a takeover, even by a worker of the same name, the old lease neither appends, renews
    nor releases: each acquisition has an epoch of its own.
    """
    store = it.store
    old = await started(store, "r")
    new = await store.acquire("r", "worker", TTL_SECONDS, supersede=old.epoch)

    append = store.append("r", rows(2), after=1, lease=old, summary=summary())
    await refused(LeaseLost, append, what="an append under the old lease")
    release = store.append("r", [], after=1, lease=old, summary=summary(), release=True)
    await refused(LeaseLost, release, what="a release of the old lease")
    renewed = await it.renew({"old": old, "new": new})

    equal(
        "the renewals",
        expected={"old": Renewal(1, lost=True), "new": Renewal(1)},
        actual=renewed,
    )
    holds("the epoch has grown", true=old.epoch < new.epoch)
    equal("the rows", expected=rows(1), actual=await store.read("r"))
    head = await store.append("r", rows(2), after=1, lease=new, summary=summary())
    equal(
        "owner, epoch and seq",
        expected=("worker", new.epoch, 2),
        actual=(head.owner, head.epoch, head.seq),
    )


@fencing.check("JournalPort.append")
async def a_released_lease_acts_no_more(it: Bench) -> None:
    """Whoever gave the lease back appends nothing and renews nothing, though nobody took it."""
    lease = await started(it.store, "r", 1)
    await it.store.append("r", rows(2), after=1, lease=lease, summary=summary(), release=True)
    before = await it.store.head("r")

    append = it.store.append("r", rows(3), after=2, lease=lease, summary=summary())
    await refused(LeaseLost, append, what="an append under a lease that was released")
    renewed = await it.renew({"r": lease})

    equal("the renewal", expected={"r": Renewal(2, lost=True)}, actual=renewed)
    equal("the head", expected=before, actual=await it.store.head("r"))


@fencing.check("JournalPort.append")
async def a_lease_that_is_lost_is_not_just_behind(it: Bench) -> None:
    """Whoever lost the lease and is behind as well is told the graver of the two."""
    old = await started(it.store, "r")
    new = await it.store.acquire("r", "other", TTL_SECONDS, supersede=old.epoch)
    await it.store.append("r", rows(2), after=1, lease=new, summary=summary())

    for after in (0, 1, 2, 3):
        stale = rows(after + 1, text="stale")
        attempt = it.store.append("r", stale, after=after, lease=old, summary=summary())
        await refused(LeaseLost, attempt, what=f"an append after {after} under the old lease")

    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))


@fencing.check("JournalPort.append")
async def owner_and_epoch_must_both_be_the_leases(it: Bench) -> None:
    """A lease with the right owner and another epoch, or the other way round, is none."""
    lease = await started(it.store, "r")
    before = plain(await it.store.head("r"))

    for owner, epoch in (
        ("worker", lease.epoch - 1),
        ("worker", lease.epoch + 1),
        ("other", lease.epoch),
        ("Worker", lease.epoch),
    ):
        forged = type(lease)("r", owner, epoch, TTL_SECONDS, lease.head)
        attempt = it.store.append("r", rows(2), after=1, lease=forged, summary=summary())
        await refused(
            LeaseLost, attempt, what=f"an append by {owner!r}, epoch off by {epoch - lease.epoch}"
        )
        renewed = await it.renew({"r": forged})
        equal("the renewal", expected={"r": Renewal(1, lost=True)}, actual=renewed)

    equal("the head", expected=before, actual=plain(await it.store.head("r")))


@fencing.check("JournalPort.acquire", "clock")
async def the_epoch_grows_while_the_clock_steps_back(it: Bench) -> None:
    """An epoch is above the last one, and at least the wall clock in milliseconds."""
    epochs = []
    for now in (1_700_000_000.0, 1_600_000_000.0, 1_600_000_000.0, 1_800_000_000.0):
        it.clock.set_now(now)
        epochs.append((await it.store.acquire("r", "worker", TTL_SECONDS)).epoch)
        await it.let_pass(TTL_SECONDS)

    expected = [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, 1_800_000_000_000]
    equal("the epochs", expected=expected, actual=epochs)


@fencing.check("JournalPort.acquire")
async def an_epoch_is_above_the_one_that_is_asked_for(it: Bench) -> None:
    """Also where that one is far ahead of the clock, for a new run and for one with a past."""
    store = it.store
    ahead = (await store.acquire("clock", "worker", TTL_SECONDS)).epoch + 1_000_000_000

    new = await store.acquire("new", "worker", TTL_SECONDS, above=ahead)
    again = await store.acquire("new", "heir", TTL_SECONDS, supersede=new.epoch, above=ahead + 5)
    later = await store.acquire("new", "third", TTL_SECONDS, supersede=again.epoch, above=7)

    equal(
        "the epochs, from the one that was asked for",
        expected=[1, 6, 7],
        actual=[one.epoch - ahead for one in (new, again, later)],
    )
    attempt = store.append("new", rows(1), after=0, lease=new, summary=summary())
    await refused(LeaseLost, attempt, what="an append under the first of three leases")


@fencing.check("JournalPort.acquire")
async def the_epoch_grows_across_a_delete(it: Bench) -> None:
    """A run that begins anew under its old id, by a note or a claim, fences off whoever still
    holds the old lease.
    """
    store = it.store
    for run, noted in (("claimed", False), ("noted", True)):
        old = await started(store, run)
        await store.append(run, [], after=1, lease=old, summary=summary(), release=True)
        await store.delete_run(run)

        append = store.append(run, rows(2), after=1, lease=old, summary=summary())
        await refused(LeaseLost, append, what="an append to a run that was deleted")
        renewed = await it.renew({"r": old})
        equal("the renewal", expected={"r": Renewal(0, lost=True)}, actual=renewed)
        if noted:
            await store.append(run, rows(1), after=0, lease=None, summary=summary("saved"))
        new = await store.acquire(run, "worker", TTL_SECONDS)

        holds("the new run's epoch is above the old one's", true=new.epoch > old.epoch)
        late = store.append(run, rows(2), after=1, lease=old, summary=summary())
        await refused(LeaseLost, late, what="an append by the holder of the old run's lease")


@fencing.check("JournalPort.acquire", "clock")
async def the_epoch_grows_across_a_delete_while_the_clock_steps_back(it: Bench) -> None:
    """Not the wall clock keeps a new run's epoch above the old one's."""
    old = await started(it.store, "r")
    await it.let_pass(TTL_SECONDS)
    await it.store.delete_run("r")
    it.clock.set_now(0.0)

    new = await it.store.acquire("r", "worker", TTL_SECONDS)

    holds("the new run's epoch is above the old one's", true=new.epoch > old.epoch)


@fencing.check("JournalPort.append", "clock")
async def order_is_by_number_whatever_the_clock_says(it: Bench) -> None:
    """A clock that stands still or steps back makes no conflict and changes no order."""
    lease = await started(it.store, "r", 9)
    for seq, now in ((10, 1_700_000_000.0), (11, 5.0), (12, 5.0), (13, 0.0)):
        it.clock.set_now(now)
        await it.store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())

    equal("the rows", expected=rows(1, 13), actual=await it.store.read("r"))
    equal("the renewal", expected={"r": Renewal(13)}, actual=await it.renew({"r": lease}))
