"""Leases: who may act, until when, and how they go from one to the next."""

from __future__ import annotations

import math

from agentkit.core.contracts.errors import InvalidId, RunInUse, StoreMisused
from agentkit.core.contracts.heads import Renewal
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, rows, started, summary

leases = Subject("leases", "journal")


@leases.check("JournalPort.acquire")
async def the_first_lease_creates_the_head(it: Bench) -> None:
    """A claimed run exists, without entries, and is in no list."""
    lease = await it.store.scoped(Scope("t")).acquire("r", "worker", TTL_SECONDS)

    head = await it.store.scoped(Scope("t")).head("r")

    holds("the run has a head", true=head)
    equal("the head", expected=plain(lease.head), actual=plain(head))
    equal(
        "seq, check, owner, recoveries and summary",
        expected=(0, b"", "worker", 0, None),
        actual=head and (head.seq, head.check, head.owner, head.recoveries, head.summary),
    )
    equal(
        "run, owner, time, takeover and scope of the lease",
        expected=("r", "worker", TTL_SECONDS, False, "t"),
        actual=(lease.run, lease.owner, lease.ttl_seconds, lease.took_over, lease.scope),
    )
    listed = await it.store.scoped(Scope("t")).list_runs()
    equal("the list of runs", expected=([], ""), actual=listed)


@leases.check("JournalPort.acquire")
async def a_second_worker_is_refused(it: Bench) -> None:
    """While the lease lives nobody else gets it, not even under its name, and nothing changes."""
    await started(it.store, "r", 2)
    before = plain(await it.store.head("r"))

    for owner in ("other", "worker"):
        attempt = it.store.acquire("r", owner, TTL_SECONDS)
        error = await refused(RunInUse, attempt, what=f"{owner!r} takes what 'worker' holds")

        equal(
            "run and owner that the error names",
            expected=("r", "worker"),
            actual=(error.run_id, error.owner),
        )
        holds("the error says when it lapses", true=0 < error.expires_in_seconds <= TTL_SECONDS)
    equal("the head", expected=before, actual=plain(await it.store.head("r")))


@leases.check("JournalPort.acquire")
async def a_lease_that_is_over_at_once_is_refused(it: Bench) -> None:
    """Zero, less, what is no number, and epochs that none can be; a time too long is granted."""
    for seconds in (0.0, -5.0, math.nan):
        attempt = it.store.acquire("r", "worker", seconds)
        await refused(StoreMisused, attempt, what=f"a lease of {seconds} seconds")
    for above, known in ((2**63, None), (0, 10**30)):
        attempt = it.store.acquire("r", "worker", TTL_SECONDS, above=above, supersede=known)
        await refused(StoreMisused, attempt, what=f"an epoch above {above}, superseding {known}")
    equal("the head", expected=None, actual=await it.store.head("r"))

    lease = await it.store.acquire("r", "worker", 1e30)
    holds("a lease of 1e30 seconds is long", true=lease.ttl_seconds > TTL_SECONDS)


@leases.check("JournalPort.acquire", "clock")
async def a_lease_lapses_at_the_exact_instant(it: Bench) -> None:
    """A millisecond before its expiry it holds; at its expiry it has lapsed."""
    await started(it.store, "r")
    await it.let_pass(TTL_SECONDS - 0.001)
    early = it.store.acquire("r", "other", TTL_SECONDS)
    await refused(RunInUse, early, what="a takeover one millisecond before the expiry")
    await it.let_pass(0.001)

    head = await it.store.head("r")
    taken = await it.store.acquire("r", "other", TTL_SECONDS)

    equal(
        "time left and held, at the instant of expiry",
        expected=(0.0, False),
        actual=head and (head.expires_in_seconds, head.held),
    )
    equal("owner of the new lease", expected="other", actual=taken.head.owner)
    holds("the new lease took over", true=taken.took_over)


@leases.check("Head", "clock")
async def a_head_tells_how_much_time_is_left(it: Bench) -> None:
    """It counts down from the whole time and turns negative once the lease has lapsed."""
    await it.store.acquire("r", "worker", TTL_SECONDS)

    for passes, left in ((0.0, TTL_SECONDS), (10.0, TTL_SECONDS - 10), (TTL_SECONDS - 8, -2.0)):
        await it.let_pass(passes)
        head = await it.store.head("r")

        equal("expires_in_seconds", expected=left, actual=head and head.expires_in_seconds)


