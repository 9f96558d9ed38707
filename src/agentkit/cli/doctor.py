"""`doctor`: what this installation has, and whether its store can be trusted."""

from __future__ import annotations

import os
import platform
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from agentkit.cli.exits import FAILED, OK, exit_code_of
from agentkit.cli.output import emit_json, one_line, print_table
from agentkit.cli.session import run_command
from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import (
    PostgresCheckpointStore,
    RedisCheckpointStore,
    SqliteCheckpointStore,
)
from agentkit.state.checkpoints.places import in_memory, is_missing, missing_file

__all__ = ["examine"]

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
_SDKS = ("anthropic", "openai")

_FIRST_SOUND_SQLITE = (3, 51, 3)
"""Before it a reset of the write-ahead log could damage the file: https://sqlite.org/wal.html"""

_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs"}
    | {"lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "virtiofs"}
)

_PAST_SECONDS = 60.0
"""A store whose newest entry is so far ahead of the clock was written under another clock."""

_INTEGRITY_SECONDS = 10.0
"""Longest time of SQLite's check of the file."""

_Level: TypeAlias = Literal["ok", "note", "bad"]


class _Finding(NamedTuple):
    """`level`: ok, note (fine, but worth knowing) or bad."""

    subject: str
    level: _Level
    text: str


def examine(store_url: str | None, *, repair: bool, as_json: bool) -> None:
    """Check and tell; leaves with 1 where something is bad, 6 where the store cannot be used."""

    async def work(store: JournalPort) -> int:
        findings = _installation()
        code = OK
        try:
            findings += await _repaired(store) if repair else []
            findings += await _integrity(store)
            findings += await _store(store)
        except AgentkitError as error:
            findings.append(_Finding("store", "bad", one_line(str(error))))
            code = exit_code_of(error)
        if as_json:
            emit_json([finding._asdict() for finding in findings])
        else:
            print_table(
                ("", "subject", "finding"), [(f.level, f.subject, f.text) for f in findings]
            )
        return code or (FAILED if any(finding.level == "bad" for finding in findings) else OK)

    run_command(store_url, work, as_json=as_json, creates=True)


def _installation() -> list[_Finding]:
    import apsw

    version = apsw.sqlite_lib_version()
    sound = tuple(int(part) for part in version.split(".")) >= _FIRST_SOUND_SQLITE
    findings = [
        _Finding("python", "ok", platform.python_version()),
        _Finding("sqlite", "ok" if sound else "bad", f"{version} (bundled with apsw)"),
    ]
    if not hasattr(time, "CLOCK_BOOTTIME"):
        text = "no clock that counts while the machine sleeps; leases use the monotonic one"
        findings.append(_Finding("clock", "note", text))
    for sdk in _SDKS:
        if find_spec(sdk) is None:
            text = f'not installed: pip install "arc-agentkit[{sdk}]"'
            findings.append(_Finding(sdk, "note", text))
        else:
            findings.append(_Finding(sdk, "ok", "SDK installed"))
    for key in _KEYS:
        there = bool(os.environ.get(key))
        findings.append(_Finding(key, "ok" if there else "note", "set" if there else "not set"))
    return findings


async def _store(store: JournalPort) -> list[_Finding]:
    """Reaches the store; one that cannot be used raises, one that is not there is left so."""
    where = store.location
    if in_memory(store):
        return [_Finding("store", "note", f"{where}: runs die with the process")]
    missing = missing_file(store)
    if missing is not None:
        return [_to_be_made(missing), *_file_system(missing.parent)]
    if await is_missing(store):
        return [_Finding("store", "note", f"{where}: not there yet; agentkit run makes it")]
    page, _ = await store.list_runs(limit=1)
    findings = [
        _Finding("store", "ok", f"{where}: reachable, {'has runs' if page else 'no runs yet'}")
    ]
    ahead = page[0].summary.updated_at / 1000 - SystemClock().now() if page else 0.0
    if ahead > _PAST_SECONDS:
        text = f"the store's newest entry is {ahead:.0f} s in the future of this machine's clock"
        findings.append(_Finding("clock", "note", text))
    if isinstance(store, SqliteCheckpointStore):
        findings += await _durability(store)
        findings += _file_system(Path(where.removeprefix("sqlite:///")).parent)
    if isinstance(store, PostgresCheckpointStore):
        findings += await _postgres_durability(store)
    if isinstance(store, RedisCheckpointStore):
        findings += await _redis_durability(store)
    return findings


