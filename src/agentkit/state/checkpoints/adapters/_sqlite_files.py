"""The database file of a store: created race-free, checked before SQLite touches it, opened."""

from __future__ import annotations

import logging
import os
import stat
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agentkit.core.contracts.errors import JournalTooNew, StoreDamaged, StoreUnreachable
from agentkit.state.checkpoints.adapters._lanes import opening
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver, driver_errors
from agentkit.state.checkpoints.adapters._sqlite_schema import bring_up, create, newest
from agentkit.state.checkpoints.adapters._sqlite_wal import read_log

if TYPE_CHECKING:
    import apsw

APPLICATION_ID: Final = 0x41674B74
Synchronous = Literal["FULL", "NORMAL"]
Identity = tuple[int, int]

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_JOURNAL = struct.Struct(">8s8xI")
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGE_SIZE = 2048
_POLL_SECONDS = 0.001
_SLOW_POLL_SECONDS = 0.005
_QUICK_POLLS = 50

_log = logging.getLogger("agentkit.state")


class SqliteFile:
    """One database file and how to open it.

    Args:
        path: absolute, symbolic links resolved.
        synchronous: of every connection that writes.
        busy_seconds: how long to wait for other processes' transactions.
    """

    def __init__(self, path: str, *, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
        self._path = Path(path)
        self.synchronous: Synchronous = synchronous
        self.busy_seconds = busy_seconds

    def connect(self, *, read_only: bool = False) -> apsw.Connection:
        """A connection to the file, which is created where it is missing.

        Raises:
            StoreUnreachable: it cannot be created, opened or locked.
            StoreDamaged: it is not a store of ours, or damage would lose acknowledged entries.
            JournalTooNew: a newer release wrote it.
        """
        with opening, driver_errors(self.path):
            _create(self.path)
            self._inspect()
            db: apsw.Connection = driver().Connection(
                self.path, flags=driver().SQLITE_OPEN_READWRITE
            )
            try:
                self._prepare(db, read_only=read_only)
            except BaseException:
                db.close(force=True)
                raise
            return db

    def identity(self) -> Identity:
        """What tells this file from another one that takes its place.

        Raises:
            StoreUnreachable: there is no file any more.
        """
        try:
            found = self._path.stat()
        except OSError as exc:
            raise StoreUnreachable(
                f"the store {self.path} was removed while it was in use ({exc.strerror}). "
                f"Put the file back, with its -wal file, and resume."
            ) from exc
        return found.st_dev, found.st_ino

    def schema(self) -> int:
        """The schema of the file, 0 where it is not there yet. Nothing is written.

        Raises:
            StoreDamaged: it is not a store of ours.
            JournalTooNew: a newer release wrote it.
        """
        with opening, driver_errors(self.path):
            return self._inspect() if self._path.exists() else 0

    def _inspect(self) -> int:
        """Look at the bytes alone: opening a foreign file would already write beside it. Returns
        the schema.
        """
        header = _header(self.path)
        if header and not header.startswith(_MAGIC):
            if _is_unfinished(self.path):
                return 0
            raise StoreDamaged(f"{self.path} is not a SQLite database. {_OTHER_FILE}")
        size = int.from_bytes(header[16:18], "big") if header else _PAGE_SIZE
        log = read_log(Path(self.path + "-wal"), page_size=65536 if size == 1 else size)
        if log.damaged and self.synchronous == "FULL":
            raise StoreDamaged(
                f"the write-ahead log {self.path}-wal is damaged at frame {log.bad_frame}, and "
                f"acknowledged entries follow behind it. Nothing was changed. Keep a copy of both "
                f"files and restore a backup."
            )
        if log.first_page and not header:
            raise StoreDamaged(
                f"the store {self.path} is empty but its write-ahead log {self.path}-wal is not. "
                f"Put the database file back, or remove the log if its entries are not needed."
            )
        if log.bad_frame and not log.damaged:
            _log.info("%s-wal: torn or unused from frame %d on", self.path, log.bad_frame)
        header = log.first_page[:_HEADER_BYTES] or header
        if not header:
            return 0
        version, application = struct.unpack_from(">I4xI", header, 60)
        self._check_version(application, version)
        return int(version)

    def _check_version(self, application: int, version: int) -> None:
        if application != APPLICATION_ID or version < 1:
            raise StoreDamaged(
                f"{self.path} is a SQLite database of another program. {_OTHER_FILE}"
            )
        if version > newest():
            raise JournalTooNew(
                f"the store {self.path} has schema {version}, this release knows schemas up to "
                f"{newest()}. Nothing was written. Upgrade arc-agentkit to use it."
            )

    def _prepare(self, db: apsw.Connection, *, read_only: bool) -> None:
        sql = queries("sqlite")
        patience = _Patience(self.busy_seconds)
        db.set_busy_handler(patience)
        application, version, tables = db.execute(sql["identity"]).get
        if not application and not version and not tables:
            create(db)
            application, version, tables = db.execute(sql["identity"]).get
        self._check_version(application, version)
        if not tables:
            raise StoreDamaged(f"{self.path} lacks the tables of a store. {_OTHER_FILE}")
        _use_wal(db, patience)
        if self.synchronous == "FULL":
            _sync_log(self.path)
        db.execute(sql["settings"]).fetchall()
        name = "synchronous_full" if self.synchronous == "FULL" else "synchronous_normal"
        db.execute(sql[name])
        bring_up(db, version=version)
        if read_only:
            db.execute(sql["read_only"])


_OTHER_FILE = "Nothing was written. Give the path of an agentkit store, or of a file to create."


def _sync_log(path: str) -> None:
    """Have the log on the disk before anything that stands in it is told to anybody.

    A process that was killed between its last write and the sync leaves a transaction that reads
    like any other and that the loss of power would still undo. SQLite opens such a log without a
    sync, so what a repeated append finds there would be acknowledged without being durable.
    """
    log = path + "-wal"
    if not Path(log).exists():
        return
    apsw = driver()
    # Opened in the way that has SQLite's file layer sync the folder too: the log may be new in it.
    flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    file = apsw.VFSFile("", log, [flags, 0])
    try:
        if file.xFileSize():
            file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()


class _Patience:
    """Busy handler: poll often, so that processes that commit all the time let others in."""

    def __init__(self, seconds: float) -> None:
        self._polls = _QUICK_POLLS + int(seconds / _SLOW_POLL_SECONDS)

    def __call__(self, polls: int) -> bool:
        if polls >= self._polls:
            return False
        wait = _POLL_SECONDS if polls < _QUICK_POLLS else _SLOW_POLL_SECONDS
        time.sleep(wait)  # noqa: TID251 (SQLite calls this in a thread of the store, without a loop)
        return True


def _create(path: str) -> None:
    """Make the file, empty and for this user alone, unless it is there."""
    try:
        if os.path.lexists(path):
            _check_regular(path)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _check_regular(path)
    except FileNotFoundError as exc:
        raise StoreUnreachable(
            f"the folder of the store {path} does not exist. Create {Path(path).parent} first."
        ) from exc
    except OSError as exc:
        raise StoreUnreachable(
            f"the store {path} cannot be created ({exc.strerror}). Check that this user may write "
            f"in its folder."
        ) from exc


def _check_regular(path: str) -> None:
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise StoreUnreachable(f"the store {path} is {what}. Give the path of a file.")
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnreachable(
            f"the store {path} cannot be read and written by this user. Change its permissions or "
            f"run as the user who owns it."
        )


def _header(path: str) -> bytes:
    """The first bytes of the file, by way of SQLite's own file layer.

    A file descriptor of our own would, when it is closed, take the locks of this process's other
    connections with it: https://sqlite.org/howtocorrupt.html#posix_close_bug.
    """
    apsw = driver()
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", path, flags)
    try:
        size = min(file.xFileSize(), _HEADER_BYTES)
        return bytes(file.xRead(size, 0)) if size else b""
    finally:
        file.xClose()


def _is_unfinished(path: str) -> bool:
    """Whether the power failed while the file was being created.

    Its first bytes may then be anything, and SQLite makes it empty again: the journal beside it
    says that it had no pages. https://sqlite.org/fileformat2.html#the_rollback_journal
    """
    try:
        with Path(path + "-journal").open("rb") as file:
            journal = file.read(_JOURNAL.size)
    except FileNotFoundError:
        return False
    if len(journal) < _JOURNAL.size:
        return False
    magic, pages = _JOURNAL.unpack(journal)
    return bool(magic == _JOURNAL_MAGIC and pages == 0)


def _use_wal(db: apsw.Connection, patience: _Patience) -> None:
    """Switch to a write-ahead log; SQLite does not wait by itself when others do the same."""
    sql = queries("sqlite")
    polls = 0
    while db.execute(sql["journal_mode"]).get != "wal":
        try:
            db.execute(sql["use_wal"]).fetchall()
        except driver().BusyError:
            if not patience(polls):
                raise
            polls += 1
