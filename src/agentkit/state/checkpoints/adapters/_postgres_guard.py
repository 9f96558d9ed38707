"""What a transactional tool may do on its connection, and whether its transaction is still ours."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit.core.contracts.errors import (
    StatementRefused,
    StoreError,
    TransactionOver,
)
from agentkit.core.contracts.transactions import SqlParameters, SqlValue
from agentkit.state.checkpoints.adapters._postgres_errors import (
    NoAnswer,
    driver,
    driver_errors,
    is_lost,
)
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import (
    OPERATION_SECONDS,
    Db,
    bounded,
    execute,
)
from agentkit.state.checkpoints.adapters._postgres_settings import Settings, put_back
from agentkit.state.checkpoints.adapters._queries import queries

if TYPE_CHECKING:
    import psycopg

_T = TypeVar("_T")

_BLANK = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|\()*")
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_ROWS = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "TABLE", "TRUNCATE"}
_DEFINES = {"CREATE", "ALTER", "DROP"}
_DEFINED = {"TABLE", "INDEX", "UNIQUE", "VIEW", "OR", "SEQUENCE", "TYPE", "TRIGGER", "FUNCTION"}
_TIMED_OUT = "57014"
_UNSETTLED = ("40001", "40P01", "55P03")  # another session was in the way: all of it is repeated
_PLAIN = ("int2", "int4", "int8", "oid", "float4", "float8", "bool", "bytea", "text")


class Guard:
    """Stands in front of a connection while a tool uses it. Each statement has a savepoint of its
    own; afterwards it is looked at whether it has, by whatever way, taken a lock on a table of ours
    or changed a function of ours.

    Args:
        db: the connection, its transaction begun.
        place: where our tables are.
        out_of_time: whether the tool's time is up.
        over: what is raised then.
        settings: of the session, to be set again; `None` where it is our own.
    """

    def __init__(
        self,
        db: Db,
        place: Place,
        out_of_time: Callable[[], bool],
        over: Callable[[], TransactionOver],
        settings: Settings | None,
    ) -> None:
        self.db = db
        self._place = place
        self._out_of_time = out_of_time
        self._over = over
        self._settings = settings
        self._sql = queries("postgres")
        self._fault: StoreError | None = None
        self._ended = False
        self._cursor = _plain_cursor(db)
        with driver_errors(place.location), bounded(db, OPERATION_SECONDS):
            self._begun = self._standing()

    def execute(self, sql: str, parameters: SqlParameters) -> list[tuple[SqlValue, ...]]:
        """See `Transaction.execute`."""

        def work() -> list[tuple[SqlValue, ...]]:
            with self.db.pipeline():  # its protocol takes one statement at a time
                self._cursor.execute(sql, parameters or None, prepare=False)
            return self._cursor.fetchall() if self._cursor.description else []

        return self._run(work, sql)

    def executemany(self, sql: str, rows: list[SqlParameters]) -> None:
        """See `Transaction.executemany`."""

        def work() -> None:
            with self.db.pipeline():
                for row in rows:
                    self._cursor.execute(sql, row, prepare=False)

        self._run(work, sql)

    def check(self) -> None:
        """See `_transaction_ports.Guard.check`."""
        if self._fault is not None:
            raise self._fault
        if self._out_of_time():
            raise self._over()
        if self._ended:
            raise _ended()

    def interrupt(self) -> None:
        """See `_transaction_ports.Guard.interrupt`: the connection is cut, which the driver notices
        at once; the server ends the statement at the latest when its own time is over.
        """
        with (
            contextlib.suppress(OSError, driver().Error),
            socket.socket(fileno=os.dup(self.db.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def remove(self) -> None:
        """See `_transaction_ports.Guard.remove`; what would fail at the commit fails here, and the
        session is as it was.
        """
        psycopg = driver()
        with driver_errors(self._place.location), bounded(self.db, OPERATION_SECONDS):
            try:
                execute(self.db, self._sql["constraints"], binary=False)
            except psycopg.IntegrityError as exc:
                raise TransactionOver(f"{_text(exc)}: the transaction was rolled back") from exc
            if self._standing() != self._begun:
                raise _ended()
            put_back(self.db, self._settings)

    def roll_back(self) -> bool:
        """See `_transaction_ports.Guard.roll_back`."""
        psycopg = driver()
        try:
            if self.db.closed or self._fault is not None:
                return False
            if self.db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                with bounded(self.db, OPERATION_SECONDS):
                    execute(self.db, self._sql["unlock"], binary=False)
                    execute(self.db, self._sql["rollback"], binary=False)
        except (psycopg.Error, NoAnswer):
            return False
        return True

    def _run(self, work: Callable[[], _T], sql: str) -> _T:
        """Run one statement in a savepoint."""
        self.check()
        _check_words(sql)
        try:
            with driver_errors(self._place.location), bounded(self.db, OPERATION_SECONDS):
                return self._apart(work)
        except StoreError as exc:
            if self._out_of_time():
                raise self._over() from None
            self._fault = self._fault or exc
            raise

    def _apart(self, work: Callable[[], _T]) -> _T:
        psycopg = driver()
        execute(self.db, self._sql["savepoint"], binary=False)
        try:
            found = work()
            standing = self._standing()
        except (psycopg.Error, UnicodeError, ValueError, TypeError, OverflowError) as exc:
            if isinstance(exc, psycopg.Error):
                self._refuse_unsettled(exc)
            self._undo()
            raise StatementRefused(_text(exc)) from exc
        if standing[0] != self._begun[0]:
            self._ended = True
            raise _ended()
        if standing != self._begun:
            self._undo()
            raise StatementRefused(_reached(standing[1] - self._begun[1]))
        execute(self.db, self._sql["keep"], binary=False)
        return found

    def _refuse_unsettled(self, exc: psycopg.Error) -> None:
        """Raise where an error is not the statement's own."""
        if exc.sqlstate == _TIMED_OUT:
            self._ended = True
            raise self._over() from exc
        if is_lost(exc) or exc.sqlstate in _UNSETTLED:
            raise exc

    def _undo(self) -> None:
        execute(self.db, self._sql["undo"], binary=False)
        execute(self.db, self._sql["keep"], binary=False)

    def _standing(self) -> tuple[str, frozenset[str], object]:
        """Which transaction this is, its locks on our tables, and what our functions are."""
        names = (self._place.schema, self._place.schema)
        ((transaction, locks, functions),) = execute(
            self.db, self._sql["standing"], names, binary=False
        )
        return transaction, frozenset(locks), functions


