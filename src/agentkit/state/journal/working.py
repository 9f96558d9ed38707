"""A worker's journal, where tools may write in the transaction of their own outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from agentkit.core.contracts.entries import Body, Entry
from agentkit.core.contracts.errors import HeadMoved, LeaseLost, StoreUnreachable
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.transactions import Proposal, Transaction, can_transact
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, insist, load

__all__ = ["WorkingJournal"]

_T = TypeVar("_T")


class WorkingJournal(Journal):
    """A `Journal` under a lease, for the worker that acts."""

    async def transact(
        self,
        act: Callable[[Transaction], _T],
        build: Callable[[RunState, _T], Sequence[Body]],
        *,
        wanted: Callable[[RunState], bool],
        lane: str,
        release: Callable[[Sequence[Body]], bool],
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> list[Entry]:
        """Let a tool `act` on the newest state, and append in the same transaction of the store
        what `build` makes of its end: all of it is durable, or nothing is.

        Where notes came in first, `wanted` is asked anew whether the tool is to act at all. Both
        callables run in the tool's thread; no entry is appended here meanwhile. A transaction whose
        end is not known is looked up, never sent again. One that the store failed in is repeated.

        Returns the durable entries; none where nothing was wanted, or `build` gave none and so all
        was rolled back.

        Raises:
            TransactionOver: the tool took too long; nothing of it happened.
        """
        made = _Made()
        attempt = partial(self._transact, act, build, made, lane=lane, release=release)

        async def request() -> list[Entry]:
            while True:
                await self._level()
                if made.rows and await self._has(made):
                    return self._confirmed(made)
                made.clear(after=self.state.seq)
                if not wanted(self.state):
                    return []
                try:
                    await attempt(threads=threads, timeout_seconds=timeout_seconds)
                except HeadMoved:
                    self._overtaken = True
                else:
                    return self._confirmed(made)

        async with self._lock:
            return await insist(request, clock=self._clock)

    async def _level(self) -> None:
        """See that the state is the store's, and everything in it is confirmed."""
        level = False
        try:
            while not level:
                if self._overtaken:
                    self.state = await load(self._port, self.state.run_id)
                    self._overtaken = False
                    self._stop_if_replaced()
                try:
                    await self._settle()
                    level = True
                except HeadMoved:
                    self._unsettled, self._overtaken = None, True
        finally:
            cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled

    async def _transact(
        self,
        act: Callable[[Transaction], _T],
        build: Callable[[RunState, _T], Sequence[Body]],
        made: _Made,
        *,
        lane: str,
        release: Callable[[Sequence[Body]], bool],
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> None:
        port, lease = can_transact(self._port), self._lease
        if port is None or lease is None:
            message = f"run {self.state.run_id!r}: its store has no transactions for tools"
            raise AssertionError(message)

        def conclude(ended: _T) -> Proposal | None:
            bodies = build(self.state, ended)
            if not bodies:
                return None
            self._overtaken = True  # until the store is known to have them
            made.entries, made.rows = self._entries(bodies, lane, "")
            made.release = release(bodies)
            return Proposal(tuple(made.rows), self.state.summary(), made.release)

        try:
            await port.transact(
                self.state.run_id,
                act,
                conclude,
                after=made.after,
                lease=lease,
                threads=threads,
                timeout_seconds=timeout_seconds,
            )
        except LeaseLost:
            self.fenced = True
            raise
        except StoreUnreachable:
            if not made.rows or not await insist(lambda: self._has(made), clock=self._clock):
                raise
        if made.rows:
            self._overtaken = False

    async def _has(self, made: _Made) -> bool:
        """Whether the store has these rows."""
        found = await self._port.read(self.state.run_id, after=made.after, limit=len(made.rows))
        return found == made.rows

    def _confirmed(self, made: _Made) -> list[Entry]:
        self.released = self.released or made.release
        return made.entries


class _Made:
    """What the newest transaction was to append; `rows` are empty where it came to nothing."""

    def __init__(self) -> None:
        self.clear(after=0)

    def clear(self, *, after: int) -> None:
        self.after = after
        self.entries: list[Entry] = []
        self.rows: list[Row] = []
        self.release = False