@leases.check("JournalPort.acquire")
async def a_lease_that_lapsed_can_be_taken(it: Bench) -> None:
    """Once its time is over anybody may take it, and is told that he took over."""
    old = await started(it.store, "r", ttl_seconds=it.brief_seconds)
    await it.outlive(old)

    head = await it.store.head("r")
    new = await it.store.acquire("r", "other", TTL_SECONDS)

    holds("the lapsed lease has an owner and is not held", true=head and head.owner)
    equal("held", expected=False, actual=head and head.held)
    holds("the new lease took over", true=new.took_over)
    equal("its count of recoveries", expected=1, actual=new.head.recoveries)


@leases.check("JournalPort.renew")
async def a_lapsed_lease_still_acts_until_it_is_taken(it: Bench) -> None:
    """Nobody took the run: its holder may append and renew as if nothing had been."""
    lease = await started(it.store, "r", ttl_seconds=it.brief_seconds)
    await it.outlive(lease)

    head = await it.store.append("r", rows(2), after=1, lease=lease, summary=summary())
    longer = type(lease)(lease.run, lease.owner, lease.epoch, TTL_SECONDS, lease.head)
    renewed = await it.renew({"it": longer})

    equal("where the append is", expected=2, actual=head.seq)
    equal("the renewal", expected={"it": Renewal(2)}, actual=renewed)
    attempt = it.store.acquire("r", "other", TTL_SECONDS)
    await refused(RunInUse, attempt, what="a takeover of the lease that was renewed")


@leases.check("JournalPort.renew")
async def one_call_renews_leases_of_several_scopes(it: Bench) -> None:
    """All leases of a call tell where their heads are, under the caller's own keys."""
    store = it.store
    views = [store.scoped(Scope(f"tenant {number % 7}", "u")) for number in range(60)]
    held = {
        f"{number}: 'key' %": await started(view, f"r{number}", 1 + number % 3)
        for number, view in enumerate(views)
    }
    view = store.scoped(Scope("tenant 0", "u"))
    await view.append("r0", rows(2), after=1, lease=None, summary=summary())

    renewed = await it.renew(held)

    expected = {key: Renewal(1 + n % 3 + (not n)) for n, key in enumerate(held)}
    equal("the renewals", expected=expected, actual=renewed)
    equal("the renewal of none", expected={}, actual=await it.renew({}))


@leases.check("JournalPort.renew", "clock")
async def renewing_extends_from_now(it: Bench) -> None:
    """All leases of a call get their own full time again, counted from this moment."""
    long = await it.store.acquire("long", "worker", TTL_SECONDS)
    short = await it.store.scoped(Scope("t")).acquire("short", "worker", TTL_SECONDS / 2)
    await it.let_pass(10)

    await it.renew({"x": long, "y": short})

    for view, run, left in (
        (it.store, "long", TTL_SECONDS),
        (it.store.scoped(Scope("t")), "short", TTL_SECONDS / 2),
    ):
        head = await view.head(run)
        equal(f"time left of {run}", expected=left, actual=head and head.expires_in_seconds)


@leases.check("JournalPort.acquire")
async def a_dead_holder_is_superseded_at_once(it: Bench) -> None:
    """With its exact epoch the lease of a proved-dead holder goes over, and with no other."""
    dead = await started(it.store, "r")

    for wrong in (dead.epoch - 1, dead.epoch + 1, 0):
        attempt = it.store.acquire("r", "heir", TTL_SECONDS, supersede=wrong)
        await refused(RunInUse, attempt, what="supersede with another epoch than the holder's")
    heir = await it.store.acquire("r", "heir", TTL_SECONDS, supersede=dead.epoch)
    late = it.store.acquire("r", "late", TTL_SECONDS, supersede=dead.epoch)
    await refused(RunInUse, late, what="supersede with an epoch that is over")

    holds("the new lease took over", true=heir.took_over)
    equal("its count of recoveries", expected=1, actual=heir.head.recoveries)


@leases.check("JournalPort.acquire")
async def takeovers_are_counted_when_they_happen(it: Bench) -> None:
    """Each claim over an unreleased lease counts, also when the claimant dies before it writes."""
    lease = await started(it.store, "r")
    for count in (1, 2, 3):
        lease = await it.store.acquire("r", f"w{count}", TTL_SECONDS, supersede=lease.epoch)
        equal("recoveries in the lease's head", expected=count, actual=lease.head.recoveries)
    head = await it.store.head("r")

    equal(
        "recoveries and summary in the head",
        expected=(3, summary()),
        actual=head and (head.recoveries, head.summary),
    )


