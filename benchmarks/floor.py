"""The floor: what the disk and one thread cost, with nothing above them.

The same bodies in the same groups, each group one durable commit. A `ThreadFloor` is asked from an
event loop as a store must be; `bare` commits in the caller's own thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

Group = Sequence[bytes]

# What our own store sets, so that the floor writes no more than it does.
_SETTINGS = """
PRAGMA page_size = 2048;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 2000;
CREATE TABLE entry (place INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""
_INSERT = "INSERT INTO entry (body) VALUES (?)"


def open_table(path: Path) -> apsw.Connection:
    """A new file with an ordinary rowid table, WAL and synchronous=FULL."""
    db = apsw.Connection(str(path))
    db.execute(_SETTINGS).fetchall()
    assert db.execute("PRAGMA journal_mode").get == "wal"
    assert db.execute("PRAGMA synchronous").get == 2  # noqa: PLR2004 - FULL
    return db


def warm(path: Path) -> None:
    """Let the write-ahead log of an open store reach its full length and begin again, as in a store
    that has been used for a while: how long a commit takes that makes a file longer depends on
    whatever else the file system does for this file at that moment.
    """
    db = apsw.Connection(str(path))
    db.execute("BEGIN; CREATE TABLE warm (x); INSERT INTO warm VALUES (zeroblob(4200000)); COMMIT")
    db.execute("DROP TABLE warm")
    assert db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()[0][0] == 0
    db.close()


def bodies_in(path: Path) -> list[bytes]:
    """All bodies of a floor's file, in their order."""
    db = apsw.Connection(str(path))
    return [body for (body,) in db.execute("SELECT body FROM entry ORDER BY place")]


def commit(db: apsw.Connection, groups: Sequence[Group]) -> None:
    """Put groups in with one durable commit."""
    db.execute("BEGIN IMMEDIATE")
    for group in groups:
        db.executemany(_INSERT, [(body,) for body in group])
    db.execute("COMMIT")


def bare(db: apsw.Connection, groups: Sequence[Group]) -> None:
    """Each group its own durable commit, in this thread."""
    for group in groups:
        commit(db, [group])


class Commit(NamedTuple):
    """How a writer makes groups durable, all in one commit, and how it ends."""

    commit: Callable[[Sequence[Group]], None]
    close: Callable[[], None]


def on_file(path: Path) -> ThreadFloor:
    """The floor on a new file.

    Args:
        path: the file, which must not exist.
    """

    def opened() -> Commit:
        db = open_table(path)
        return Commit(lambda groups: commit(db, groups), db.close)

    writer = ThreadFloor(opened)
    warm(path)
    return writer


class ThreadFloor:
    """One writer thread; what waits when it looks shares a commit.

    Args:
        opened: called in the thread.
    """

    def __init__(self, opened: Callable[[], Commit]) -> None:
        self._open = opened
        self._jobs: queue.SimpleQueue[tuple[Group, asyncio.Future[None]] | None]
        self._jobs = queue.SimpleQueue()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        self._opened.wait()

    def submit(self, group: Group) -> asyncio.Future[None]:
        """Resolves when the group is durable."""
        future = asyncio.get_running_loop().create_future()
        self._jobs.put((group, future))
        return future

    def close(self) -> None:
        """Write what was submitted, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _write(self) -> None:
        writer = self._open()
        self._opened.set()
        while True:
            jobs = [self._jobs.get()]
            while not self._jobs.empty():
                jobs.append(self._jobs.get())
            wanted = [job for job in jobs if job is not None]
            if wanted:
                writer.commit([group for group, _ in wanted])
                futures = [future for _, future in wanted]
                futures[0].get_loop().call_soon_threadsafe(_resolve, futures)
            if len(wanted) < len(jobs):
                writer.close()
                return


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)
