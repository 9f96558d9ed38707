"""Transactions that a tool shares with the append of its outcome, on connections of their own.

The tool's thread does everything, from BEGIN to COMMIT. Whoever waits for it may give it up as long
as nothing is being appended: the connection is closed under the tool then, so that a tool which
never returns keeps nobody else from what it has locked. The same for every SQL store; what differs
is behind the ports beside this.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from agentkit.core.contracts.errors import StoreError, StoreUnreachable, TransactionOver
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.transactions import Proposal, SqlParameters, SqlValue, Transaction
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._lanes import Seat
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.state.checkpoints.adapters._transaction_ports import Database, Guard, Place

C = TypeVar("C")
_T = TypeVar("_T")
_S = TypeVar("_S")


class Transactions(Generic[C]):
    """Runs transactions on one database.

    Args:
        database: which.
        clock: measures their time.
        limit_seconds: longest time of a tool in its transaction.
    """

    def __init__(self, database: Database[C], clock: StoreClock, *, limit_seconds: float) -> None:
        self.database = database
        self.clock = clock
        self.limit_seconds = limit_seconds
        self._free: deque[Seat[C]] = deque()

    async def run(
        self,
        scope: str,
        run: str,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """See `TransactionalPort.transact`."""
        limit_seconds = min(timeout_seconds, self.limit_seconds)
        place = Place(scope, run, after, lease)
        job = _Job(self, self._seat(), place, act, conclude, limit_seconds=limit_seconds)
        try:
            pending = threads.submit(job)
        except RuntimeError as exc:
            raise TransactionOver("it was not run: the system gives no more threads") from exc
        waiting_seconds = timeout_seconds + self.database.busy_seconds
        return await _end_of(job, asyncio.ensure_future(pending), waiting_seconds)

    def give_back(self, seat: Seat[C]) -> None:
        """Keep a connection for the next transaction, if connections are kept."""
        if self.database.keeps:
            self._free.append(seat)
        else:
            seat.close()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._free:
            self._free.pop().close()

    def _seat(self) -> Seat[C]:
        try:
            return self._free.pop()
        except IndexError:
            return Seat(self.database.connector())


async def _end_of(job: _Job[C, _T], future: asyncio.Future[bool], waiting_seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + waiting_seconds
    cancelled: asyncio.CancelledError | None = None
    left = job.seconds_left(waiting_seconds)
    while not future.done():
        try:
            await asyncio.wait({future}, timeout=left)
        except asyncio.CancelledError as exc:
            cancelled = exc
            left = 0.0
        if future.done():
            break
        if cancelled is None:
            left = job.seconds_left(give_up_at - loop.time())
        if left is not None and left <= 0 and job.give_up():
            future.add_done_callback(_read)
            raise cancelled or job.over()
        if cancelled is not None:
            left = None  # its append is under way
    if cancelled is not None:
        _read(future)
        raise cancelled
    return future.result()


def _read(future: asyncio.Future[bool]) -> None:
    """Look at an end that nobody waits for, so that nothing is logged of it."""
    if not future.cancelled():
        future.exception()


class _Guarded(NamedTuple, Generic[C]):
    """A connection with the guard in front of it."""

    db: C
    it: Guard


class _Job(Generic[C, _T]):
    """One transaction, from BEGIN to its end; called in the tool's thread."""

    def __init__(
        self,
        owner: Transactions[C],
        seat: Seat[C],
        place: Place,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        limit_seconds: float,
    ) -> None:
        self._owner = owner
        self._seat = seat
        self._place = place
        self._act = act
        self._conclude = conclude
        self._limit_seconds = limit_seconds
        self._turn = threading.Lock()  # whoever holds it decides what the transaction is now
        self._guard: _Guarded[C] | None = None
        self._until_ms: int | None = None
        self._given_up = False
        self._concluding = False

    def __call__(self) -> bool:
        try:
            return self._transact()
        finally:
            if not self._given_up:
                self._owner.give_back(self._seat)

    def seconds_left(self, waiting_seconds: float) -> float | None:
        """When to look again: the tool's time may be up then, or `waiting_seconds` where it has not
        begun. `None` once it has come to its append.
        """
        if self._concluding:
            return None
        if self._until_ms is None:
            return min(self._limit_seconds, waiting_seconds)
        return (self._until_ms - self._owner.clock.elapsed_ms()) / 1000

    def give_up(self) -> bool:
        """Roll back now, whatever the tool is doing; false if it has come to its append."""
        with self._turn:
            if self._concluding:
                return False
            self._given_up = True
            guard = self._guard
        if guard is not None:
            guard.it.interrupt()
            self._drop_if_given_up(guard)
        return True

    def over(self) -> TransactionOver:
        """What is said of a transaction whose time is up."""
        return TransactionOver(
            f"it took longer than {self._limit_seconds:g} seconds, which is the longest time of a "
            "transactional tool, so it was rolled back: nothing of it happened"
        )

    def statement(self, run: Callable[[Guard], _S]) -> _S:
        """Run one statement of the tool."""
        guard = self._guard
        if guard is None:
            raise _returned()
        try:
            with self._seat.gate:
                if self._guard is not guard:  # a thread that the tool has left behind
                    raise _returned()
                if not self._seat.holds(guard.db):
                    raise self._gone()
                return run(guard.it)
        finally:
            self._drop_if_given_up(guard)

    def _transact(self) -> bool:
        guard = self._seat.use(self._begin)
        try:
            ended = self._act(_Statements(self))
            with self._turn:
                if self._given_up or self._out_of_time():
                    raise self.over()
                self._concluding = True
            self._guard = None
            self._take_off(guard)
            proposal = self._conclude(ended)
            if proposal is None:
                return False
            self._append(guard, proposal)
            return True
        finally:
            self._guard = None
            self._roll_back(guard)

    def _begin(self, db: C) -> _Guarded[C]:
        place, database = self._place, self._owner.database
        head = database.begin(db, place, self._limit_seconds)
        fits = head is not None and rules.owns(place.lease, head) and head.seq == place.after
        with self._turn:
            if fits and not self._given_up:
                self._until_ms = self._owner.clock.elapsed_ms() + round(self._limit_seconds * 1000)
                guard = database.guard(db, self._out_of_time, self.over)
                self._guard = _Guarded(db, guard)
                return self._guard
        database.leave(db)
        if fits:
            raise self.over()
        raise rules.refusal(place.run, head=head, lease=place.lease, after=place.after)

    def _out_of_time(self) -> bool:
        until_ms = self._until_ms
        return self._given_up or (
            until_ms is not None and self._owner.clock.elapsed_ms() >= until_ms
        )

    def _take_off(self, guard: _Guarded[C]) -> None:
        """Let nothing but our own statements through, if the transaction is still the one begun."""
        with self._seat.gate:
            if not self._seat.holds(guard.db):
                raise self._gone()
            guard.it.check()
            guard.it.remove()

    def _append(self, guard: _Guarded[C], proposal: Proposal) -> None:
        place, database = self._place, self._owner.database
        rules.check_append(
            place.run,
            proposal.rows,
            after=place.after,
            lease=place.lease,
            scope=place.scope,
            release=proposal.release,
        )

        def append(db: C) -> None:
            if db is not guard.db:
                raise self._gone()
            database.commit(db, place, proposal)

        self._seat.use(append)

    def _roll_back(self, guard: _Guarded[C]) -> None:
        with self._seat.gate:
            if self._seat.holds(guard.db) and not guard.it.roll_back():
                self._seat.drop()

    def _drop_if_given_up(self, guard: _Guarded[C]) -> None:
        """Close the connection of a transaction that was given up, unless its thread is in the
        middle of a statement: it comes here itself then.
        """
        if self._given_up and self._seat.gate.acquire(blocking=False):
            try:
                if self._seat.holds(guard.db):
                    self._seat.drop()
            finally:
                self._seat.gate.release()

    def _gone(self) -> StoreError | TransactionOver:
        if self._given_up:
            return self.over()
        return StoreUnreachable(
            f"the store {self._owner.database.name} was closed, or the process forked, in the "
            "middle of a transaction, which was rolled back. Try again."
        )


def _returned() -> TransactionOver:
    return TransactionOver("the transaction is over: it ends when its tool returns")


class _Statements(Generic[C, _T]):
    """The `Transaction` that a tool is given."""

    def __init__(self, job: _Job[C, _T]) -> None:
        self._job = job

    def execute(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]:
        """See `Transaction.execute`."""
        return self._job.statement(lambda guard: guard.execute(sql, parameters))

    def executemany(self, sql: str, rows: Iterable[SqlParameters]) -> None:
        """See `Transaction.executemany`."""
        every = list(rows)
        self._job.statement(lambda guard: guard.executemany(sql, every))
