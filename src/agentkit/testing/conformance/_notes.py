"""Notes: what anybody may append without holding the lease."""

from __future__ import annotations

import asyncio

from agentkit.core.contracts.errors import HeadMoved, NoteRefused, StoreMisused
from agentkit.core.contracts.heads import Row, RunStatus
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, refused
from agentkit.testing.conformance.materials import plain, rows, started, summary

notes = Subject("notes", "journal")

_ENDED: tuple[RunStatus, ...] = ("done", "failed", "cancelled")
_OPEN: tuple[RunStatus, ...] = ("submitted", "running", "suspended", "parked", "saved")


@notes.check("JournalPort.append")
async def anybody_may_leave_a_note(it: Bench) -> None:
    """A note needs no lease, and takes none away; the holder is told that the head moved."""
    store = it.store
    lease = await started(store, "r", 1)

    noted = await store.append("r", rows(2), after=1, lease=None, summary=summary())
    behind = store.append("r", rows(2, text="act"), after=1, lease=lease, summary=summary())
    await refused(HeadMoved, behind, what="the holder's append at the place of the note")
    acted = await store.append("r", rows(3), after=2, lease=lease, summary=summary())

    equal(
        "owner and epoch after the note",
        expected=("worker", lease.epoch),
        actual=(noted.owner, noted.epoch),
    )
    equal("where the holder's next append is", expected=3, actual=acted.seq)


@notes.check("JournalPort.append")
async def a_note_may_come_first(it: Bench) -> None:
    """A run that does not exist begins with the note, without an epoch; and only at its begin."""
    store = it.store
    head = await store.append("r", rows(1), after=0, lease=None, summary=summary("saved"))

    equal(
        "seq, epoch and owner",
        expected=(1, 0, ""),
        actual=(head.seq, head.epoch, head.owner),
    )
    equal("the head afterwards", expected=head, actual=await store.head("r"))
    late = store.append("other", rows(3), after=2, lease=None, summary=summary())
    await refused(HeadMoved, late, what="a note after 2, of a run that does not exist")
    equal("the run of that note", expected=None, actual=await store.head("other"))


@notes.check("JournalPort.append")
async def two_first_notes_do_not_overwrite_each_other(it: Bench) -> None:
    """Of many notes for one place one is in and the others are told to look again."""

    async def note(text: str) -> list[Row]:
        given = rows(1, text=text)
        await it.store.append("r", given, after=0, lease=None, summary=summary("saved"))
        return given

    found = await asyncio.gather(*map(note, "abcdefgh"), return_exceptions=True)

    errors = [type(one).__name__ for one in found if isinstance(one, BaseException)]
    winners = [one for one in found if not isinstance(one, BaseException)]
    equal("what seven of the eight were told", expected=["HeadMoved"] * 7, actual=errors)
    equal("the rows", expected=winners, actual=[await it.store.read("r")])


@notes.check("JournalPort.append")
async def an_ended_run_takes_no_notes(it: Bench) -> None:
    """A note on a terminal run is refused, wherever it would stand; a repeated one is not."""
    store = it.store
    for status in _ENDED:
        lease = await started(store, status, 1)
        await store.append(status, rows(2), after=1, lease=None, summary=summary())
        end = summary(status)
        await store.append(status, rows(3), after=2, lease=lease, summary=end, release=True)
        before = plain(await store.head(status))

        for after in (1, 3):
            late = store.append(
                status, rows(after + 1, text="late"), after=after, lease=None, summary=summary()
            )
            await refused(NoteRefused, late, what=f"a note after {after}, of a run {status} at 3")
        again = await store.append(status, rows(2), after=1, lease=None, summary=summary())

        equal("the head of the repeated note", expected=before, actual=plain(again))
        equal("the rows", expected=rows(1, 3), actual=await store.read(status))


@notes.check("JournalPort.append")
async def a_run_that_has_not_ended_takes_notes(it: Bench) -> None:
    """Waiting for somebody is what notes are for."""
    store = it.store
    for status in _OPEN:
        lease = await started(store, status, 1)
        await store.append(
            status, rows(2), after=1, lease=lease, summary=summary(status), release=True
        )

        head = await store.append(status, rows(3), after=2, lease=None, summary=summary())

        equal(f"where a note on a {status} run is", expected=3, actual=head.seq)


@notes.check("JournalPort.append")
async def an_append_without_lease_must_bring_something(it: Bench) -> None:
    """Releasing needs the lease, and a note needs an entry."""
    empty = it.store.append("r", [], after=0, lease=None, summary=summary())
    await refused(StoreMisused, empty, what="a note without an entry")
    releasing = it.store.append("r", rows(1), after=0, lease=None, summary=summary(), release=True)
    await refused(StoreMisused, releasing, what="a note that releases")

    equal("the run", expected=None, actual=await it.store.head("r"))
