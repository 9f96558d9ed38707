"""Operations on a SQLite connection: several in one durable transaction, or each in its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from agentkit.core.contracts.errors import StoreError, StoreUnreachable
from agentkit.state.checkpoints.adapters._lanes import LanePort, Outcome, Seat, Serve
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver, driver_errors
from agentkit.state.checkpoints.adapters._sqlite_files import Identity, SqliteFile

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")
Work: TypeAlias = "Callable[[apsw.Connection], object]"
SqliteLane: TypeAlias = "LanePort[apsw.Connection]"
MakeLane: TypeAlias = "Callable[[Seat[apsw.Connection], Serve[apsw.Connection], str], SqliteLane]"


class SqliteConnector:
    """Connections to one file, as long as it stays the same file.

    Args:
        file: the database.
        read_only: refuse writes on them.
    """

    def __init__(self, file: SqliteFile, *, read_only: bool = False) -> None:
        self._file = file
        self._read_only = read_only
        self._identity: Identity = (0, 0)

    def connect(self) -> apsw.Connection:
        """See `Connector.connect`."""
        db = self._file.connect(read_only=self._read_only)
        self._identity = self._file.identity()
        return db

    def check(self, connection: apsw.Connection) -> None:  # noqa: ARG002 (looks at the file)
        """Refuse to write into a file that was replaced; see `Connector.check`."""
        if self._file.identity() != self._identity:
            raise StoreUnreachable(
                f"the store {self._file.path} was replaced by another file while it was in use. "
                f"Resume to go on with the new one."
            )

    def close(self, connection: apsw.Connection) -> None:
        """See `Connector.close`; its transaction goes with it."""
        with contextlib.suppress(driver().Error):
            connection.close(force=True)


def write_group(db: apsw.Connection, works: Sequence[Work], path: str) -> list[Outcome]:
    """Run operations in one durable transaction.

    An operation that refuses (its lease is lost, the head moved, what it found is damaged) undoes
    what it did and disturbs nobody. An error of the driver is everybody's. An operation may be run
    twice, its first run undone: savepoints cost a fifth of an append, so only a group with a
    refusal gets them.

    Raises:
        StoreError: nothing of the group is known to be durable.
    """
    sql = queries("sqlite")
    with driver_errors(path):
        db.execute(sql["begin"])
        try:
            outcomes = [Outcome(work(db)) for work in works]
        except driver().Error:
            raise
        except Exception:  # noqa: BLE001 (it comes again where its savepoint undoes it)
            db.execute(sql["rollback"])
            db.execute(sql["begin"])
            outcomes = [_apart(db, work) for work in works]
        db.execute(sql["commit"])
    return outcomes


def _apart(db: apsw.Connection, work: Work) -> Outcome:
    """Run one operation of a transaction in a savepoint of its own."""
    sql = queries("sqlite")
    db.execute(sql["savepoint"])
    try:
        outcome = Outcome(work(db))
    except driver().Error:
        raise
    except Exception as exc:  # noqa: BLE001 (whoever awaits the operation gets it)
        db.execute(sql["undo"])
        outcome = Outcome(error=exc)
    db.execute(sql["keep"])
    return outcome


def write_one(db: apsw.Connection, work: Callable[[apsw.Connection], T], path: str) -> T:
    """Run one operation in a durable transaction of its own.

    Raises:
        StoreError: nothing is known to be durable.
    """
    sql = queries("sqlite")
    with driver_errors(path):
        db.execute(sql["begin"])
        value = work(db)
        db.execute(sql["commit"])
    return value


def read_each(db: apsw.Connection, works: Sequence[Work], path: str) -> list[Outcome]:
    """Run operations that only read, each in a transaction of its own: all that one of them looks
    at is of one moment, whoever writes meanwhile.

    Raises:
        StoreError: the file cannot be read.
    """
    outcomes: list[Outcome] = []
    for work in works:
        try:
            with driver_errors(path):
                outcomes.append(Outcome(_at_one_moment(db, work)))
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 (whoever awaits the operation gets it)
            outcomes.append(Outcome(error=exc))
    return outcomes


def _at_one_moment(db: apsw.Connection, work: Work) -> object:
    sql = queries("sqlite")
    db.execute(sql["look"])
    try:
        return work(db)
    finally:
        if db.in_transaction:  # some errors end it
            db.execute(sql["rollback"])
