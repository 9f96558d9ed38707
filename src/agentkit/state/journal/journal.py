"""The one in-process appender of a run: reads, folds, appends, and folds what it appended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from agentkit.core.contracts.entries import Body, Entry
from agentkit.core.contracts.errors import (
    HeadMoved,
    JournalDamaged,
    LeaseLost,
    RunExpired,
    RunNotFound,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import TERMINAL_STATUSES, Head, Lease, Row
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.journal.codec import damaged, decode_rows, encode_entry
from agentkit.state.journal.fold import RunState

__all__ = [
    "APPEND_RETRY_SECONDS",
    "NOTE_ATTEMPTS",
    "PAGE_ROWS",
    "Build",
    "Journal",
    "append_note",
    "insist",
    "load",
    "load_known",
    "missing",
]

APPEND_RETRY_SECONDS = (0.05, 0.5, 2.0)
"""Waits between attempts at an append whose store failed; repeating one is idempotent."""

NOTE_ATTEMPTS = 50
"""How often a note is placed anew when the head moved under it."""

PAGE_ROWS = 5_000
"""Rows read at a time."""

_T = TypeVar("_T")

Build: TypeAlias = Callable[[RunState], Sequence[Body]]
"""Decides on the newest state what to append; called again when the head moved."""


async def load(port: JournalPort, run_id: str, *, upto: int | None = None) -> RunState:
    """The state of the run, folded from its journal (up to and including seq `upto`); empty for
    an unknown run. Of a tombstone it is what the head keeps: how the run ended, and its usage.

    Raises:
        JournalDamaged: see `codec.decode_rows`; also where the head, which moves with every append,
            counts more entries than there are, or tells of another last one.
        JournalTooNew: see `codec.decode_rows`.
        RunExpired: its entries are gone, and it has not ended.
    """
    head = await port.head(run_id) if upto is None else None
    if head is not None and head.tombstone:
        return RunState.unread(head)
    state = RunState(run_id)
    await _catch_up(port, state, upto)
    if head is None or state.seq > head.seq or (state.seq, state.check) == (head.seq, head.check):
        return state
    again = await port.head(run_id)
    if again is not None and (again.seq, again.check) == (head.seq, head.check):
        if state.seq < head.seq:
            raise missing(head, at=state.seq + 1)
        raise damaged(run_id, state.seq, "its checksum is not the one that the head tells")
    return await load(port, run_id)  # the run was deleted while it was read


def missing(head: Head, *, at: int) -> RunExpired | JournalDamaged:
    """The error for a run that lacks the entries from `at` on that its head counts."""
    status = head.summary.status if head.summary is not None else "saved"
    if at > 1 or status in TERMINAL_STATUSES:
        return damaged(head.run, at, f"entry {at} is missing")
    message = (
        f"run {head.run!r} has expired: its head is there and says {status}, its entries are gone. "
        f"Restore them from a backup, or delete the run."
    )
    return RunExpired(message, run_id=head.run)


async def load_known(port: JournalPort, run_id: str) -> RunState:
    """Like `load`.

    Raises:
        RunNotFound: the run has no entry in this scope.
    """
    state = await load(port, run_id)
    if state.seq == 0:
        message = f"run {run_id!r} does not exist in this store and scope; check id, URL and scope"
        raise RunNotFound(message, run_id=run_id)
    return state


async def append_note(
    port: JournalPort, run_id: str, build: Build, *, note_id: str, lane: str, clock: ClockPort
) -> RunState:
    """Append what `build` says without a lease, on the newest state; nothing if it says nothing.

    Returns the state with the note.

    Raises:
        NoteRefused: the run has ended.
        StoreUnreachable: the head moved on each of `NOTE_ATTEMPTS` attempts.
    """
    for _ in range(NOTE_ATTEMPTS):
        journal = Journal(port, await load(port, run_id), clock=clock, lease=None)
        try:
            await journal.commit(build, lane=lane, note_id=note_id, follow=False)
        except HeadMoved:
            continue
        return journal.state
    message = f"run {run_id!r}: a note found no place in {NOTE_ATTEMPTS} attempts; try again"
    raise StoreUnreachable(message)


async def insist(
    request: Callable[[], Awaitable[_T]],
    *,
    clock: ClockPort,
    hurry: Callable[[], bool] = lambda: False,
) -> _T:
    """The answer to a request that may be repeated: a store that fails is asked again after each
    of the `APPEND_RETRY_SECONDS`, or not at all where there is `hurry`.

    Raises:
        StoreUnreachable: it failed each time.
    """
    for seconds in APPEND_RETRY_SECONDS:
        try:
            return await request()
        except StoreUnreachable:
            if hurry():
                raise
            await clock.sleep(seconds)
    return await request()


class _Unsettled(NamedTuple):
    """An append that the store has not confirmed yet."""

    rows: list[Row]
    after: int
    build: Build
    lane: str
    note_id: str


class Journal:
    """Appends for one run, one append at a time, and keeps `state` the fold of what is durable.

    Args:
        port: the store, looking at the run's scope.
        state: the fold of the run so far.
        clock: for the time shown beside each entry.
        lease: the right to append; `None` for notes only.

    Attributes:
        state: see above.
        fenced: the store refused the lease: there is nothing more to say here, nor to release.
        released: the lease went with the last append.
    """

    def __init__(
        self, port: JournalPort, state: RunState, *, clock: ClockPort, lease: Lease | None
    ) -> None:
        self.state = state
        self.fenced = False
        self.released = False
        self._port = port
        self._clock = clock
        self._lease = lease
        self._lock = asyncio.Lock()
        self._unsettled: _Unsettled | None = None
        self._refused: _Unsettled | None = None
        self._overtaken = False
        self._cancelled: asyncio.CancelledError | None = None

    async def commit(
        self,
        build: Build,
        *,
        lane: str,
        release: Callable[[Sequence[Body]], bool] | None = None,
        note_id: str = "",
        follow: bool = True,
    ) -> list[Entry]:
        """Append what `build` decides on the newest state, in one durable unit.

        When the head moved (a note came in), the tail is folded and `build` is asked again, so
        outcomes are kept and intents are decided anew; with `follow=False` `HeadMoved` is raised.
        `release` says for the built entries whether the lease goes in the same unit; asked with
        no entries, it may release alone.

        A caller that is cancelled, also while it waits for another append of this journal, gets
        its cancellation once what it has to say is durable.

        Returns the durable entries; empty when nothing was to be said.
        """
        self._cancelled = await _taken(self._lock)
        try:
            entries = await self._commit(build, lane, note_id, release=release, follow=follow)
        finally:
            cancelled, self._cancelled = self._cancelled, None
            self._lock.release()
        if cancelled is not None:
            raise cancelled
        return entries

    @property
    def port(self) -> JournalPort:
        """The store."""
        return self._port

    async def note(self, build: Build, *, note_id: str, lane: str) -> None:
        """Append without the lease what `build` says; see `append_note`."""
        await append_note(
            self._port, self.state.run_id, build, note_id=note_id, lane=lane, clock=self._clock
        )

    async def refresh(self) -> None:
        """Fold what others appended since; while an append is in the air the next one sees to it.

        Raises:
            LeaseLost: another worker has the run.
        """
        async with self._lock:
            if not self._overtaken and self._unsettled is None:
                await _catch_up(self._port, self.state, None)
                self._stop_if_replaced()

    async def _commit(
        self,
        build: Build,
        lane: str,
        note_id: str,
        *,
        release: Callable[[Sequence[Body]], bool] | None,
        follow: bool,
    ) -> list[Entry]:
        mine: _Unsettled | None = None
        while True:
            if self._overtaken:
                try:
                    self.state = await load(self._port, self.state.run_id)
                except BaseException:  # cut off: the next commit decides on it
                    self._refused = self._refused or mine
                    raise
                self._overtaken = False
            self._stop_if_replaced()
            try:
                await self._settle()
                bodies = build(self.state)
                releasing = release is not None and release(bodies)
                if not bodies and not releasing:
                    return []
                return await self._append(build, bodies, lane, note_id, release=releasing)
            except HeadMoved:
                # The state holds entries that the store refused; nothing may build on it, also
                # if reading the newest one is cut off and only the next commit gets to it.
                mine, self._unsettled = self._unsettled, None
                self._overtaken = True
                if not follow:
                    raise

    def _stop_if_replaced(self) -> None:
        """A takeover that was read is as good as a refused append: nothing may be decided here on
        a state that another worker has moved on.
        """
        lease, state = self._lease, self.state
        if lease is not None and state.epoch > lease.epoch:
            self.fenced = True
            message = (
                f"run {state.run_id!r}: the lease of epoch {lease.epoch} is gone, it is at epoch "
                f"{state.epoch} now. This worker must stop acting for the run."
            )
            raise LeaseLost(message, run_id=state.run_id)

    async def _append(
        self, build: Build, bodies: Sequence[Body], lane: str, note_id: str, *, release: bool
    ) -> list[Entry]:
        """The fold takes the entries in first, because the head's summary is made from it. Until
        the store has confirmed them they are `_unsettled` and the next commit sends them first.
        """
        after = self.state.seq
        entries, rows = self._entries(bodies, lane, note_id)
        self._unsettled = _Unsettled(rows, after, build, lane, note_id)
        await self._send(rows, after, release=release)
        return entries

    def _entries(
        self, bodies: Sequence[Body], lane: str, note_id: str
    ) -> tuple[list[Entry], list[Row]]:
        """The next entries, taken into the state."""
        state = self.state
        after = state.seq
        epoch = self._lease.epoch if self._lease is not None else state.epoch
        at = int(self._clock.now() * 1000)
        entries: list[Entry] = []
        rows: list[Row] = []
        check = state.check
        for seq, body in enumerate(bodies, after + 1):
            identity = f"{note_id}.{seq - after}" if note_id and seq > after + 1 else note_id
            entry = Entry(seq, identity, epoch, lane, at, body)
            row = encode_entry(entry, before=check, run_id=state.run_id)
            check = row.check
            entries.append(entry)
            rows.append(row)
        for entry, row in zip(entries, rows, strict=True):
            state.apply(entry, row.check)
        return entries, rows

    async def _settle(self) -> None:
        """Make sure of rows whose append was cut off between two attempts. Where a note has taken
        their place, what they said is decided anew, so that no outcome is lost.
        """
        if self._unsettled is not None:
            rows, after, *_ = self._refused = self._unsettled
            await self._send(rows, after, release=False)
        elif self._refused is not None:
            _, _, build, lane, note_id = self._refused
            if bodies := build(self.state):
                await self._append(build, bodies, lane, note_id, release=False)
        self._refused = None

    async def _send(self, rows: Sequence[Row], after: int, *, release: bool) -> Head:
        """Send until the store has answered. Cancelled or failed in between, the very same rows
        are sent again: the store answers by comparing them with what it holds. The cancellation
        counts once the commit has come to its end.
        """
        head = await insist(
            lambda: self._sent(rows, after, release=release),
            clock=self._clock,
            hurry=lambda: self._cancelled is not None,
        )
        self._unsettled = None
        self.released = self.released or release
        return head

    async def _sent(self, rows: Sequence[Row], after: int, *, release: bool) -> Head:
        while True:
            try:
                return await self._port.append(
                    self.state.run_id,
                    rows,
                    after=after,
                    lease=self._lease,
                    summary=self.state.summary(),
                    release=release,
                )
            except asyncio.CancelledError as exc:
                self._cancelled = exc
            except LeaseLost:
                self.fenced = True
                raise


async def _taken(lock: asyncio.Lock) -> asyncio.CancelledError | None:
    """Take the lock, however often the caller is cancelled while it waits; with the last time."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await lock.acquire()
        except asyncio.CancelledError as exc:
            cancelled = exc
        else:
            return cancelled


async def _catch_up(port: JournalPort, state: RunState, upto: int | None) -> None:
    while True:
        limit = PAGE_ROWS if upto is None else min(PAGE_ROWS, upto - state.seq)
        if limit <= 0:
            return
        rows = await port.read(state.run_id, after=state.seq, limit=limit)
        decoded = decode_rows(rows, after=state.seq, before=state.check, run_id=state.run_id)
        for entry, check in decoded:
            state.apply(entry, check)
        if len(rows) < limit:
            return
