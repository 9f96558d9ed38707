"""Leases: who may act, until when, and what those who may no longer act cannot do."""

import pytest

from agentkit.core.contracts.errors import InvalidId, LeaseLost, RunInUse
from agentkit.core.contracts.heads import Renewal
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from tests.state.stores.helpers import TTL_SECONDS, row, rows, started, summary


async def test_the_first_lease_creates_the_head(store: JournalPort, clock: FakeClock) -> None:
    """A claimed run exists, without entries, and is in no list."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    head = await store.head("r")

    assert head is not None
    assert (0, b"", "worker", TTL_SECONDS, 0, None) == (
        head.seq,
        head.check,
        head.owner,
        head.expires_in_seconds,
        head.recoveries,
        head.summary,
    )
    assert lease.head == head
    assert lease.epoch == clock.now() * 1000
    assert not lease.took_over
    assert ([], "") == await store.list_runs()


async def test_f055_f059_a_second_worker_is_refused(store: JournalPort, clock: FakeClock) -> None:
    """While the lease lives nobody else gets it, and nothing changes."""
    await started(store, "r", 2)
    clock.advance(5)

    with pytest.raises(RunInUse) as refused:
        await store.acquire("r", "other", TTL_SECONDS)

    assert ("r", "worker", 10.0) == (
        refused.value.run_id,
        refused.value.owner,
        refused.value.expires_in_seconds,
    )
    head = await store.head("r")
    assert head is not None
    assert ("worker", 0) == (head.owner, head.recoveries)


async def test_a_lease_lapses_at_the_exact_instant(store: JournalPort, clock: FakeClock) -> None:
    """A millisecond before its expiry it holds; at its expiry it has lapsed."""
    await started(store, "r")
    clock.advance(TTL_SECONDS - 0.001)
    with pytest.raises(RunInUse):
        await store.acquire("r", "other", TTL_SECONDS)
    clock.advance(0.001)

    head = await store.head("r")
    taken = await store.acquire("r", "other", TTL_SECONDS)

    assert head is not None
    assert (0.0, False) == (head.expires_in_seconds, head.held)
    assert ("other", True) == (taken.head.owner, taken.took_over)


async def test_a_lapsed_lease_shows_how_long_ago(store: JournalPort, clock: FakeClock) -> None:
    """The time left turns negative once it has lapsed."""
    await started(store, "r")

    clock.advance(TTL_SECONDS + 2)

    head = await store.head("r")
    assert head is not None
    assert -2.0 == head.expires_in_seconds


async def test_a_lapsed_lease_still_acts_until_it_is_taken(
    store: JournalPort, clock: FakeClock
) -> None:
    """Nobody took the run: its holder may renew and append as if nothing had been."""
    lease = await started(store, "r")
    clock.advance(TTL_SECONDS * 10)

    head = await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    renewed = store.renew({"it": lease})

    assert 2 == head.seq
    assert {"it": Renewal(2)} == renewed
    with pytest.raises(RunInUse):
        await store.acquire("r", "other", TTL_SECONDS)


async def test_renewing_extends_from_now(store: JournalPort, clock: FakeClock) -> None:
    """All leases of a call get their full time again and tell where their heads are."""
    first = await started(store, "a", 3)
    second = await started(store.scoped(Scope("tenant", "user")), "a", 1)
    clock.advance(10)
    await store.append("a", rows(4), after=3, lease=None, summary=summary())

    renewed = store.renew({"x": first, "y": second})

    head = await store.head("a")
    assert head is not None
    assert {"x": Renewal(4), "y": Renewal(1)} == renewed
    assert TTL_SECONDS == head.expires_in_seconds
    assert {} == store.renew({})


async def test_f057_the_old_holder_can_do_nothing(store: JournalPort, clock: FakeClock) -> None:
    """After a takeover, even by a worker of the same name, the old lease neither appends, renews
    nor releases: each acquisition has an epoch of its own.
    """
    old = await started(store, "r")
    clock.advance(TTL_SECONDS)
    new = await store.acquire("r", "worker", TTL_SECONDS)

    with pytest.raises(LeaseLost):
        await store.append("r", rows(2), after=1, lease=old, summary=summary())
    with pytest.raises(LeaseLost):
        await store.append("r", [], after=1, lease=old, summary=summary(), release=True)
    renewed = store.renew({"old": old, "new": new})

    assert {"old": Renewal(1, lost=True), "new": Renewal(1)} == renewed
    assert old.epoch < new.epoch
    assert rows(1) == await store.read("r")
    head = await store.append("r", rows(2), after=1, lease=new, summary=summary())
    assert ("worker", new.epoch, 2) == (head.owner, head.epoch, head.seq)


async def test_a_lease_that_is_lost_is_not_just_behind(
    store: JournalPort, clock: FakeClock
) -> None:
    """Whoever lost the lease and is behind as well is told the graver of the two."""
    old = await started(store, "r")
    clock.advance(TTL_SECONDS)
    new = await store.acquire("r", "other", TTL_SECONDS)
    await store.append("r", rows(2), after=1, lease=new, summary=summary())

    with pytest.raises(LeaseLost, match="'other' holds it"):
        await store.append("r", rows(2, text="stale"), after=1, lease=old, summary=summary())


async def test_a_dead_holder_is_superseded_at_once(store: JournalPort) -> None:
    """With its exact epoch the lease of a proved-dead holder goes over, and with no other."""
    dead = await started(store, "r")

    with pytest.raises(RunInUse):
        await store.acquire("r", "heir", TTL_SECONDS, supersede=dead.epoch - 1)
    heir = await store.acquire("r", "heir", TTL_SECONDS, supersede=dead.epoch)
    with pytest.raises(RunInUse):
        await store.acquire("r", "late", TTL_SECONDS, supersede=dead.epoch)

    assert (True, 1) == (heir.took_over, heir.head.recoveries)


async def test_takeovers_are_counted_where_they_happen(
    store: JournalPort, clock: FakeClock
) -> None:
    """Each claim over an unreleased lease counts, also when the claimant dies before it writes."""
    await started(store, "r")
    for count in (1, 2, 3):
        clock.advance(TTL_SECONDS)
        lease = await store.acquire("r", f"worker-{count}", TTL_SECONDS)
        assert count == lease.head.recoveries
    head = await store.head("r")

    assert head is not None
    assert (3, summary()) == (head.recoveries, head.summary)


async def test_an_append_settles_the_count(store: JournalPort, clock: FakeClock) -> None:
    """What the fold counted replaces what the store counted."""
    await started(store, "r")
    clock.advance(TTL_SECONDS)
    lease = await store.acquire("r", "heir", TTL_SECONDS)

    head = await store.append("r", rows(2), after=1, lease=lease, summary=summary(recoveries=7))

    assert 7 == head.recoveries
    assert head == await store.head("r")


async def test_a_note_does_not_settle_the_count(store: JournalPort, clock: FakeClock) -> None:
    """Somebody's word about a run is no progress of its workers."""
    await started(store, "r")
    clock.advance(TTL_SECONDS)
    await store.acquire("r", "heir", TTL_SECONDS)

    head = await store.append("r", rows(2), after=1, lease=None, summary=summary())

    assert 1 == head.recoveries
    assert head == await store.head("r")


