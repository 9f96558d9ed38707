"""The SQLite driver: loaded when first needed, and its errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from agentkit.core.contracts.errors import StoreDamaged, StoreError, StoreUnreachable
from agentkit.state.checkpoints.adapters._sqlite_locks import writer_of

if TYPE_CHECKING:
    from types import ModuleType

    import apsw

OLDEST_SAFE = (3, 51, 3)
"""Earlier libraries can damage a write-ahead log while it is reset,
https://sqlite.org/wal.html#walresetbug."""


@cache
def driver() -> ModuleType:
    """The `apsw` module.

    Raises:
        StoreError: its SQLite library is one that can damage files.
    """
    import apsw

    if tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) < OLDEST_SAFE:
        raise StoreError(
            f"apsw brings SQLite {apsw.sqlite_lib_version()}, which can damage a write-ahead log; "
            f"install apsw 3.51.3 or later from a wheel, which brings its own SQLite"
        )
    return apsw


@contextmanager
def driver_errors(path: str) -> Iterator[None]:
    """Turn the driver's errors into `StoreUnreachable`, `StoreDamaged` or `StoreError`."""
    apsw = driver()
    try:
        yield
    except apsw.Error as exc:
        raise _translate(exc, path) from exc


def _translate(exc: apsw.Error, path: str) -> StoreError:
    apsw = driver()
    if isinstance(exc, apsw.BusyError | apsw.LockedError | apsw.ProtocolError):
        return _locked(path)
    if isinstance(exc, apsw.FullError):
        return StoreUnreachable(
            f"the disk of the store {path} is full ({exc}). Free some space and resume."
        )
    if isinstance(exc, apsw.IOError | apsw.CantOpenError):
        return StoreUnreachable(
            f"the store {path} cannot be read or written ({exc}). Check the disk and its free "
            f"space, the folder, and that the file is on a local file system, then resume."
        )
    if isinstance(exc, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreUnreachable(
            f"the store {path} cannot be written ({exc}). Give this user permission to write the "
            f"file and its folder."
        )
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError):
        return StoreDamaged(
            f"the store {path} is damaged ({exc}). Keep a copy of it with its -wal file, and "
            f"restore a backup."
        )
    return StoreError(f"the store {path} failed: {type(exc).__name__}: {exc}")


def _locked(path: str) -> StoreUnreachable:
    writer = writer_of(path)
    if not writer:
        return StoreUnreachable(
            f"the store {path} is locked by another process for longer than this one waits. "
            f"See which process holds it, for instance with `fuser {path}`, and try again."
        )
    return StoreUnreachable(
        f"the store {path} is being written by {writer} for longer than this one waits. Let that "
        f"process go on or end it, and try again."
    )
