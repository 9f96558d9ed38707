"""Tombstones: what stays of ended runs when their entries go."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts.errors import NoteRefused
from agentkit.core.contracts.heads import RunStatus
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import SystemClock
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, rows, started, summary

retention = Subject("retention", "journal")

_ENDED_AT = 2_000
_ENDED: tuple[RunStatus, ...] = ("done", "failed", "cancelled")
_OPEN: tuple[RunStatus, ...] = ("submitted", "running", "suspended", "parked", "saved")
_EXPIRY_SECONDS = 0.4
_PATIENCE_SECONDS = 30.0


async def _ended(
    store: JournalPort, run: str, status: RunStatus = "done", *, detail: bytes = b'{"x":1}'
) -> None:
    lease = await started(store, run, 2)
    last = summary(status, updated_at=_ENDED_AT, detail=detail)
    await store.append(run, rows(3), after=2, lease=lease, summary=last, release=True)


@retention.check("JournalPort.entomb", "tombstones")
async def an_entombed_run_keeps_its_head_and_no_entry(it: Bench) -> None:
    """All that the head said stays, but for the checksum of the last entry."""
    store = it.store
    for status in _ENDED:
        await _ended(store, status, status)
        before = await store.head(status)
        holds("a run with its entries is no tombstone", true=before and not before.tombstone)

        done = await store.entomb(status, updated_at=_ENDED_AT)

        after = await store.head(status)
        equal("entomb of an ended run", expected=True, actual=done)
        holds("the head is a tombstone", true=after and after.tombstone)
        expected = before and msgspec.structs.replace(before, check=b"")
        equal("the head", expected=expected, actual=after)
        equal("the rows", expected=[], actual=await store.read(status))
        listed, _ = await store.list_runs(status=status)
        equal("the list", expected=[status], actual=[one.run for one in listed])
        again = await store.entomb(status, updated_at=_ENDED_AT)
        equal("entomb of a tombstone", expected=False, actual=again)


@retention.check("JournalPort.entomb", "tombstones")
async def a_tombstone_takes_no_note_and_can_be_deleted(it: Bench) -> None:
    """An ended run does not come back, and goes like any other."""
    await _ended(it.store, "r")
    await it.store.entomb("r", updated_at=_ENDED_AT)

    note = it.store.append("r", rows(4), after=3, lease=None, summary=summary())
    await refused(NoteRefused, note, what="a note on a tombstone")
    old = it.store.append("r", rows(1), after=0, lease=None, summary=summary())
    await refused(NoteRefused, old, what="an entry that once was there, on a tombstone")

    equal("deleted", expected=True, actual=await it.store.delete_run("r"))
    equal("the head", expected=None, actual=await it.store.head("r"))


@retention.check("JournalPort.entomb", "tombstones")
async def a_run_that_has_not_ended_is_not_entombed(it: Bench) -> None:
    """Whatever the caller believes, entries of an open run stay."""
    for status in _OPEN:
        await _ended(it.store, status, status)

        done = await it.store.entomb(status, updated_at=_ENDED_AT)

        equal(f"entomb of a {status} run", expected=False, actual=done)
        equal("the rows", expected=rows(1, 3), actual=await it.store.read(status))


@retention.check("JournalPort.entomb", "tombstones")
async def only_what_the_caller_saw_is_entombed(it: Bench) -> None:
    """His knowledge of an ended run must still be true, and nobody at work on it."""
    store = it.store
    await _ended(store, "r")

    for run, at in (("r", _ENDED_AT - 1), ("r", _ENDED_AT + 1), ("r", 0), ("unknown", _ENDED_AT)):
        done = await store.entomb(run, updated_at=at)
        equal(f"entomb of {run!r} as of {at}", expected=False, actual=done)
    foreign = await store.scoped(Scope("b")).entomb("r", updated_at=_ENDED_AT)
    equal("entomb from another scope", expected=False, actual=foreign)
    await store.acquire("claimed", "worker", TTL_SECONDS)
    equal("entomb of a claim", expected=False, actual=await store.entomb("claimed", updated_at=0))
    lease = await store.acquire("r", "reader", it.brief_seconds)
    await it.renew({"r": msgspec.structs.replace(lease, ttl_seconds=TTL_SECONDS)})
    done = await store.entomb("r", updated_at=_ENDED_AT)
    equal("entomb of a run that is held", expected=False, actual=done)
    equal("the rows", expected=rows(1, 3), actual=await store.read("r"))
    await it.renew({"r": lease})
    await it.outlive(lease)

    done = await store.entomb("r", updated_at=_ENDED_AT)
    equal("entomb once the lease has lapsed", expected=True, actual=done)


@retention.check("JournalPort.entomb", "tombstones")
async def entombing_takes_the_entries_of_one_run_alone(it: Bench) -> None:
    """Those of other runs and of other scopes stay."""
    await _ended(it.store, "r")
    await _ended(it.store, "s")
    await _ended(it.store.scoped(Scope("b")), "r")

    await it.store.entomb("r", updated_at=_ENDED_AT)

    equal("rows of the other run", expected=rows(1, 3), actual=await it.store.read("s"))
    found = await it.store.scoped(Scope("b")).read("r")
    equal("rows in the other scope", expected=rows(1, 3), actual=found)


@retention.check("JournalPort.entomb", "tombstones")
async def a_tombstone_can_be_claimed_and_released(it: Bench) -> None:
    """Who looks at an ended run under a lease finds the head as it was."""
    await _ended(it.store, "r")
    await it.store.entomb("r", updated_at=_ENDED_AT)
    before = await it.store.head("r")

    lease = await it.store.acquire("r", "reader", TTL_SECONDS)
    last = before.summary if before and before.summary else summary()
    head = await it.store.append("r", [], after=3, lease=lease, summary=last, release=True)

    expected = before and msgspec.structs.replace(before, epoch=lease.epoch)
    equal("whether it was a takeover", expected=False, actual=lease.took_over)
    equal("the head", expected=expected, actual=head)
    holds("it is a tombstone still", true=head.tombstone)


@retention.check("Head", "expiry")
async def entries_of_an_ended_run_expire_and_those_of_others_do_not(it: Bench) -> None:
    """What is left is a tombstone with the whole summary; an open run, a held one and one that
    ended with a call in doubt keep all.
    """
    store = it.expiring(seconds=_EXPIRY_SECONDS)
    await _ended(store, "ended")
    await _ended(store, "open", "suspended")
    await _ended(store, "doubt", "cancelled", detail=b'{"in_doubt":["pay"]}')
    lease = await started(store, "held")
    before = await store.head("ended")

    clock = SystemClock()
    begun = clock.elapsed()
    while await store.read("ended"):
        holds(
            "its entries go within half a minute", true=clock.elapsed() - begun < _PATIENCE_SECONDS
        )
        await clock.sleep(0.05)
    after = await store.head("ended")

    holds("the head is a tombstone", true=after and after.tombstone)
    expected = before and msgspec.structs.replace(before, check=b"")
    equal("the head", expected=expected, actual=after)
    doubt = await store.read("doubt")
    equal("rows of the run that ended in doubt", expected=rows(1, 3), actual=doubt)
    equal("rows of the open run", expected=rows(1, 3), actual=await store.read("open"))
    equal("rows of the held run", expected=rows(1), actual=await store.read("held"))
    note = store.append("ended", rows(4), after=3, lease=None, summary=summary())
    await refused(NoteRefused, note, what="a note on an ended run whose entries have expired")
    more = await store.append("held", rows(2), after=1, lease=lease, summary=summary())
    equal("where the held run goes on", expected=2, actual=more.seq)
