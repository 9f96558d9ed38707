"""A run as it is moved: read whole and checked, held while it is, and put elsewhere whole."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    RunError,
    RunIdReused,
    RunNotFound,
    StoreDamaged,
    StoreError,
)
from agentkit.core.contracts.heads import TERMINAL_STATUSES, Head, Row, RunStatus, Summary
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.journal.codec import damaged, decode_rows, encode_entry
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.founding import claim_new, found, give_back
from agentkit.state.journal.journal import PAGE_ROWS, Journal, missing
from agentkit.state.journal.lease import LEASE_SECONDS, Tenure, heartbeat_for
from agentkit.state.journal.owner import drive_of, is_dead, owner_id

__all__ = ["Put", "WholeRun", "held", "put", "read_whole", "stood_in"]

Put = Literal["copied", "there"]
"""What became of a run that was put: it is in the store now, or it was there already, the same."""

_HELD_SECONDS = 3600.0
_MOVER, _OVER = "move-", "move-over-"
"""How the drive of an owner begins that holds a run to move it; and one that took it from a worker
that died, which is recorded by the first entry of its epoch.
"""


class WholeRun(NamedTuple):
    """All that a store has of a run, checked.

    Args:
        run: its id.
        rows: the stored bytes of all entries.
        epoch: of the last entry; of a tombstone, that of its head.
        status: see `RunStatus`.
        summary: of the head.
        tombstone: its entries are gone, the summary is what is left.
    """

    run: str
    rows: Sequence[Row]
    epoch: int
    status: RunStatus
    summary: Summary
    tombstone: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing comes after what is here."""
        return self.status in TERMINAL_STATUSES

    @property
    def check(self) -> bytes:
        """Checksum of the last entry; empty for a tombstone."""
        return self.rows[-1].check if self.rows else b""


async def read_whole(view: JournalPort, run: str) -> WholeRun:
    """Read and check the run.

    Raises:
        RunNotFound: it is not there.
        RunExpired: its entries are gone, and it has not ended.
        JournalDamaged: an entry is missing, changed or unreadable, or the head tells of another.
        JournalTooNew: a newer release wrote one.
    """
    while True:
        head = await view.head(run)
        if head is None or not head.seq:
            message = f"run {run!r} does not exist in this store and scope"
            raise RunNotFound(message, run_id=run)
        if head.tombstone:
            return _tombstone(head)
        whole = await _read(view, run)
        if len(whole.rows) >= head.seq:
            if whole.rows[head.seq - 1].check != head.check:
                raise damaged(run, head.seq, "its checksum is not the one that the head tells")
            return whole
        again = await view.head(run)
        if again is not None and (again.seq, again.check) == (head.seq, head.check):
            raise missing(head, at=len(whole.rows) + 1)


@contextlib.asynccontextmanager
async def held(view: JournalPort, run: str, *, clock: ClockPort) -> AsyncIterator[WholeRun]:
    """The run, which nobody works on while it is looked at: one that has not ended is held by its
    lease. Nothing is written to a run that cannot be read.

    A worker that died and never let go of its lease leaves no other trace of the answer that it may
    have bought. So that it was taken over is recorded first, as by any worker that takes over.

    Raises:
        RunInUse: somebody works on it.
        RunError: see `read_whole`.
    """
    whole = await read_whole(view, run)
    if whole.ended:
        yield whole
        return
    heartbeat = heartbeat_for(view)
    sent_at = heartbeat.clock.elapsed()
    head = await view.head(run) or Head(run)
    died = _died(head, whole)
    lease = await view.acquire(
        run,
        owner_id(f"{_OVER if died else _MOVER}{run}"[:64]),
        LEASE_SECONDS,
        supersede=head.epoch if is_dead(head.owner, known_drives=known) else None,
    )
    tenure = Tenure(lease, sent_at=sent_at, clock=heartbeat.clock)
    tenure.busy(_HELD_SECONDS)
    heartbeat.watch(view, tenure)
    journal = Journal(view, RunState(run), clock=clock, lease=lease)
    try:
        await journal.refresh()
        if died and lease.took_over and journal.state.started is not None:
            recoveries = journal.state.recoveries + 1 if _moves(head) else lease.head.recoveries
            taken = e.LeaseTaken(lease.owner, "takeover", recoveries)
            await journal.commit(lambda _: (taken,), lane="")
        yield await read_whole(view, run)
    finally:
        heartbeat.unwatch(tenure)
        with contextlib.suppress(StoreError, RunError):  # it lapses by itself
            await journal.commit(lambda _: (), lane="", release=lambda _: True)


async def put(view: JournalPort, whole: WholeRun, *, clock: ClockPort) -> Put:
    """Put the run into a store, all of it in one append, and read it back. Repeating is harmless.

    A tombstone becomes one again: what is left of the run, without entries.

    Raises:
        RunIdReused: the store has other entries under this id. Nothing was changed.
        RunInUse: somebody holds that id there.
        StoreDamaged: what is read back is not what was written.
    """
    run = whole.run
    there = await view.head(run)
    if there is not None and there.seq:
        return await _compared(view, whole, there)
    lease = await claim_new(view, run, owner_id(f"copy-{run}"[:64]), above=whole.epoch)
    try:
        rows = [stood_in(whole)] if whole.tombstone else whole.rows
        await found(view, lease, rows, whole.summary, clock=clock)
    except BaseException:
        await give_back(view, lease, clock=clock)
        raise
    if whole.tombstone:
        await view.entomb(run, updated_at=whole.summary.updated_at)
    await _verify(view, whole)
    return "copied"


