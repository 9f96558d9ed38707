"""What the views of one Postgres store share."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.core.contracts.errors import StoreError, StoreMisused
from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.contracts.upkeep import Migration, Reclaimed
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters import _postgres_schema as schema
from agentkit.state.checkpoints.adapters._lanes import Seat
from agentkit.state.checkpoints.adapters._postgres_clock import ServerClock
from agentkit.state.checkpoints.adapters._postgres_errors import driver_errors, is_locked
from agentkit.state.checkpoints.adapters._postgres_journal import PostgresJournal
from agentkit.state.checkpoints.adapters._postgres_limits import (
    MAX_OPERATION_SECONDS,
    Limit,
    checked,
)
from agentkit.state.checkpoints.adapters._postgres_lists import PostgresLists
from agentkit.state.checkpoints.adapters._postgres_place import Place, place_of
from agentkit.state.checkpoints.adapters._postgres_session import (
    Dialled,
    Pooled,
    Session,
    SessionConnector,
    Source,
)
from agentkit.state.checkpoints.adapters._postgres_transact import (
    MAX_TRANSACTION_SECONDS,
    PostgresTransactions,
)
from agentkit.state.checkpoints.adapters._postgres_upkeep import reclaim
from agentkit.state.checkpoints.adapters._postgres_values import PostgresValues
from agentkit.state.checkpoints.adapters._postgres_writer import (
    MakeLane,
    PostgresLane,
    serve_group,
)
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.state.checkpoints.adapters._transacting import Transactions

if TYPE_CHECKING:
    import psycopg_pool

RENEWAL_LOCK_SECONDS = 0.5
"""How long a renewal waits for one run that another session has locked; the next is not far."""

RENEWAL_SECONDS = 3.0
"""The same for all such runs of a process."""


class Limits(NamedTuple):
    """How long the server may be silent, and a transactional tool may take."""

    operation_seconds: float
    transaction_seconds: float

    @classmethod
    def checked(cls, operation_seconds: float, transaction_seconds: float) -> Limits:
        """Both, as they were given.

        Raises:
            StoreMisused: one is no time, or too long.
        """
        why = (
            ". The transaction of a tool keeps its run's row, so that the lease cannot be renewed "
            "before it ends"
        )
        return cls(
            checked("operation_seconds", operation_seconds, most_seconds=MAX_OPERATION_SECONDS),
            checked(
                "transaction_seconds",
                transaction_seconds,
                most_seconds=MAX_TRANSACTION_SECONDS,
                why=why,
            ),
        )


class Engine:
    """What the views of one store share: two lanes, and the seat for renewals.

    Args:
        place: where the tables are.
        source: where connections come from.
        clock: a test's; `None` for the server's.
        lane: makes what operations run on.
        limits: how long things may take.
    """

    def __init__(
        self, place: Place, source: Source, clock: ClockPort | None, lane: MakeLane, limits: Limits
    ) -> None:
        self.place = place
        self.source = source
        server, limit = ServerClock(clock), Limit(limits.operation_seconds)
        self.journal = PostgresJournal(place, server, limit)
        self.lists = PostgresLists(place, server, limit)
        self.values = PostgresValues(place, server, limit)
        self.transactions = Transactions(
            PostgresTransactions(source, place, self.journal),
            StoreClock(clock),
            limit_seconds=limits.transaction_seconds,
        )
        connector = SessionConnector(
            lambda: Session(source, place, seconds=limits.operation_seconds)
        )
        self._renewals = Seat(connector)
        self.writer = lane(Seat(connector), serve_group, "agentkit-postgres-writer")
        self.reader = lane(Seat(connector), serve_group, "agentkit-postgres-reader")
        closing = (self._renewals.close, self.transactions.close)
        weakref.finalize(self, _stop, closing, (self.writer, self.reader)).atexit = False

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """One round trip, and one more for each run that is locked just then, so that nobody waits
        for another one's. One that stays locked is left out.
        """
        return self._renewals.use(lambda session: self._renew(session, leases)) if leases else {}

    async def migrations(self) -> list[Migration]:
        """See `MigrationPort.migrations`."""
        return await asyncio.to_thread(self._looked)

    async def migrate(self) -> list[Migration]:
        """See `MigrationPort.migrate`."""
        return await asyncio.to_thread(self._migrated)

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """See `ReclaimPort.reclaim`."""
        return await asyncio.to_thread(self._reclaimed, limit_seconds)

    async def aclose(self) -> None:
        """See `JournalPort.aclose`."""
        await self.reader.close()
        self._renewals.close()
        self.transactions.close()
        await self.writer.close()

    def _looked(self) -> list[Migration]:
        with self.source.raw() as db, driver_errors(self.place.location):
            return schema.listed(db, self.place)

    def _migrated(self) -> list[Migration]:
        with self.source.raw() as db, driver_errors(self.place.location):
            return schema.migrate(db, self.place)

    def _reclaimed(self, limit_seconds: float) -> Reclaimed:
        with self.source.raw() as db:
            with driver_errors(self.place.location):
                self.source.prepare(db)
            return reclaim(db, self.place, limit_seconds=limit_seconds)

    def _renew(self, session: Session, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        renewed = self._renewed(session, leases, wait_seconds=0.0)
        clock = SystemClock()
        until = clock.elapsed() + RENEWAL_SECONDS
        for key in leases.keys() - renewed.keys():
            seconds = min(RENEWAL_LOCK_SECONDS, until - clock.elapsed())
            try:
                renewed |= self._renewed(session, {key: leases[key]}, wait_seconds=seconds)
            except StoreError as error:
                if not is_locked(error):
                    raise
        return renewed

    def _renewed(
        self, session: Session, leases: Mapping[str, Lease], *, wait_seconds: float
    ) -> dict[str, Renewal]:
        return session.run(
            lambda db: self.journal.renew(db, leases, wait_seconds=wait_seconds), again=True
        )


def _stop(closing: Sequence[Callable[[], None]], lanes: Sequence[PostgresLane]) -> None:
    """The store is gone without `aclose`: its threads end, and their connections with them."""
    for close in closing:
        close()
    for lane in lanes:
        lane.stop()


def reached(database: str | psycopg_pool.ConnectionPool[Any], name: str) -> tuple[Place, Source]:
    """Where the database is, and where connections to it come from."""
    if isinstance(database, str):
        place = place_of(database, name)
        return place, Dialled(place, schema.Preparation(place))
    kind = type(database).__name__
    if not hasattr(database, "getconn") or "Async" in kind:
        raise StoreMisused(
            f"PostgresCheckpointStore takes an address or a psycopg_pool.ConnectionPool, not "
            f"{kind}. A pool of async connections belongs to one event loop, the store serves "
            f"several from threads of its own: give it the address."
        )
    place = place_of(_conninfo(database), name, **_address(database))
    return place, Pooled(database, place, schema.Preparation(place))


def _conninfo(pool: psycopg_pool.ConnectionPool[Any]) -> str:
    return str(pool.conninfo() if callable(pool.conninfo) else pool.conninfo)


def _address(pool: psycopg_pool.ConnectionPool[Any]) -> dict[str, object]:
    """What of the address a pool was given beside the connection string."""
    found = (pool.kwargs() if callable(pool.kwargs) else pool.kwargs) or {}
    names = ("host", "hostaddr", "port", "dbname", "user")
    return {name: found[name] for name in names if name in found}