async def test_a_released_lease_is_nobodys(store: JournalPort, clock: FakeClock) -> None:
    """After an orderly release the next claim is no takeover and counts nothing."""
    lease = await started(store, "r")
    await store.append("r", rows(2), after=1, lease=lease, summary=summary(), release=True)

    taken = await store.acquire("r", "next", TTL_SECONDS)

    assert (False, 0, lease.epoch + 1) == (taken.took_over, taken.head.recoveries, taken.epoch)


async def test_a_finished_run_is_not_taken_over(store: JournalPort, clock: FakeClock) -> None:
    """Whoever died after the end of the run left nothing to recover."""
    lease = await started(store, "r")
    await store.append("r", rows(2), after=1, lease=lease, summary=summary("done"))
    clock.advance(TTL_SECONDS)

    assert not (await store.acquire("r", "next", TTL_SECONDS)).took_over


async def test_f060_the_stores_elapsed_time_decides(store: JournalPort, clock: FakeClock) -> None:
    """Wall clocks that are fast or slow neither steal a lease nor keep one alive."""
    await started(store, "r")
    for shift in (+600.0, -600.0, -1_700_000_000.0):
        clock.set_now(1_700_000_000.0 + shift)
        with pytest.raises(RunInUse):
            await store.acquire("r", "other", TTL_SECONDS)

    clock.advance(TTL_SECONDS)
    taken = await store.acquire("r", "other", TTL_SECONDS)

    assert taken.took_over