def stood_in(tombstone: WholeRun) -> Row:
    """The entry that a tombstone has for the moment between its append and its entombing: how the
    run ended. A process that is killed then leaves a run that has ended in the same way.
    """
    state = RunState.unread(
        Head(tombstone.run, seq=1, epoch=tombstone.epoch, summary=tombstone.summary)
    )
    end = state.end if state.end is not None else e.Failed("")
    entry = e.Entry(1, "", tombstone.epoch, "", tombstone.summary.updated_at, end)
    return encode_entry(entry, before=b"", run_id=tombstone.run)


def _moves(head: Head) -> bool:
    return drive_of(head.owner).startswith(_MOVER)


def _died(head: Head, whole: WholeRun) -> bool:
    """Whether a worker left the run without a word, and nobody has recorded it yet. Who only moves
    runs does nothing that must be known of, and may be killed as often as it likes.
    """
    if not _moves(head):
        return bool(head.owner)
    return drive_of(head.owner).startswith(_OVER) and whole.epoch < head.epoch


async def _read(view: JournalPort, run: str) -> WholeRun:
    state = RunState(run)
    rows: list[Row] = []
    while page := await view.read(run, after=state.seq, limit=PAGE_ROWS):
        decoded = decode_rows(page, after=state.seq, before=state.check, run_id=run)
        for entry, check in decoded:
            state.apply(entry, check)
        rows += page
    return WholeRun(run, rows, state.epoch, state.status, state.summary())


def _tombstone(head: Head) -> WholeRun:
    summary = head.summary or Summary("saved")
    return WholeRun(head.run, (), head.epoch, summary.status, summary, tombstone=True)


async def _compared(view: JournalPort, whole: WholeRun, there: Head) -> Put:
    """The run is there already, from an earlier attempt or in its own right."""
    run = whole.run
    if there.tombstone or whole.tombstone:
        if there.summary != whole.summary:
            raise _other(
                whole,
                f"it has ended otherwise: {_end(there.summary)} there, {_end(whole.summary)} here",
            )
        if whole.tombstone and await view.read(run) == [stood_in(whole)]:
            await view.entomb(run, updated_at=whole.summary.updated_at)
            await _verify(view, whole)
        return "there"
    rows = await _rows(view, run)
    same = next(
        (n for n, (one, other) in enumerate(zip(rows, whole.rows, strict=False)) if one != other),
        min(len(rows), len(whole.rows)),
    )
    if same == len(rows) == len(whole.rows):
        return "there"
    if same == len(whole.rows):
        raise _other(whole, f"it has gone on there: {len(rows)} entries, here {same}")
    if same == len(rows):
        raise _other(whole, f"an older copy of it is there: {same} entries, here {len(whole.rows)}")
    raise _other(whole, f"it has other entries there, from entry {same + 1} on")


def _end(summary: Summary | None) -> str:
    """How and when, for messages."""
    if summary is None:
        return "not begun"
    try:
        at = datetime.fromtimestamp(summary.updated_at / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, OSError, ValueError):
        at = f"{summary.updated_at} ms"
    return f"{summary.status} at {at}"


def _other(whole: WholeRun, why: str) -> RunIdReused:
    message = (
        f"run {whole.run!r} is not copied over the one of the destination: {why}. Nothing was "
        f"changed; delete that one there if it is of no use."
    )
    return RunIdReused(message, run_id=whole.run)


async def _verify(view: JournalPort, whole: WholeRun) -> None:
    """Compare what the store says now with what was put; it may have gone on since."""
    head = await view.head(whole.run)
    rows = await _rows(view, whole.run)
    if head is None:
        wrong = "it is not there"
    elif whole.tombstone:
        wrong = "" if head.summary == whole.summary else "its summary is another one"
    elif list(whole.rows) != rows[: len(whole.rows)]:
        pairs = zip(whole.rows, [*rows, *[None] * len(whole.rows)], strict=False)
        at = next(n for n, (one, other) in enumerate(pairs, 1) if one != other)
        wrong = f"entry {at} is another one"
    elif head.seq == len(whole.rows) and (head.check, head.summary) != (whole.check, whole.summary):
        wrong = "its head tells of another end"
    else:
        wrong = "" if head.seq >= len(whole.rows) else f"its head counts {head.seq} entries"
    if wrong:
        raise StoreDamaged(
            f"run {whole.run!r} was put into {view.location} and reads back otherwise: {wrong}. "
            f"Do not use it there; look at that store with agentkit doctor."
        )


async def _rows(view: JournalPort, run: str) -> list[Row]:
    rows: list[Row] = []
    while page := await view.read(run, after=len(rows), limit=PAGE_ROWS):
        rows += page
        if page[-1].seq != len(rows):
            break  # one is missing, and comparing says so
    return rows
