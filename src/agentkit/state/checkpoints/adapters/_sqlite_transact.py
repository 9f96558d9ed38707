"""What the transactions of tools need of a SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentkit.core.contracts.errors import JournalDamaged, TransactionOver
from agentkit.core.contracts.heads import Head
from agentkit.core.contracts.transactions import Proposal
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver_errors
from agentkit.state.checkpoints.adapters._sqlite_files import SqliteFile
from agentkit.state.checkpoints.adapters._sqlite_guard import Guard
from agentkit.state.checkpoints.adapters._sqlite_journal import Appending, SqliteJournal
from agentkit.state.checkpoints.adapters._sqlite_writer import SqliteConnector
from agentkit.state.checkpoints.adapters._transaction_ports import Place

if TYPE_CHECKING:
    import apsw

TRANSACTION_SECONDS = 2.0
"""How long a transactional tool may keep the file from everybody else who writes."""


class SqliteTransactions:
    """Transactions on one file; several at once wait for one another at BEGIN. See `Database`.

    Args:
        file: the database.
        journal: appends in them.
    """

    def __init__(self, file: SqliteFile, journal: SqliteJournal) -> None:
        self.name = file.path
        self.busy_seconds = file.busy_seconds
        self.keeps = True
        self._file = file
        self._journal = journal
        self._sql = queries("sqlite")

    def connector(self) -> SqliteConnector:
        """See `Database.connector`."""
        return SqliteConnector(self._file)

    def begin(self, db: apsw.Connection, place: Place, limit_seconds: float) -> Head | None:  # noqa: ARG002 (its guard looks at the time)
        """See `Database.begin`."""
        with driver_errors(self.name):
            db.execute(self._sql["begin"])
            try:
                return self._journal.head(db, place.scope, place.run)
            except JournalDamaged:
                db.execute(self._sql["rollback"])
                raise

    def leave(self, db: apsw.Connection) -> None:
        """See `Database.leave`."""
        with driver_errors(self.name):
            db.execute(self._sql["rollback"])

    def guard(
        self,
        db: apsw.Connection,
        out_of_time: Callable[[], bool],
        over: Callable[[], TransactionOver],
    ) -> Guard:
        """See `Database.guard`."""
        return Guard(db, self.name, out_of_time, over)

    def commit(self, db: apsw.Connection, place: Place, proposal: Proposal) -> None:
        """See `Database.commit`."""
        new = Appending(proposal.rows, place.after, place.lease, proposal.summary, proposal.release)
        with driver_errors(self.name):
            self._journal.append(db, place.scope, place.run, new)
            db.execute(self._sql["commit"])
