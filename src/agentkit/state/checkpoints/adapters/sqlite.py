"""A store in one SQLite file: the embedded default, shared by the processes of one machine."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from agentkit.core.contracts.errors import InvalidStoreUrl, StoreMisused
from agentkit.core.contracts.heads import (
    Claimable,
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import ClockPort, ToolThreads
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.transactions import Proposal, Transaction
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._lanes import Seat, ThreadLane
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_files import SqliteFile
from agentkit.state.checkpoints.adapters._sqlite_integrity import check_integrity
from agentkit.state.checkpoints.adapters._sqlite_journal import Appending, SqliteJournal
from agentkit.state.checkpoints.adapters._sqlite_lists import SqliteLists
from agentkit.state.checkpoints.adapters._sqlite_transact import (
    TRANSACTION_SECONDS,
    SqliteTransactions,
)
from agentkit.state.checkpoints.adapters._sqlite_upkeep import Upkeep, UpkeepMethods
from agentkit.state.checkpoints.adapters._sqlite_values import SqliteValues
from agentkit.state.checkpoints.adapters._sqlite_writer import (
    MakeLane,
    SqliteConnector,
    SqliteLane,
    read_each,
    write_group,
    write_one,
)
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.state.checkpoints.adapters._transacting import Transactions
from agentkit.state.checkpoints.slots_mixin import SlotMethods

__all__ = ["BUSY_SECONDS", "Durability", "SqliteCheckpointStore"]

_T = TypeVar("_T")

BUSY_SECONDS = 30.0
"""How long an operation waits for other processes before it gives up."""


_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Durability(NamedTuple):
    """Settings that decide what survives: `wal` and `FULL` keep every acknowledged entry when the
    power fails.
    """

    journal_mode: str
    synchronous: str


class SqliteCheckpointStore(SlotMethods, UpkeepMethods):
    """Journals in a SQLite file, durable against loss of power.

    The file is created when it is first needed, for this user alone. Any number of processes of
    one machine may use it at once; network file systems are not supported, and neither is a second
    SQLite library on the same file in this process. Appends of concurrent runs share a commit.

    Args:
        path: the file; a relative path is taken from the current folder now, not later.
        synchronous: `FULL`; `NORMAL` is faster and may lose acknowledged entries when the power
            fails (never when a process dies), and then cannot tell such a loss from damage.
        clock: what leases and epochs are judged by; the machine's own clocks if `None`.
        busy_seconds: how long an operation waits for other processes before `StoreUnreachable`.
        transaction_seconds: longest time of a transactional tool; other writers wait meanwhile.
        lane: makes what operations run on; a simulator puts its own in place of threads.

    Raises:
        InvalidStoreUrl: `path` names no file.
        StoreMisused: `synchronous` is something else.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        clock: ClockPort | None = None,
        busy_seconds: float = BUSY_SECONDS,
        transaction_seconds: float = TRANSACTION_SECONDS,
        lane: MakeLane = ThreadLane,
    ) -> None:
        if synchronous not in {"FULL", "NORMAL"}:
            raise StoreMisused(f"synchronous must be 'FULL' or 'NORMAL', not {synchronous!r}")
        file = SqliteFile(_resolved(path), synchronous=synchronous, busy_seconds=busy_seconds)
        self._engine = _Engine(file, StoreClock(clock), lane, transaction_seconds)
        self._upkeep = Upkeep(file, self._engine.clock, lane)
        self._scope = ""

    @property
    def location(self) -> str:
        """`sqlite:///` and the absolute path, symbolic links resolved."""
        return f"sqlite:///{self._engine.path}"

    def scoped(self, scope: Scope) -> SqliteCheckpointStore:
        """The same connections, looking at another scope."""
        view = copy.copy(self)
        view._scope = scope.key  # noqa: SLF001 (a copy of our own)
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
        """Take the lease, creating the head where there is none; see `JournalPort.acquire`."""
        check_id(run)
        check_id(owner, what="owner")
        rules.check_numbers(supersede, above)
        ttl_seconds = rules.lasting(ttl_seconds)
        journal = self._engine.journal
        return await self._engine.writer.submit(
            lambda db: journal.acquire(
                db,
                self._scope,
                run,
                owner=owner,
                ttl_seconds=ttl_seconds,
                supersede=supersede,
                above=above,
            )
        )

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Extend these leases, on a connection of its own; see `JournalPort.renew`."""
        return self._engine.renew(leases)

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
        """Append `rows` and move the head; see `JournalPort.append`."""
        check_id(run)
        rules.check_append(run, rows, after=after, lease=lease, scope=self._scope, release=release)
        new = Appending(rows, after, lease, summary, release)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.writer.submit(lambda db: journal.append(db, scope, run, new))

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """The rows with seq > `after`, at most `limit`; see `JournalPort.read`."""
        check_id(run)
        after, limit = rules.counted(after), rules.counted(limit)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.reader.submit(
            lambda db: journal.read(db, scope, run, after=after, limit=limit)
        )

    async def head(self, run: str) -> Head | None:
        """The head, or `None`; see `JournalPort.head`."""
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.reader.submit(lambda db: journal.head(db, scope, run))

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """One page of this scope's runs; see `JournalPort.list_runs`."""
        limit = rules.counted(limit)
        behind = rules.from_cursor(cursor)
        rules.check_text(status, agent, what="status or agent")
        lists, scope = self._engine.lists, self._scope
        return await self._engine.reader.submit(
            lambda db: lists.page(db, scope, status=status, agent=agent, limit=limit, behind=behind)
        )

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs of all scopes that are due; see `JournalPort.claimable`."""
        limit = rules.counted(limit)
        rules.check_text(*(agents or ()), what="agent")
        lists = self._engine.lists
        return await self._engine.reader.submit(
            lambda db: lists.claimable(db, agents=agents, limit=limit)
        )

    async def delete_run(self, run: str) -> bool:
        """Remove the run; see `JournalPort.delete_run`."""
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.writer.submit(lambda db: journal.delete(db, scope, run))

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Remove an ended run's entries; see `JournalPort.entomb`."""
        check_id(run)
        rules.check_numbers(updated_at)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.writer.submit(
            lambda db: journal.entomb(db, scope, run, updated_at=updated_at)
        )

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Keys of the scopes that hold runs; see `JournalPort.scopes`."""
        limit = rules.counted(limit)
        rules.check_text(after, what="scope")
        lists = self._engine.lists
        return await self._engine.reader.submit(
            lambda db: lists.scopes(db, after=after, limit=limit)
        )

    @property
    def can_transact(self) -> bool:
        """Always; see `TransactionalPort`."""
        return True

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """Let a tool write in the transaction of its outcome; see `TransactionalPort.transact`."""
        check_id(run)
        return await self._engine.transactions.run(
            self._scope,
            run,
            act,
            conclude,
            after=after,
            lease=lease,
            threads=threads,
            timeout_seconds=timeout_seconds,
        )

    @property
    def keeps_values(self) -> bool:
        """Always; see `OncePort`."""
        return True

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Claim `key`, unless it is claimed; see `OncePort.claim_value`."""
        check_id(key, what="key")
        ttl_seconds = rules.lasting(ttl_seconds)
        rules.check_text(token, what="token")
        values, scope = self._engine.values, self._scope
        return await self._engine.writer.submit(
            lambda db: values.claim(db, scope, key, token=token, ttl_seconds=ttl_seconds)
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Keep the value of one's own claim; see `OncePort.settle_value`."""
        check_id(key, what="key")
        rules.check_text(token, value, what="token or value")
        values, scope = self._engine.values, self._scope
        return await self._engine.writer.submit(
            lambda db: values.settle(db, scope, key, token=token, value=value)
        )

    async def durability(self) -> Durability:
        """What the connection that writes is set to, as SQLite itself says."""
        sql = queries("sqlite")["durability"]
        mode, level = await self._engine.writer.submit(lambda db: db.execute(sql).get)
        return Durability(mode, _LEVELS.get(level, str(level)))

    async def integrity(self, *, limit_seconds: float) -> list[str] | None:
        """What SQLite's own check of the whole file finds; `None` if the time was not enough.

        Raises:
            StoreError: the file cannot be read.
        """
        clock = self._engine.clock
        return await self._engine.reader.submit(
            lambda db: check_integrity(db, clock, limit_seconds=limit_seconds)
        )

    async def aclose(self) -> None:
        """End the threads and close the connections; see `JournalPort.aclose`."""
        await self._engine.aclose()


class _Engine:
    """What the views of one store share: the lanes of the file, and the seat for renewals."""

    def __init__(
        self,
        file: SqliteFile,
        clock: StoreClock,
        lane: MakeLane,
        transaction_seconds: float,
    ) -> None:
        self.path = file.path
        self.clock = clock
        self.journal = SqliteJournal(clock)
        self.lists = SqliteLists(self.journal, clock)
        self.values = SqliteValues(clock)
        self.transactions = Transactions(
            SqliteTransactions(file, self.journal), clock, limit_seconds=transaction_seconds
        )
        self._renewals = Seat(SqliteConnector(file))
        self.writer = lane(
            Seat(SqliteConnector(file)),
            partial(write_group, path=file.path),
            "agentkit-sqlite-writer",
        )
        self.reader = lane(
            Seat(SqliteConnector(file, read_only=True)),
            partial(read_each, path=file.path),
            "agentkit-sqlite-reader",
        )
        weakref.finalize(self, _stop, self.writer, self.reader).atexit = False

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        if not leases:
            return {}
        return self._renewals.use(
            lambda db: write_one(db, lambda db: self.journal.renew(db, leases), self.path)
        )

    async def aclose(self) -> None:
        await self.reader.close()
        self._renewals.close()
        self.transactions.close()
        await self.writer.close()


def _stop(*lanes: SqliteLane) -> None:
    """The store is gone without `aclose`: its threads end, and their connections with them."""
    for lane in lanes:
        lane.stop()


def _resolved(path: str | Path) -> str:
    text = os.fspath(path)
    if text in {"", ":memory:"}:
        raise InvalidStoreUrl(
            f"{text!r} names no file, and runs kept there would not outlive the process. Use "
            f"InMemoryCheckpointStore or memory:// if that is what you want."
        )
    if "://" in text:
        raise InvalidStoreUrl(
            f"SqliteCheckpointStore takes a path, not the URL {text!r}; use open_store(url)"
        )
    return os.path.realpath(text)
