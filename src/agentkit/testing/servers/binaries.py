"""Finding the programs of the servers, and saying how to get the ones that are missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agentkit.core.contracts.errors import AgentkitError

__all__ = ["POSTGRES", "BinaryMissing", "find", "missing"]

POSTGRES = ("initdb", "postgres", "psql")
"""What a Postgres of our own needs."""

_OTHER_NAMES = {
    "redis-server": ("valkey-server",),
    "redis-cli": ("valkey-cli",),
    "redis-sentinel": ("valkey-sentinel",),
}
_PACKAGES = {
    **dict.fromkeys(POSTGRES, "postgresql"),
    "pgbouncer": "pgbouncer",
    "redis-server": "redis-server",
    "redis-cli": "redis-server",
    "redis-sentinel": "redis-sentinel",
}
# Debian keeps daemons and Postgres's own programs where an ordinary user's PATH does not look.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
_POSTGRES_FOLDERS = "/usr/lib/postgresql"


class BinaryMissing(AgentkitError):
    """A program is not on this machine. The message says how to get it."""


def find(name: str) -> str:
    """The full path of a program: from PATH, else from where Debian puts it.

    Raises:
        BinaryMissing: it is in neither.
    """
    folders = [*os.get_exec_path(), *_FOLDERS]
    if name in POSTGRES:
        folders += map(str, _newest_first(Path(_POSTGRES_FOLDERS)))
    for candidate in (name, *_OTHER_NAMES.get(name, ())):
        found: str | None = shutil.which(candidate, path=os.pathsep.join(folders))
        if found is not None:
            return found
    raise BinaryMissing(
        f"{name} is not on this machine. On Debian and Ubuntu: apt-get install {_PACKAGES[name]}. "
        "Elsewhere install it and put it on PATH."
    )


def missing(*names: str) -> list[str]:
    """The programs that `find` would not find."""
    absent = []
    for name in names:
        try:
            find(name)
        except BinaryMissing:
            absent.append(name)
    return absent


def _newest_first(root: Path) -> list[Path]:
    versions = [folder for folder in root.glob("*/bin") if folder.parent.name.isdecimal()]
    return sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)