def _reached(locks: frozenset[str]) -> str:
    if not locks:
        return "the functions of agentkit are out of a tool's reach"
    touched = sorted({lock.partition(" ")[0] for lock in locks})
    return f"the tables of agentkit are out of a tool's reach: {', '.join(touched)}"


def _check_words(sql: str) -> None:
    """Refuse what is no statement about rows or tables, by its first words.

    Raises:
        StatementRefused: it would end the transaction, reach outside of it, or is not known.
    """
    words = _first_words(sql)
    first, second = words[0].upper(), words[1].upper()
    if first in _ROWS or (first in _DEFINES and second in _DEFINED):
        return
    about = " ".join(word for word in words if word).upper() if first in _DEFINES else first
    raise StatementRefused(f"{about or 'nothing'} is not allowed in a transactional tool")


def _first_words(sql: str) -> tuple[str, str]:
    found = []
    at = 0
    for _ in range(2):
        at = _behind_blank(sql, at)
        match = _WORD.match(sql, at)
        found.append(match[0] if match else "")
        at = match.end() if match else at
    return found[0], found[1]


def _behind_blank(sql: str, at: int) -> int:
    """The position behind space, brackets and comments, which may be nested."""
    while True:
        blank = _BLANK.match(sql, at)
        at = blank.end() if blank else at
        if not sql.startswith("/*", at):
            return at
        depth, at = 1, at + 2
        while depth and at < len(sql):
            if sql.startswith("/*", at):
                depth, at = depth + 1, at + 2
            elif sql.startswith("*/", at):
                depth, at = depth - 1, at + 2
            else:
                at += 1


def _plain_cursor(db: Db) -> psycopg.Cursor[Any]:
    """A cursor whose values are those of `SqlValue`; what is none of them comes as its text."""
    module = driver()
    cursor: psycopg.Cursor[Any] = module.Cursor(db, row_factory=module.rows.tuple_row)
    for oid in _textual():
        cursor.adapters.register_loader(oid, module.types.string.TextLoader)
    return cursor


@cache
def _textual() -> tuple[int, ...]:
    found: list[int] = []
    for info in driver().adapters.types:
        if info.name not in _PLAIN:
            found.append(info.oid)
        if info.array_oid:
            found.append(info.array_oid)
    return tuple(found)


def _text(exc: BaseException) -> str:
    primary = getattr(getattr(exc, "diag", None), "message_primary", None)
    return str(primary or exc) or type(exc).__name__


def _ended() -> TransactionOver:
    return TransactionOver(
        "a statement of the tool has ended the transaction: its outcome was not recorded"
    )
