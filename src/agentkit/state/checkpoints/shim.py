"""A full journal over somebody's five-method store, as far as five methods reach.

Each append becomes one checkpoint of the slot `{run}:journal`; each step is also saved in the
producer's own slot, so that the store shows what its author expects. A finished run is saved once
more in `{run}:done`, and then its other slots are deleted. Leases live in this process only: such
a store cannot fence a second one, and `UnfencedStoreWarning` says so once.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import warnings
import weakref
from collections.abc import Collection, Sequence
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from agentkit.core.contracts.errors import StoreDamaged, StoreMisused
from agentkit.core.contracts.heads import (
    TERMINAL_STATUSES,
    Claimable,
    Head,
    Lease,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.ports import Checkpoint, CheckpointPort, CheckpointStatus
from agentkit.core.contracts.slots import slot_of
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters.memory import InMemoryCheckpointStore
from agentkit.state.checkpoints.adapters.wrapper import StoreWrapper
from agentkit.state.checkpoints.slots_mixin import checkpoint_of
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.fold import RunState

__all__ = ["ShimJournal", "UnfencedStoreWarning"]


class UnfencedStoreWarning(UserWarning):
    """A five-method store holds runs: nothing keeps a second process from driving the same one."""


class _Kept(msgspec.Struct, frozen=True):
    """One append as the store keeps it: rows as (seq, text, checksum in hex), and the head."""

    rows: tuple[tuple[int, str, str], ...]
    epoch: int
    owner: str
    recoveries: int
    summary: Summary


class _Run:
    """What this process knows of a run: how many appends the store has, the fold of them, and the
    newest snapshot that is in the producer's own slot.
    """

    def __init__(self, run: str) -> None:
        self.version = 0
        self.shown = 0
        self.state = RunState(run)
        self.rows: list[Row] = []


class ShimJournal(StoreWrapper):
    """A `JournalPort` whose truth is a five-method store; make it with `over`.

    A memory store in front answers for leases, order and idempotent appends within the process;
    every append is in the five-method store before the memory store, and so the caller, has it.
    """

    def __init__(self, port: CheckpointPort) -> None:
        super().__init__(InMemoryCheckpointStore())
        self._port = port
        self._runs: dict[str, _Run] = {}
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Locks]
        self._turns = weakref.WeakKeyDictionary()
        self._prefix = ""
        self._whole: ShimJournal | None = None

    @classmethod
    def over(cls, port: CheckpointPort) -> ShimJournal:
        """The shim of `port`: one for each port, so that its runs share their leases.

        Raises:
            StoreMisused: `port` lacks one of the five methods.
        """
        checked: object = port
        if not isinstance(checked, CheckpointPort):
            names = "save, latest, at_version, list_versions, delete"
            message = f"{type(port).__name__} is no store: it must have the methods {names}"
            raise StoreMisused(message)
        with _lock:
            shim = _shims.get(id(port))
            if shim is None or shim._port is not port:  # noqa: SLF001 - our own class
                shim = _shims[id(port)] = cls(port)
            if type(port).__name__ not in _warned:
                _warned.add(type(port).__name__)
                text = (
                    f"{type(port).__name__} has five methods and cannot fence: run ids must be "
                    "driven by one process at a time. Use SQLite, or write the full port."
                )
                warnings.warn(text, UnfencedStoreWarning, stacklevel=4)
        return shim

    @property
    def location(self) -> str:
        """A name of this very port object; five methods do not tell where the data is."""
        return f"five-method:{type(self._port).__name__}:{id(self._port):x}"

    def scoped(self, scope: Scope) -> ShimJournal:
        """The same store, looking at another scope; runs of it have the scope in their name."""
        view = copy.copy(self)
        view.inner = self.inner.scoped(scope)
        view._prefix = quote(scope.key, safe="")  # noqa: SLF001 - a copy of our own
        view._whole = self  # noqa: SLF001 - `over` finds the shim for as long as a view lives
        return view

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """See `JournalPort.acquire`; who holds a lease in another process is not known."""
        async with self._turn(run):
            head = await self.inner.head(run)
            if head is None or not head.held:
                await self._restore(run)
            return await self.inner.acquire(
                run, owner, ttl_seconds, supersede=supersede, above=above
            )

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """See `JournalPort.append`; durable as far as the five-method store is.

        Whatever fails or is cut off on the way, the same append can be repeated.
        """
        async with self._turn(run):
            known = self._runs.get(self._name(run)) or await self._restore(run)
            head = await self.inner.head(run)
            if _fits(head, after, lease):
                owner, epoch = ("", 0) if head is None else (head.owner, head.epoch)
                owner = "" if release else owner  # a note leaves the lease where it is
                kept = _Kept(tuple(map(_plain, rows)), epoch, owner, summary.recoveries, summary)
                await self._save(run, known, kept)
            head = await self.inner.append(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )
            self._take(known, [row for row in rows if row.seq > known.state.seq])
            await self._mirror(run, known, summary)
            return head

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """See `JournalPort.read`."""
        await self._known(run)
        return await self.inner.read(run, after=after, limit=limit)

    async def head(self, run: str) -> Head | None:
        """See `JournalPort.head`."""
        await self._known(run)
        return await self.inner.head(run)

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,  # noqa: ARG002 - the port's signature
        agent: str | None = None,  # noqa: ARG002 - the port's signature
        limit: int = 100,  # noqa: ARG002 - the port's signature
        cursor: str = "",  # noqa: ARG002 - the port's signature
    ) -> tuple[list[RunSummary], str]:
        """Not possible with five methods.

        Raises:
            StoreMisused: always.
        """
        message = f"{type(self._port).__name__} cannot list runs; a full port (SQLite, …) can"
        raise StoreMisused(message)

    async def delete_run(self, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        known = await self._known(run)
        deleted = await self.inner.delete_run(run)
        for slot in (self._slot(run, "journal"), self._slot(run, "done"), *self._lanes(run, known)):
            await self._port.delete(slot)
        self._runs.pop(self._name(run), None)
        return deleted

    async def entomb(self, run: str, *, updated_at: int) -> bool:  # noqa: ARG002 - the port's signature
        """Never: five methods cannot take part of a run away."""
        return False

    async def claimable(
        self,
        *,
        agents: Collection[str] | None = None,  # noqa: ARG002 - the port's signature
        limit: int = 100,  # noqa: ARG002 - the port's signature
    ) -> list[Claimable]:
        """None: five methods cannot find what nobody asks for by name."""
        return []

    async def scopes(
        self,
        *,
        after: str | None = None,  # noqa: ARG002 - the port's signature
        limit: int = 100,  # noqa: ARG002 - the port's signature
    ) -> list[str]:
        """Not possible with five methods.

        Raises:
            StoreMisused: always.
        """
        message = f"{type(self._port).__name__} cannot list scopes; a full port (SQLite, …) can"
        raise StoreMisused(message)

    @property
    def keeps_values(self) -> bool:
        """Never: only the memory store in front could, and it is gone with the process."""
        return False

    async def save(self, checkpoint: Checkpoint) -> None:
        """See `CheckpointPort.save`."""
        await self._port.save(checkpoint)

    async def latest(self, slot: str) -> Checkpoint | None:
        """See `CheckpointPort.latest`."""
        return await self._port.latest(slot)

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        """See `CheckpointPort.at_version`."""
        return await self._port.at_version(slot, version)

    async def list_versions(self, slot: str) -> list[int]:
        """See `CheckpointPort.list_versions`."""
        return await self._port.list_versions(slot)

    async def delete(self, slot: str) -> None:
        """See `CheckpointPort.delete`."""
        await self._port.delete(slot)

    # --- names --------------------------------------------------------------------------------

    def _name(self, run: str) -> str:
        """The run's name in a store that knows no scopes."""
        return f"@{self._prefix}/{run}" if self._prefix or run.startswith("@") else run

    def _slot(self, run: str, lane: str) -> str:
        return slot_of(self._name(run), lane)

    def _lanes(self, run: str, known: _Run) -> list[str]:
        return [self._slot(run, lane) for lane, found in known.state.lanes.items() if found.version]

    # --- the five-method store ----------------------------------------------------------------

    def _turn(self, run: str) -> asyncio.Lock:
        """Held while something happens to the run that takes the five-method store several calls;
        between event loops nothing but the version numbers keeps order.
        """
        locks = self._turns.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
        return locks.setdefault(self._name(run), asyncio.Lock())

    async def _known(self, run: str) -> _Run:
        known = self._runs.get(self._name(run))
        if known is not None:
            return known
        async with self._turn(run):
            return self._runs.get(self._name(run)) or await self._restore(run)

    async def _restore(self, run: str) -> _Run:
        """Read the run from the five-method store into the memory store."""
        known = _Run(run)
        last: _Kept | None = None
        done = await self._port.latest(self._slot(run, "done"))
        checkpoints = [done] if done is not None else await self._journal_of(run)
        for checkpoint in checkpoints:
            last = _read(checkpoint)
            self._take(known, [_row(plain) for plain in last.rows])
            known.version = checkpoint.version
        if last is not None:
            head = Head(
                run=run,
                seq=known.state.seq,
                check=known.state.check,
                epoch=last.epoch,
                owner=last.owner,
                recoveries=last.recoveries,
                summary=last.summary if known.rows else None,
            )
            memory = self.inner
            if isinstance(memory, InMemoryCheckpointStore):
                memory.restore(head, known.rows)
        self._runs[self._name(run)] = known
        return known

    async def _journal_of(self, run: str) -> list[Checkpoint]:
        slot = self._slot(run, "journal")
        found = [await self._port.at_version(slot, v) for v in await self._port.list_versions(slot)]
        return [checkpoint for checkpoint in found if checkpoint is not None]

    async def _save(self, run: str, known: _Run, kept: _Kept) -> None:
        """Save one append as the next version, unless an earlier attempt at it did."""
        slot = self._slot(run, "journal")
        version = known.version + 1
        newest = await self._port.latest(slot)
        if newest is not None and newest.version >= version:
            if newest.version > version or _read(newest).rows != kept.rows:
                self._runs.pop(self._name(run), None)
                message = (
                    f"run {run!r}: another process has written to it, which a five-method store "
                    "cannot prevent; this one stops. Resume the run."
                )
                raise StoreMisused(message)
        else:
            state = msgspec.to_builtins(kept)
            await self._port.save(Checkpoint(slot, version, CheckpointStatus.RUNNING, state))
        known.version = version

    async def _mirror(self, run: str, known: _Run, summary: Summary) -> None:
        """Show the author of the store what he expects: a snapshot per step, DONE at the end."""
        snapshot = checkpoint_of(known.state)
        if known.state.status in TERMINAL_STATUSES:
            head = _Kept(tuple(map(_plain, known.rows)), known.state.epoch, "", 0, summary)
            status = snapshot.status if snapshot is not None else CheckpointStatus.DONE
            slot = self._slot(run, "done")
            if await self._port.latest(slot) is None:
                await self._port.save(Checkpoint(slot, 1, status, msgspec.to_builtins(head)))
            for other in (self._slot(run, "journal"), *self._lanes(run, known)):
                await self._port.delete(other)
        elif snapshot is not None and snapshot.version > known.shown:
            slot = self._slot(run, known.state.main.lane)
            newest = await self._port.latest(slot)
            if newest is None or newest.version < snapshot.version:
                await self._port.save(msgspec.structs.replace(snapshot, slot=slot))
            known.shown = snapshot.version

    def _take(self, known: _Run, rows: Sequence[Row]) -> None:
        state = known.state
        for entry, check in decode_rows(
            rows, after=state.seq, before=state.check, run_id=state.run_id
        ):
            state.apply(entry, check)
        known.rows.extend(rows)


_Locks: TypeAlias = "weakref.WeakValueDictionary[str, asyncio.Lock]"
_lock = threading.Lock()
_shims: weakref.WeakValueDictionary[int, ShimJournal] = weakref.WeakValueDictionary()
_warned: set[str] = set()


def _fits(head: Head | None, after: int, lease: Lease | None) -> bool:
    """Whether the memory store is going to take this append."""
    if head is None:
        return lease is None and after == 0
    if lease is not None:
        return (head.owner, head.epoch, head.seq) == (lease.owner, lease.epoch, after)
    ended = head.summary is not None and head.summary.status in TERMINAL_STATUSES
    return head.seq == after and not ended


def _plain(row: Row) -> tuple[int, str, str]:
    return (row.seq, row.body.decode(), row.check.hex())


def _row(plain: tuple[int, str, str]) -> Row:
    seq, body, check = plain
    return Row(seq, body.encode(), bytes.fromhex(check))


def _read(checkpoint: Checkpoint) -> _Kept:
    try:
        return msgspec.convert(checkpoint.state, _Kept)
    except msgspec.ValidationError as exc:
        message = f"slot {checkpoint.slot!r} holds something that is not a journal of ours: {exc}"
        raise StoreDamaged(message) from exc