async def test_f056_the_epoch_grows_while_the_clock_steps_back(
    store: JournalPort, clock: FakeClock
) -> None:
    """An epoch is above the last one, and at least the wall clock."""
    epochs = []
    for now in (1_700_000_000.0, 1_600_000_000.0, 1_600_000_000.0, 1_800_000_000.0):
        clock.set_now(now)
        epochs.append((await store.acquire("r", "worker", TTL_SECONDS)).epoch)
        clock.advance(TTL_SECONDS)

    assert [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, 1_800_000_000_000] == epochs


async def test_the_epoch_grows_across_a_delete(store: JournalPort, clock: FakeClock) -> None:
    """A run that begins anew under its old id fences off whoever still holds the old lease, even
    when the wall clock stepped back meanwhile and a note began it.
    """
    old = await started(store, "r")
    clock.advance(TTL_SECONDS)
    assert await store.delete_run("r")
    clock.set_now(0.0)

    with pytest.raises(LeaseLost, match="deleted"):
        await store.append("r", rows(2), after=1, lease=old, summary=summary())
    assert {"r": Renewal(0, lost=True)} == store.renew({"r": old})
    await store.append("r", rows(1), after=0, lease=None, summary=summary("saved"))
    new = await store.acquire("r", "worker", TTL_SECONDS)

    assert new.epoch > old.epoch
    with pytest.raises(LeaseLost):
        await store.append("r", rows(2), after=1, lease=old, summary=summary())


async def test_a_live_run_is_not_deleted(store: JournalPort, clock: FakeClock) -> None:
    """Deleting waits for the lease; afterwards nothing of the run is left."""
    await started(store, "r", 5)
    await started(store, "kept", 3)

    with pytest.raises(RunInUse):
        await store.delete_run("r")
    assert rows(1, 5) == await store.read("r")
    clock.advance(TTL_SECONDS)

    assert await store.delete_run("r")
    assert not await store.delete_run("r")
    assert [] == await store.read("r")
    assert await store.head("r") is None
    assert rows(1, 3) == await store.read("kept")


async def test_an_owner_needs_a_name(store: JournalPort) -> None:
    """An empty owner means that nobody holds the lease, so nobody may be called that."""
    with pytest.raises(InvalidId, match="owner"):
        await store.acquire("r", "", TTL_SECONDS)


async def test_f115_another_scope_sees_nothing(store: JournalPort) -> None:
    """The same run id in two scopes is two runs; a foreign run is simply not there."""
    a, b = store.scoped(Scope("a")), store.scoped(Scope("b"))
    lease = await started(a, "r", 3)
    stranger = await b.acquire("r", "stranger", TTL_SECONDS)

    assert [] == await b.read("r")
    assert 0 == stranger.head.seq
    assert ([], "") == await b.list_runs()
    for other in (b, store, store.scoped(Scope("", "a")), store.scoped(Scope("a", "u"))):
        assert other is b or await other.head("r") is None
        assert other is b or not await other.delete_run("r")
    await b.append("r", [row(1, "b")], after=0, lease=stranger, summary=summary())
    assert rows(1, 3) == await a.read("r")
    assert [row(1, "b")] == await b.read("r")
    assert {"r": Renewal(3)} == store.renew({"r": lease})


async def test_f115_scope_keys_do_not_collide(store: JournalPort) -> None:
    """Separators within tenant and user names do not make two scopes one."""
    scopes = [Scope("a/b"), Scope("a", "b"), Scope("a%2Fb"), Scope("", "a/b"), Scope("a%", "2Fb")]
    for number, scope in enumerate(scopes):
        await store.scoped(scope).append(
            "r", [row(1, str(number))], after=0, lease=None, summary=summary()
        )

    for number, scope in enumerate(scopes):
        assert [row(1, str(number))] == await store.scoped(scope).read("r")


async def test_scoped_views_share_one_location(store: JournalPort) -> None:
    """The location names the data, not the view."""
    assert store.location == store.scoped(Scope("a")).location