async def _repaired(store: JournalPort) -> list[_Finding]:
    if not isinstance(store, RedisCheckpointStore):
        return [_Finding("repair", "note", "this store has no lists that could lack runs")]
    runs = await store.rebuild_lists()
    return [_Finding("repair", "ok", f"lists made anew; runs in them: {runs}")]


async def _integrity(store: JournalPort) -> list[_Finding]:
    if not isinstance(store, SqliteCheckpointStore) or missing_file(store) is not None:
        return []
    found = await store.integrity(limit_seconds=_INTEGRITY_SECONDS)
    if found is None:
        text = f"not known: the check was stopped after {_INTEGRITY_SECONDS:g} s"
        return [_Finding("integrity", "note", text)]
    if not found:
        return [_Finding("integrity", "ok", "SQLite finds no damage in the file")]
    return [_Finding("integrity", "bad", one_line(line)) for line in found]


async def _durability(store: SqliteCheckpointStore) -> list[_Finding]:
    settings = await store.durability()
    safe = settings.journal_mode == "wal" and settings.synchronous == "FULL"
    text = f"journal_mode={settings.journal_mode}, synchronous={settings.synchronous}"
    why = "an acknowledged entry survives power loss" if safe else "entries may be lost"
    return [_Finding("durability", "ok" if safe else "bad", f"{text}: {why}")]


async def _postgres_durability(store: PostgresCheckpointStore) -> list[_Finding]:
    settings = await store.durability()
    safe = settings.fsync == "on" and settings.full_page_writes == "on"
    text = (
        f"synchronous_commit={settings.synchronous_commit}, fsync={settings.fsync}, "
        f"full_page_writes={settings.full_page_writes}"
    )
    why = "an acknowledged entry survives power loss" if safe else "entries may be lost"
    return [_Finding("durability", "ok" if safe else "bad", f"{text}: {why}")]


async def _redis_durability(store: RedisCheckpointStore) -> list[_Finding]:
    """What each master says of its settings; one that forbids to ask is worth a note."""
    findings = []
    for number, server in enumerate(await store.durability(), 1):
        name = f"durability {number}"
        if server.keeps_entries is None or server.keeps_runs is None:
            text = f"Redis {server.version} does not tell its settings; ask whoever runs it"
            findings.append(_Finding(name, "note", text))
            continue
        safe = server.keeps_entries and server.keeps_runs
        settings = (
            f"appendonly={server.appendonly}, appendfsync={server.appendfsync}, "
            f"no-appendfsync-on-rewrite={server.no_appendfsync_on_rewrite}, "
            f"maxmemory-policy={server.maxmemory_policy}"
        )
        why = "acknowledged entries survive" if safe else "entries or runs may be lost"
        text = f"Redis {server.version}, {settings}: {why}"
        findings.append(_Finding(name, "ok" if safe else "bad", text))
    return findings


def _to_be_made(file: Path) -> _Finding:
    if not file.parent.is_dir():
        return _Finding("store", "bad", f"{file}: its folder does not exist; make it first")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return _Finding("store", "bad", f"{file}: this user cannot make files in its folder")
    return _Finding("store", "note", f"{file} is not there yet; agentkit run makes it")


def _file_system(folder: Path) -> list[_Finding]:
    """Whether the folder lies on a network file system, where that is told (Linux)."""
    try:
        device = folder.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        kind = rest.split(" ", 1)[0]
        if wanted in mount.split()[2:3] and kind in _NETWORK_FILE_SYSTEMS:
            text = f"{folder} is on a network file system ({kind}); SQLite is not safe there"
            return [_Finding("file system", "note", text)]
    return []
