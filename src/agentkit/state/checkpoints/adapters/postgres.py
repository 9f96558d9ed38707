"""A store in a Postgres database, shared by the workers of many machines."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agentkit.core.contracts.errors import StoreMisused
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
from agentkit.state.checkpoints.adapters._postgres_clock import ServerClock
from agentkit.state.checkpoints.adapters._postgres_heads import check_summary
from agentkit.state.checkpoints.adapters._postgres_journal import (
    LOCK_SECONDS,
    Appending,
    PostgresJournal,
)
from agentkit.state.checkpoints.adapters._postgres_lists import PostgresLists
from agentkit.state.checkpoints.adapters._postgres_place import DEFAULT_SCHEMA, Place, place_of
from agentkit.state.checkpoints.adapters._postgres_schema import prepare
from agentkit.state.checkpoints.adapters._postgres_session import (
    OPERATION_SECONDS,
    Db,
    Dialled,
    Pooled,
    Session,
    SessionConnector,
    Source,
    execute,
)
from agentkit.state.checkpoints.adapters._postgres_transact import (
    TRANSACTION_SECONDS,
    PostgresTransactions,
)
from agentkit.state.checkpoints.adapters._postgres_values import PostgresValues
from agentkit.state.checkpoints.adapters._postgres_writer import (
    AppendWork,
    MakeLane,
    PostgresLane,
    serve_group,
)
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.state.checkpoints.adapters._transacting import Transactions
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
        transaction_seconds: longest time of a transactional tool.
        operation_seconds: how long one round trip may take before its connection is given up.
        lane: makes what operations run on; a simulator puts its own in place of threads.

    Raises:
        MissingExtra: the driver is not installed.
        InvalidStoreUrl: the address is not understood.
        StoreMisused: it is neither an address nor a pool that threads can use.
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
        place, source = _reached(database, schema)
        keeps = isinstance(database, str)

        def make() -> Session:
            return Session(source, place, keeps=keeps, seconds=operation_seconds)

        self._engine = _Engine(place, make, ServerClock(clock), lane)
        self._engine.transactions = Transactions(
            PostgresTransactions(source, place, self._engine.journal, keeps=keeps),
            StoreClock(clock),
            limit_seconds=transaction_seconds,
        )
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
        journal = self._engine.journal
        return await self._write(
            lambda db: journal.acquire(
                db,
                self._scope,
                run,
                owner=owner,
                ttl_seconds=ttl_seconds,
                supersede=supersede,
                above=above,
            ),
            again=False,
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
        behind = rules.from_cursor(cursor)
        lists, scope = self._engine.lists, self._scope
        return await self._read(
            lambda db: lists.page(db, scope, status=status, agent=agent, limit=limit, behind=behind)
        )

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs of all scopes that are due; see `JournalPort.claimable`."""
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
        journal, scope = self._engine.journal, self._scope
        return await self._write(
            lambda db: journal.entomb(db, scope, run, updated_at=updated_at), again=False
        )

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Keys of the scopes that hold runs; see `JournalPort.scopes`."""
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


class _Engine:
    """What the views of one store share: two lanes, and the seat for renewals."""

    def __init__(
        self, place: Place, make: Callable[[], Session], clock: ServerClock, lane: MakeLane
    ) -> None:
        self.place = place
        self.journal = PostgresJournal(place, clock)
        self.lists = PostgresLists(place, clock)
        self.values = PostgresValues(place, clock)
        self.transactions: Transactions[Db]
        connector = SessionConnector(make)
        self._renewals = Seat(connector)
        self.writer = lane(Seat(connector), serve_group, "agentkit-postgres-writer")
        self.reader = lane(Seat(connector), serve_group, "agentkit-postgres-reader")
        weakref.finalize(self, _stop, self.writer, self.reader).atexit = False

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """One round trip; a second one for runs that are locked, so that nobody waits for them."""
        if not leases:
            return {}
        renewed = self._renew(leases, patient=False)
        busy = {key: lease for key, lease in leases.items() if key not in renewed}
        return {**renewed, **self._renew(busy, patient=True)} if busy else renewed

    async def aclose(self) -> None:
        await self.reader.close()
        self._renewals.close()
        self.transactions.close()
        await self.writer.close()

    def _renew(self, leases: Mapping[str, Lease], *, patient: bool) -> dict[str, Renewal]:
        return self._renewals.use(
            lambda session: session.run(
                lambda db: self.journal.renew(db, leases, patient=patient), again=True
            )
        )


def _stop(*lanes: PostgresLane) -> None:
    """The store is gone without `aclose`: its threads end, and their connections with them."""
    for lane in lanes:
        lane.stop()


def _reached(database: str | psycopg_pool.ConnectionPool[Any], schema: str) -> tuple[Place, Source]:
    """Where the database is, and where connections to it come from."""
    if isinstance(database, str):
        place = place_of(database, schema)
        return place, Dialled(place, lambda db: prepare(db, place))
    kind = type(database).__name__
    if not hasattr(database, "getconn") or "Async" in kind:
        raise StoreMisused(
            f"PostgresCheckpointStore takes an address or a psycopg_pool.ConnectionPool, not "
            f"{kind}. A pool of async connections belongs to one event loop, the store serves "
            f"several from threads of its own: give it the address."
        )
    place = place_of(_conninfo(database), schema, **_address(database))
    return place, Pooled(database, lambda db: prepare(db, place))


def _conninfo(pool: psycopg_pool.ConnectionPool[Any]) -> str:
    return str(pool.conninfo() if callable(pool.conninfo) else pool.conninfo)


def _address(pool: psycopg_pool.ConnectionPool[Any]) -> dict[str, object]:
    """What of the address a pool was given beside the connection string."""
    found = (pool.kwargs() if callable(pool.kwargs) else pool.kwargs) or {}
    names = ("host", "hostaddr", "port", "dbname", "user")
    return {name: found[name] for name in names if name in found}
