"""A store in a Postgres database, shared by the workers of many machines."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from agentkit.core.contracts.upkeep import Migration, Reclaimed
from agentkit.core.runtime.chance import SystemChance
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._lanes import ThreadLane
from agentkit.state.checkpoints.adapters._postgres_engine import Engine, Limits, reached
from agentkit.state.checkpoints.adapters._postgres_heads import check_summary
from agentkit.state.checkpoints.adapters._postgres_journal import LOCK_SECONDS, Appending
from agentkit.state.checkpoints.adapters._postgres_place import DEFAULT_SCHEMA
from agentkit.state.checkpoints.adapters._postgres_session import OPERATION_SECONDS, Db, execute
from agentkit.state.checkpoints.adapters._postgres_transact import TRANSACTION_SECONDS
from agentkit.state.checkpoints.adapters._postgres_writer import AppendWork, MakeLane
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.slots_mixin import SlotMethods

if TYPE_CHECKING:
    import psycopg_pool

__all__ = ["PostgresCheckpointStore", "PostgresDurability"]

_T = TypeVar("_T")


class PostgresDurability(NamedTuple):
    """Settings of the server that decide what survives: `synchronous_commit` as it is in our own
    transactions, `fsync` and `full_page_writes` as they are for the whole server.
    """

    synchronous_commit: str
    fsync: str
    full_page_writes: str


class PostgresCheckpointStore(SlotMethods):
    """Journals in a Postgres database, for workers on any number of machines.

    The tables are made when the store is first used, in a schema of their own. Leases, epochs and
    claims go by the server's clock alone. Appends of concurrent runs share a round trip and a
    commit. No session state is used: a pooler in transaction mode may stand in between.

    Args:
        database: an address (`postgresql://user@host/database`, or `host=… dbname=…`), or your own
            open `psycopg_pool.ConnectionPool`, from which connections are taken for one operation
            at a time.
        schema: where the tables are.
        clock: for tests: judges leases and epochs instead of the server's.
        transaction_seconds: longest time of a transactional tool, 5 at most: its run's lease cannot
            be renewed meanwhile.
        operation_seconds: how long the server may be silent before its connection is given up; it
            ends what takes nine tenths of that by itself. Large appends have longer.
        lane: makes what operations run on; a simulator puts its own in place of threads.

    Raises:
        MissingExtra: the driver is not installed.
        InvalidStoreUrl: the address is not understood.
        StoreMisused: it is neither an address nor a pool that threads can use, or a limit is no
            time or too long.
    """

    def __init__(
        self,
        database: str | psycopg_pool.ConnectionPool[Any],
        *,
        schema: str = DEFAULT_SCHEMA,
        clock: ClockPort | None = None,
        operation_seconds: float = OPERATION_SECONDS,
        transaction_seconds: float = TRANSACTION_SECONDS,
        lane: MakeLane = ThreadLane,
    ) -> None:
        limits = Limits.checked(operation_seconds, transaction_seconds)
        self._engine = Engine(*reached(database, schema), clock, lane, limits)
        self._scope = ""

    @property
    def location(self) -> str:
        """`postgresql://host:port/database?schema=…`, without user and password. The same server
        under two names is two locations.
        """
        return self._engine.place.location

    def scoped(self, scope: Scope) -> PostgresCheckpointStore:
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
        journal, scope, token = self._engine.journal, self._scope, SystemChance().token()
        return await self._write(
            lambda db: journal.acquire(
                db,
                scope,
                run,
                owner=owner,
                ttl_seconds=ttl_seconds,
                token=token,
                supersede=supersede,
                above=above,
            ),
            again=True,
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
        check_summary(summary)
        rules.check_append(run, rows, after=after, lease=lease, scope=self._scope, release=release)
        new = Appending(self._scope, run, rows, after, lease, summary, release)
        return await self._engine.writer.submit(AppendWork(self._engine.journal, new))

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """The rows with seq > `after`, at most `limit`; see `JournalPort.read`."""
        check_id(run)
        after, limit = rules.counted(after), rules.counted(limit)
        journal, scope = self._engine.journal, self._scope
        return await self._read(lambda db: journal.read(db, scope, run, after=after, limit=limit))

    async def head(self, run: str) -> Head | None:
        """The head, or `None`; see `JournalPort.head`."""
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._read(lambda db: journal.head(db, scope, run))

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
        lists, scope = self._engine.lists, self._scope
        return await self._read(
            lambda db: lists.page(db, scope, status=status, agent=agent, limit=limit, behind=behind)
        )

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs of all scopes that are due; see `JournalPort.claimable`."""
        limit = rules.counted(limit)
        lists = self._engine.lists
        return await self._read(lambda db: lists.claimable(db, agents=agents, limit=limit))

    async def delete_run(self, run: str) -> bool:
        """Remove the run; see `JournalPort.delete_run`."""
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._write(lambda db: journal.delete(db, scope, run), again=False)

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Remove an ended run's entries; see `JournalPort.entomb`."""
        check_id(run)
        rules.check_numbers(updated_at)
        journal, scope = self._engine.journal, self._scope
        return await self._write(
            lambda db: journal.entomb(db, scope, run, updated_at=updated_at), again=False
        )

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Keys of the scopes that hold runs; see `JournalPort.scopes`."""
        limit = rules.counted(limit)
        lists = self._engine.lists
        return await self._read(lambda db: lists.scopes(db, after=after, limit=limit))

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
        values, scope = self._engine.values, self._scope
        return await self._write(
            lambda db: values.claim(db, scope, key, token=token, ttl_seconds=ttl_seconds),
            again=True,
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Keep the value of one's own claim; see `OncePort.settle_value`."""
        check_id(key, what="key")
        values, scope = self._engine.values, self._scope
        return await self._write(
            lambda db: values.settle(db, scope, key, token=token, value=value), again=True
        )

    @property
    def can_reclaim(self) -> bool:
        """Always; see `ReclaimPort`."""
        return True

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """Vacuum the tables, beside everybody else; see `ReclaimPort.reclaim`."""
        return await self._engine.reclaim(limit_seconds=limit_seconds)

    @property
    def can_migrate(self) -> bool:
        """Always; see `MigrationPort`."""
        return True

    async def migrations(self) -> list[Migration]:
        """All steps of the schema; see `MigrationPort.migrations`."""
        return await self._engine.migrations()

    async def migrate(self) -> list[Migration]:
        """Apply what is lacking; see `MigrationPort.migrate`."""
        return await self._engine.migrate()

    async def durability(self) -> PostgresDurability:
        """What the server is set to, as it says itself from within a transaction like ours."""
        sql = self._engine.place.sql(queries("postgres")["durability"])
        wait_ms = round(LOCK_SECONDS * 1000)
        ((_, commit, fsync, pages, _),) = await self._read(lambda db: execute(db, sql, (wait_ms,)))
        return PostgresDurability(commit, fsync, pages)

    async def aclose(self) -> None:
        """End the threads and close the connections; see `JournalPort.aclose`."""
        await self._engine.aclose()

    async def _read(self, work: Callable[[Db], _T]) -> _T:
        return await self._engine.reader.submit(lambda session: session.run(work, again=True))

    async def _write(self, work: Callable[[Db], _T], *, again: bool) -> _T:
        return await self._engine.writer.submit(lambda session: session.run(work, again=again))