@leases.check("JournalPort.append")
async def an_append_settles_the_count(it: Bench) -> None:
    """What the fold counted replaces what the store counted, once the holder appends."""
    old = await started(it.store, "r")
    lease = await it.store.acquire("r", "heir", TTL_SECONDS, supersede=old.epoch)

    made = summary(recoveries=7)
    head = await it.store.append("r", rows(2), after=1, lease=lease, summary=made)
    heir = await it.store.acquire("r", "next", TTL_SECONDS, supersede=lease.epoch)

    equal("the count after the append", expected=7, actual=head.recoveries)
    equal("and after one more takeover", expected=8, actual=heir.head.recoveries)


@leases.check("JournalPort.append")
async def a_note_does_not_settle_the_count(it: Bench) -> None:
    """Somebody's word about a run is no progress of its workers."""
    old = await started(it.store, "r")
    await it.store.acquire("r", "heir", TTL_SECONDS, supersede=old.epoch)

    head = await it.store.append("r", rows(2), after=1, lease=None, summary=summary())

    equal("the count after the note", expected=1, actual=head.recoveries)
    equal("the head afterwards", expected=plain(head), actual=plain(await it.store.head("r")))


@leases.check("JournalPort.acquire")
async def a_released_lease_is_nobodys(it: Bench) -> None:
    """After an orderly release the next claim is no takeover and counts nothing."""
    lease = await started(it.store, "r")
    await it.store.append("r", rows(2), after=1, lease=lease, summary=summary(), release=True)

    taken = await it.store.acquire("r", "next", TTL_SECONDS)

    equal(
        "takeover and recoveries",
        expected=(False, 0),
        actual=(taken.took_over, taken.head.recoveries),
    )
    holds("the epoch has grown", true=taken.epoch > lease.epoch)


@leases.check("Lease")
async def a_finished_run_is_not_taken_over(it: Bench) -> None:
    """Whoever died after the end of the run left nothing to recover."""
    lease = await started(it.store, "r")
    await it.store.append("r", rows(2), after=1, lease=lease, summary=summary("done"))

    taken = await it.store.acquire("r", "next", TTL_SECONDS, supersede=lease.epoch)

    equal("took_over", expected=False, actual=taken.took_over)


@leases.check("JournalPort.acquire", "clock")
async def the_stores_elapsed_time_decides(it: Bench) -> None:
    """Wall clocks that are fast or slow neither steal a lease nor keep one alive."""
    await started(it.store, "r")
    for shift in (+600.0, -600.0, -1_700_000_000.0):
        it.clock.set_now(1_700_000_000.0 + shift)
        attempt = it.store.acquire("r", "other", TTL_SECONDS)
        await refused(RunInUse, attempt, what=f"a takeover with the wall clock off by {shift:g} s")

    await it.let_pass(TTL_SECONDS)
    taken = await it.store.acquire("r", "other", TTL_SECONDS)

    holds("the lease was taken over", true=taken.took_over)


@leases.check("JournalPort.delete_run")
async def a_live_run_is_not_deleted(it: Bench) -> None:
    """Deleting waits for the lease; afterwards nothing of the run is left, and others are whole."""
    store = it.store
    lease = await started(store, "r", 5, ttl_seconds=it.brief_seconds)
    held = type(lease)("r", "worker", lease.epoch, TTL_SECONDS, lease.head)
    await it.renew({"r": held})
    await started(store, "kept", 3)

    await refused(RunInUse, store.delete_run("r"), what="deleting a run that is held")
    equal("its rows", expected=rows(1, 5), actual=await store.read("r"))
    await it.renew({"r": lease})
    await it.outlive(lease)

    equal("deleting once lapsed", expected=True, actual=await store.delete_run("r"))
    equal("deleting again", expected=False, actual=await store.delete_run("r"))
    equal("rows left", expected=[], actual=await store.read("r"))
    equal("head left", expected=None, actual=await store.head("r"))
    equal("rows of the other run", expected=rows(1, 3), actual=await store.read("kept"))
    listed, _ = await store.list_runs()
    equal("the list", expected=["kept"], actual=[one.run for one in listed])


@leases.check("JournalPort.acquire")
async def an_owner_needs_a_name(it: Bench) -> None:
    """An empty owner means that nobody holds the lease, so nobody may be called that."""
    attempt = it.store.acquire("r", "", TTL_SECONDS)
    await refused(InvalidId, attempt, what="a lease for the owner ''")

    equal("the run", expected=None, actual=await it.store.head("r"))
