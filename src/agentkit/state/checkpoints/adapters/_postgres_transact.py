"""What the transactions of tools need of a Postgres database."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from weakref import WeakKeyDictionary

from agentkit.core.contracts.errors import StoreError, StoreUnreachable, TransactionOver
from agentkit.core.contracts.heads import Head
from agentkit.core.contracts.transactions import Proposal
from agentkit.state.checkpoints.adapters import _transaction_ports as ports
from agentkit.state.checkpoints.adapters._postgres_errors import driver, driver_errors
from agentkit.state.checkpoints.adapters._postgres_guard import Guard
from agentkit.state.checkpoints.adapters._postgres_journal import (
    LOCK_SECONDS,
    Appending,
    PostgresJournal,
    append_error,
)
from agentkit.state.checkpoints.adapters._postgres_place import CONNECT_SECONDS, Place
from agentkit.state.checkpoints.adapters._postgres_session import (
    OPERATION_SECONDS,
    Db,
    Source,
    bounded,
    execute,
    is_alive,
)
from agentkit.state.checkpoints.adapters._postgres_settings import Settings, settings_of
from agentkit.state.checkpoints.adapters._queries import queries

TRANSACTION_SECONDS = 2.0
"""How long a transactional tool may keep its run, and what it has written to, from others."""

MAX_TRANSACTION_SECONDS = 5.0
"""The longest that may be set: it keeps the run's row, and the lease is not renewed meanwhile."""

IDLE_SECONDS = 1.0
"""How much longer the server keeps a transaction from which nothing is heard any more."""


class PostgresTransactions:
    """Transactions on connections of their own; several at once wait only for what they share. See
    `Database`.

    Args:
        source: where connections come from.
        place: where the tables are.
        journal: appends in them.
    """

    def __init__(self, source: Source, place: Place, journal: PostgresJournal) -> None:
        self.name = place.location
        self.busy_seconds = CONNECT_SECONDS + LOCK_SECONDS
        self.keeps = source.keeps
        self._source = source
        self._place = place
        self._journal = journal
        self._sql = queries("postgres")
        self._settings: WeakKeyDictionary[Db, Settings] = WeakKeyDictionary()

    def connector(self) -> PostgresConnector:
        """See `Database.connector`."""
        return PostgresConnector(self._source, self._place, self._settings)

    def begin(self, db: Db, place: ports.Place, limit_seconds: float) -> Head | None:
        """See `Database.begin`."""
        limit_ms = max(1, round(limit_seconds * 1000))
        idle_ms = limit_ms + round(IDLE_SECONDS * 1000)
        with driver_errors(self.name), bounded(db, OPERATION_SECONDS):
            execute(db, self._sql["begin"], binary=False)
            patience = self._place.sql(self._sql["patience"])
            execute(db, patience, (round(LOCK_SECONDS * 1000),), binary=False)
            head = self._journal.head(db, place.scope, place.run, hold=True)
            execute(db, self._sql["limit"], (str(limit_ms), str(idle_ms)))
        return head

    def leave(self, db: Db) -> None:
        """See `Database.leave`."""
        with driver_errors(self.name), bounded(db, OPERATION_SECONDS):
            execute(db, self._sql["rollback"], binary=False)

    def guard(
        self, db: Db, out_of_time: Callable[[], bool], over: Callable[[], TransactionOver]
    ) -> Guard:
        """See `Database.guard`."""
        return Guard(db, self._place, out_of_time, over, self._settings.get(db))

    def commit(self, db: Db, place: ports.Place, proposal: Proposal) -> None:
        """See `Database.commit`."""
        new = Appending(
            place.scope,
            place.run,
            proposal.rows,
            place.after,
            place.lease,
            proposal.summary,
            proposal.release,
        )
        try:
            with driver_errors(self.name), bounded(db, OPERATION_SECONDS):
                (outcome,) = self._journal.append(db, [new])
                if outcome.error is not None:
                    raise outcome.error
                execute(db, self._sql["commit"], binary=False)
        except StoreError as error:
            raise append_error(new, error) from error.__cause__


class PostgresConnector:
    """How a seat comes to a connection for transactions.

    Args:
        source: where connections come from.
        place: for messages.
        settings: is told those of a session that is not our own.
    """

    def __init__(
        self, source: Source, place: Place, settings: MutableMapping[Db, Settings]
    ) -> None:
        self._source = source
        self._place = place
        self._settings = settings

    def connect(self) -> Db:
        """See `Connector.connect`."""
        with driver_errors(self._place.location):
            db = self._source.take()
            if not self._source.keeps:
                with bounded(db, OPERATION_SECONDS):
                    self._settings[db] = settings_of(db)
            return db

    def check(self, connection: Db) -> None:
        """See `Connector.check`."""
        if not is_alive(connection):
            raise StoreUnreachable(
                f"the store {self._place.location} has closed the connection. Try again."
            )

    def close(self, connection: Db) -> None:
        """See `Connector.close`; a transaction that is open goes with its connection."""
        if connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
            connection.close()
        self._source.give(connection)
