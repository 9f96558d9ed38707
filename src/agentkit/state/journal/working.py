"""A worker's journal, where tools may write in the transaction of their own outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from agentkit.core.contracts.entries import Body, Entry
from agentkit.core.contracts.errors import HeadMoved, LeaseLost, StoreUnreachable
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.transactions import Proposal, Transaction, can_transact
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import APPEND_RETRY_SECONDS, Journal, load

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
        async with self._lock:
            delays = iter(APPEND_RETRY_SECONDS)
            while True:
                await self._level()
                if not wanted(self.state):
                    return []
                try:
                    return await self._transact(
                        act,
                        build,
                        lane=lane,
                        release=release,
                        threads=threads,
                        timeout_seconds=timeout_seconds,
                    )
                except HeadMoved:
                    self._overtaken = True
                except StoreUnreachable:
                    delay = next(delays, None)
                    if delay is None:
                        raise
                    await self._clock.sleep(delay)

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
        *,
        lane: str,
        release: Callable[[Sequence[Body]], bool],
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> list[Entry]:
        port, lease = can_transact(self._port), self._lease
        if port is None or lease is None:
            message = f"run {self.state.run_id!r}: its store has no transactions for tools"
            raise AssertionError(message)
        after = self.state.seq
        entries: list[Entry] = []
        rows: list[Row] = []
        proposal: Proposal | None = None

        def conclude(ended: _T) -> Proposal | None:
            nonlocal entries, rows, proposal
            bodies = build(self.state, ended)
            if bodies:
                self._overtaken = True  # until the store is known to have them
                entries, rows = self._entries(bodies, lane, "")
                proposal = Proposal(tuple(rows), self.state.summary(), release(bodies))
            return proposal

        try:
            await port.transact(
                self.state.run_id,
                act,
                conclude,
                after=after,
                lease=lease,
                threads=threads,
                timeout_seconds=timeout_seconds,
            )
        except LeaseLost:
            self.fenced = True
            raise
        except StoreUnreachable:
            if not rows or not await self._has(rows, after):
                raise
        if proposal is not None:
            self._overtaken = False
            self.released = self.released or proposal.release
        return entries

    async def _has(self, rows: Sequence[Row], after: int) -> bool:
        """Whether the store has these rows."""
        delays = iter(APPEND_RETRY_SECONDS)
        while True:
            try:
                found = await self._port.read(self.state.run_id, after=after, limit=len(rows))
            except StoreUnreachable:
                delay = next(delays, None)
                if delay is None:
                    raise
                await self._clock.sleep(delay)
            else:
                return found == list(rows)
