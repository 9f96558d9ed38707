"""What a transactional tool may do on its connection, and whether its transaction is still ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from agentkit.core.contracts.errors import StatementRefused, StoreError, TransactionOver
from agentkit.core.contracts.transactions import SqlParameters, SqlValue
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver, driver_errors

if TYPE_CHECKING:
    import apsw

_T = TypeVar("_T")

PROGRESS_STEPS = 1_000
"""Steps of SQLite's machine between two looks at the clock."""

_ID = "agentkit-transaction"
_OURS = "agentkit_"
_ROWS = ("READ", "INSERT", "UPDATE", "DELETE")
_ALLOWED = (
    *("SELECT", "FUNCTION", "RECURSIVE", *_ROWS),
    *("CREATE_TABLE", "CREATE_INDEX", "CREATE_VIEW", "CREATE_TRIGGER"),
    *("DROP_TABLE", "DROP_INDEX", "DROP_VIEW", "DROP_TRIGGER"),
    "REINDEX",  # part of making an index
)
_OWN_SCHEMA = ("sqlite_master", "sqlite_schema")
"""Written by SQLite itself when a table is created; it refuses others."""


class Guard:
    """Stands in front of a connection while a tool uses it, and takes note if its transaction ends.

    Args:
        db: the connection, its transaction begun.
        path: of the file, for messages.
        out_of_time: whether the tool's time is up.
        over: what is raised then.
    """

    def __init__(
        self,
        db: apsw.Connection,
        path: str,
        out_of_time: Callable[[], bool],
        over: Callable[[], TransactionOver],
    ) -> None:
        self.db = db
        self._path = path
        self._out_of_time = out_of_time
        self._over = over
        self._names = _actions()
        self._sql = ""
        self._denied = ""
        self._fault: StoreError | None = None
        self._ended = False
        db.authorizer = self._authorize
        db.exec_trace = self._one_at_a_time
        db.set_progress_handler(out_of_time, PROGRESS_STEPS, id=_ID)
        db.set_commit_hook(self._refuse_commit, id=_ID)
        db.set_rollback_hook(self._note_rollback, id=_ID)

    def execute(self, sql: str, parameters: SqlParameters) -> list[tuple[SqlValue, ...]]:
        """See `Transaction.execute`."""
        return self.run(lambda db: db.execute(sql, parameters).fetchall(), sql)

    def executemany(self, sql: str, rows: list[SqlParameters]) -> None:
        """See `Transaction.executemany`."""
        self.run(lambda db: db.executemany(sql, rows).fetchall(), sql)

    def check(self) -> None:
        """Return if the transaction is still the one that was begun, and in time.

        Raises:
            StoreError: the store has failed in it.
            TransactionOver: it has ended.
        """
        if self._fault is not None:
            raise self._fault
        if self._out_of_time():
            raise self._over()
        if self._has_ended():
            raise TransactionOver(
                "a statement of the tool has rolled the transaction back: nothing of it happened"
            )

    def interrupt(self) -> None:
        """From any thread: end the statement that runs now."""
        with contextlib.suppress(driver().Error):
            self.db.interrupt()

    def remove(self) -> None:
        """Let everything through again."""
        self.db.authorizer = None
        self.db.exec_trace = None
        self.db.set_progress_handler(None, id=_ID)
        self.db.set_commit_hook(None, id=_ID)
        self.db.set_rollback_hook(None, id=_ID)

    def roll_back(self) -> bool:
        """Forget what is open; whether the connection can be used again."""
        try:
            self.remove()
            if self.db.in_transaction:
                self.db.execute(queries("sqlite")["rollback"])
        except driver().Error:
            return False
        return self._fault is None

    def run(self, work: Callable[[apsw.Connection], _T], sql: str) -> _T:
        """Run one statement."""
        self.check()
        self._sql, self._denied = sql, ""
        apsw = driver()
        try:
            with driver_errors(self._path):
                try:
                    found = work(self.db)
                except apsw.InterruptError:
                    raise self._over() from None
                except _mistakes() as exc:
                    if self._has_ended():
                        raise TransactionOver(f"{exc}: the transaction was rolled back") from exc
                    raise StatementRefused(self._denied or str(exc)) from exc
        except StoreError as exc:
            self._fault = self._fault or exc
            raise
        self.check()
        return found

    def _has_ended(self) -> bool:
        return self._ended or not self.db.in_transaction

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _inner: str | None,
    ) -> int:
        name = self._names.get(action, "this statement")
        about = " ".join(part for part in (name.replace("_", " "), first) if part)
        touched = [text.casefold() for text in (first, second) if text]
        if name not in _ALLOWED:
            self._denied = f"{about} is not allowed in a transactional tool"
        elif any(text.startswith(_OURS) for text in touched) and name != "FUNCTION":
            self._denied = f"{about}: the tables of agentkit are out of a tool's reach"
        elif name in _ROWS and touched[0].startswith("sqlite_") and touched[0] not in _OWN_SCHEMA:
            self._denied = f"{about}: SQLite's own tables are out of a tool's reach"
        elif database not in {"main", None} and name != "READ":
            self._denied = f"{about} concerns {database}, which is not the store's database"
        elif name == "FUNCTION" and second == "load_extension":
            self._denied = "load_extension is not allowed in a transactional tool"
        else:
            return int(driver().SQLITE_OK)
        return int(driver().SQLITE_DENY)

    def _one_at_a_time(self, _cursor: object, statement: str, _bindings: object) -> bool:
        if self._sql[len(statement) :].strip(" \t\r\n;"):
            raise StatementRefused("one statement at a time, and nothing behind it")
        return True

    def _refuse_commit(self) -> bool:
        self._ended = True
        return True

    def _note_rollback(self) -> None:
        self._ended = True


@cache
def _actions() -> dict[int, str]:
    """What SQLite calls the actions that it asks about, without their prefix."""
    names = driver().mapping_authorizer_function
    codes = [code for code in names if isinstance(code, int)]
    return {code: names[code].removeprefix("SQLITE_") for code in codes}


@cache
def _mistakes() -> tuple[type[Exception], ...]:
    """Errors that are a statement's own, not the store's."""
    apsw = driver()
    return (
        apsw.SQLError,
        apsw.AuthError,
        apsw.ConstraintError,
        apsw.MismatchError,
        apsw.BindingsError,
        apsw.RangeError,
        apsw.TooBigError,
        apsw.AbortError,
    )
