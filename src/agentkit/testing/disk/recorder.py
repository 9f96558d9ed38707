"""A file layer for SQLite that writes down what it is asked for, and fails where it is told to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self, TypeAlias

import apsw

from agentkit.testing.disk.image import (
    Acknowledged,
    Begun,
    Created,
    Deleted,
    Disk,
    Event,
    Synced,
    Truncated,
    Wrote,
)

__all__ = ["FAULTY", "Fault", "Operation", "Recorder"]

Operation: TypeAlias = Literal["open", "write", "sync", "truncate", "delete", "size", "read"]

FAULTY: tuple[Operation, ...] = ("open", "write", "sync", "truncate", "delete", "size", "read")
"""What a fault may hit."""

Fault: TypeAlias = Callable[[Operation, str], Exception | None]
"""Asked before each operation, with the file's name: the error to raise instead of doing it."""

_NAMES = iter(range(1 << 62))
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL


class Recorder(apsw.VFS):
    """While it is `active`, SQLite's default file layer in this process.

    Of the `-shm` file nothing is heard: it is memory, and SQLite's own layer goes on doing it.

    Args:
        folder: whose files are recorded.
        fault: see `Fault`.
        seed: of SQLite's own random numbers.

    Attributes:
        events: what happened.
        disk: what it led to.
    """

    def __init__(self, folder: Path, *, fault: Fault | None = None, seed: int = 0) -> None:
        self.folder = folder
        self.fault = fault
        self.events: list[Event] = []
        self.disk = Disk()
        self._lock = threading.Lock()
        self._below = "unix"
        self._seed = seed
        self._random = 0
        self._files = 0
        self.name = f"agentkit-recorder-{next(_NAMES)}"
        super().__init__(self.name, self._below, makedefault=True)
        apsw.randomness(0)  # has SQLite ask for a new seed, and so this recorder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """SQLite goes back to its own file layer. Connections must be closed by now."""
        apsw.set_default_vfs(self._below)
        self.unregister()

    def add(self, event: Event) -> None:
        """Let something happen."""
        with self._lock:
            self.events.append(event)
            self.disk.apply(event)

    def goes_on_from(self, events: list[Event]) -> None:
        """The files are those of another recording, which this one continues."""
        for event in events:
            self.add(event)
        self._files = sum(isinstance(event, Created) for event in events)

    def begin(self, state: int) -> None:
        """Mark that `state` may be found from now on."""
        self.add(Begun(state))

    def acknowledge(self, state: int) -> None:
        """Mark that nothing older than `state` may be found from now on."""
        self.add(Acknowledged(state))

    def may_fail(self, operation: Operation, name: str) -> None:
        """Raise the fault that hits this operation, if any does."""
        error = self.fault(operation, name) if self.fault else None
        if error is not None:
            raise error

    def file(self, path: str) -> int | None:
        """The number of the file at `path`; `None` where it is not recorded."""
        return self.disk.names.get(Path(path).name) if Path(path).parent == self.folder else None

    def create(self, path: str) -> int:
        """Give a new file a number."""
        self._files += 1
        self.add(Created(Path(path).name, self._files))
        return self._files

    def xOpen(  # noqa: N802 (the name is SQLite's)
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file and listen to it."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or Path(path).parent != self.folder:
            return apsw.VFSFile(self._below, name or "", flags)
        self.may_fail("open", Path(path).name)
        opened = _RecordedFile(self, name or "", flags)
        if self.file(path) is None:
            self.create(path)
        opened.number = self.file(path) or 0
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 (SQLite's)
        """Delete a file."""
        if self.file(filename) is None:
            super().xDelete(filename, syncdir)
        else:
            self.may_fail("delete", Path(filename).name)
            super().xDelete(filename, syncdir)
            self.add(Deleted(Path(filename).name, syncdir))

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802 (the name is SQLite's)
        """Seeded, so that a recording can be repeated byte for byte."""
        from random import Random  # noqa: TID251 - seeded

        self._random += 1
        return Random(f"{self._seed}:{self._random}").randbytes(numbytes)  # noqa: S311 - no secret


class _RecordedFile(apsw.VFSFile):
    """One open file. What failed has not happened."""

    def __init__(self, recorder: Recorder, name: str | apsw.URIFilename, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.number = 0
        self._recorder = recorder
        self._name = Path(path).name
        # As SQLite's layer for Unix does it: whoever opened a journal in such a way that it would
        # have been created syncs the folder too when it first syncs the file.
        self._enters = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 (the name is SQLite's)
        self._recorder.may_fail("read", self._name)
        return super().xRead(amount, offset)

    def xFileSize(self) -> int:  # noqa: N802 (the name is SQLite's)
        self._recorder.may_fail("size", self._name)
        return super().xFileSize()

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (the name is SQLite's)
        self._recorder.may_fail("write", self._name)
        super().xWrite(data, offset)
        self._recorder.add(Wrote(self.number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 (the name is SQLite's)
        self._recorder.may_fail("truncate", self._name)
        super().xTruncate(newsize)
        self._recorder.add(Truncated(self.number, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 (the name is SQLite's)
        self._recorder.may_fail("sync", self._name)
        super().xSync(flags)
        self._recorder.add(Synced(self.number, self._enters))
        self._enters = False

    def xClose(self) -> None:  # noqa: N802 (the name is SQLite's)
        with contextlib.suppress(AttributeError):
            super().xClose()
