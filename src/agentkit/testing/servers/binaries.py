"""Finding the programs of the servers, and saying how to get the ones that are missing."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from agentkit.core.contracts.errors import AgentkitError

__all__ = ["KINDS", "POSTGRES", "BinaryMissing", "find", "missing", "missing_kinds"]

POSTGRES = ("initdb", "postgres", "psql")
"""What a Postgres of our own needs."""

KINDS = {
    "postgres": POSTGRES,
    "pgbouncer": (*POSTGRES, "pgbouncer"),
    "redis": ("redis-server",),
}
"""The kinds of servers, and the programs of each. Cluster and sentinels are Redis too."""

_OTHER_NAMES = {"redis-server": ("valkey-server",)}
_PACKAGES = {
    **dict.fromkeys(POSTGRES, "postgresql"),
    "pgbouncer": "pgbouncer",
    "redis-server": "redis-server",
}
# Debian keeps daemons and Postgres's own programs where an ordinary user's PATH does not look.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
_POSTGRES_FOLDERS = "/usr/lib/postgresql"


class BinaryMissing(AgentkitError):
    """A program is not on this machine. The message says how to get it."""


def find(name: str) -> str:
    """The full path of a program: from PATH, else from where Debian puts it.

    Raises:
        BinaryMissing: it is in neither, or this is not Linux, whose means the servers rely on.
    """
    if platform.system() != "Linux":
        raise BinaryMissing(f"servers for tests are started on Linux only, not {name} here")
    folders = [*os.get_exec_path(), *_FOLDERS]
    if name in POSTGRES:
        folders += map(str, _newest_first(Path(_POSTGRES_FOLDERS)))
    for folder in folders:
        for candidate in (name, *_OTHER_NAMES.get(name, ())):
            found: str | None = shutil.which(candidate, path=folder)
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


def missing_kinds() -> list[str]:
    """The kinds of servers that cannot be started here."""
    return [kind for kind, programs in KINDS.items() if missing(*programs)]


def _newest_first(root: Path) -> list[Path]:
    versions = [folder for folder in root.glob("*/bin") if folder.parent.name.isdecimal()]
    return sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)
