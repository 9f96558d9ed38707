"""Tombstones, epochs above those of brought entries, and the list of scopes."""

import msgspec
import pytest

from agentkit.core.contracts.errors import LeaseLost, NoteRefused
from agentkit.core.contracts.heads import RunStatus
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary

ENDED_AT = 2_000


async def _ended(store: JournalPort, run: str, status: RunStatus = "done") -> None:
    lease = await started(store, run, 2)
    last = msgspec.structs.replace(summary(status, detail=b'{"x":1}'), updated_at=ENDED_AT)
    await store.append(run, rows(3), after=2, lease=lease, summary=last, release=True)


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
async def test_an_entombed_run_keeps_its_head_and_no_entry(
    store: JournalPort, status: RunStatus
) -> None:
    """All that the head said stays, but for the checksum of the last entry."""
    await _ended(store, "r", status)
    before = await store.head("r")
    assert before is not None
    assert not before.tombstone

    assert await store.entomb("r", updated_at=ENDED_AT)

    after = await store.head("r")
    assert msgspec.structs.replace(before, check=b"") == after
    assert after is not None
    assert after.tombstone
    assert [] == await store.read("r")
    assert ["r"] == [one.run for one in (await store.list_runs(status=status))[0]]
    assert not await store.entomb("r", updated_at=ENDED_AT)


async def test_a_tombstone_takes_no_entry_and_can_be_deleted(store: JournalPort) -> None:
    """Neither a note nor a lease that was acquired on it brings an ended run back."""
    await _ended(store, "r")
    await store.entomb("r", updated_at=ENDED_AT)

    with pytest.raises(NoteRefused):
        await store.append("r", rows(4), after=3, lease=None, summary=summary())
    assert await store.delete_run("r")
    assert await store.head("r") is None


@pytest.mark.parametrize("status", ["running", "suspended", "parked", "saved"])
async def test_a_run_that_has_not_ended_is_not_entombed(
    store: JournalPort, status: RunStatus
) -> None:
    """Whatever the caller believes, entries of an open run stay."""
    await _ended(store, "r", status)

    assert not await store.entomb("r", updated_at=ENDED_AT)
    assert rows(1, 3) == await store.read("r")


async def test_a_run_that_somebody_holds_or_that_moved_on_is_not_entombed(
    store: JournalPort, clock: FakeClock
) -> None:
    """The caller's knowledge of an ended run must still be true, and nobody at work on it."""
    await _ended(store, "r")

    assert not await store.entomb("r", updated_at=ENDED_AT - 1)
    assert not await store.entomb("unknown", updated_at=ENDED_AT)
    await store.acquire("r", "reader", TTL_SECONDS)
    assert not await store.entomb("r", updated_at=ENDED_AT)
    assert rows(1, 3) == await store.read("r")
    clock.advance(TTL_SECONDS)
    assert await store.entomb("r", updated_at=ENDED_AT)


async def test_an_epoch_is_above_the_one_that_is_asked_for(store: JournalPort) -> None:
    """Also where that one is far ahead of the clock, for a new run and for one with a past."""
    ahead = (await store.acquire("clock", "worker", TTL_SECONDS)).epoch + 1_000_000

    new = await store.acquire("new", "worker", TTL_SECONDS, above=ahead)
    again = await store.acquire("new", "heir", TTL_SECONDS, supersede=new.epoch, above=ahead + 5)
    later = await store.acquire("new", "third", TTL_SECONDS, supersede=again.epoch, above=7)

    assert [ahead + 1, ahead + 6, ahead + 7] == [new.epoch, again.epoch, later.epoch]
    with pytest.raises(LeaseLost):
        await store.append("new", rows(1), after=0, lease=new, summary=summary())


async def test_scopes_are_those_that_hold_runs(store: JournalPort) -> None:
    """In order, in pages, seen alike from each scope; a mere claim is no run."""
    views = [store.scoped(Scope(tenant, user)) for tenant in ("", "b", "ä") for user in ("", "u")]
    for view in views:
        await view.append("r", rows(1), after=0, lease=None, summary=summary())
    await store.scoped(Scope("claimed")).acquire("r", "worker", TTL_SECONDS)

    every = ["", "/u", "b", "b/u", "ä", "ä/u"]
    assert every == await store.scopes()
    assert every == await views[3].scopes()
    assert every[:2] == await store.scopes(limit=2)
    assert every[2:] == await store.scopes(after="/u")
    assert every[1:] == await store.scopes(after="")
    assert [] == await store.scopes(after="ä/u")
