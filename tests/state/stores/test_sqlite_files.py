"""SQLite: files that are ours, files that are not, and files that go away."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import apsw
import pytest

from agentkit.core.contracts.errors import (
    InvalidStoreUrl,
    JournalTooNew,
    StoreDamaged,
    StoreMisused,
    StoreUnreachable,
)
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, _store_clock
from agentkit.state.checkpoints.adapters.sqlite import Durability
from tests.state.stores.helpers import (
    TTL_SECONDS,
    child,
    contents,
    finish,
    left_behind,
    rows,
    started,
    summary,
)


def _text(path: Path) -> None:
    path.write_text("to do: buy milk\n" * 100, encoding="utf-8")


def _short(path: Path) -> None:
    path.write_bytes(b"SQLite format 2\x00")


def _of_another_program(path: Path) -> None:
    with apsw.Connection(str(path)) as db:
        db.execute("CREATE TABLE agentkit_run (x); INSERT INTO agentkit_run VALUES (1)")
    db.close()


def _in_use_by_another_program(path: Path) -> None:
    """A foreign file with a write-ahead log that its program would still need."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE notes (x); INSERT INTO notes VALUES (1)")
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close()


def _without_tables(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA application_id = 1097288564; PRAGMA user_version = 1; CREATE TABLE x (y)")
    db.close()


def _newer(path: Path) -> None:
    asyncio.run(_made(path))
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 2")
    db.close()


def _newer_in_its_log(path: Path) -> None:
    """A newer release migrated the file a moment ago; the file itself does not show it yet."""
    asyncio.run(_made(path))
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 2")
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close()


async def _made(path: Path) -> None:
    store = SqliteCheckpointStore(path)
    await started(store, "r")
    await store.aclose()


@pytest.mark.parametrize(
    ("prepare", "error", "says"),
    [
        (_text, StoreDamaged, "is not a SQLite database"),
        (_short, StoreDamaged, "is not a SQLite database"),
        (_of_another_program, StoreDamaged, "of another program"),
        (_in_use_by_another_program, StoreDamaged, "of another program"),
        (_newer, JournalTooNew, "schema 2"),
        (_newer_in_its_log, JournalTooNew, "schema 2"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_untouched(
    tmp_path: Path, prepare: Callable[[Path], None], error: type[Exception], says: str
) -> None:
    """The error names the file and says what it is; not one byte of the folder changes."""
    path = tmp_path / "runs.db"
    prepare(path)
    before = contents(tmp_path)

    for _ in range(2):
        with pytest.raises(error, match=says) as refused:
            asyncio.run(_made(path))
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)
        with pytest.raises(error, match=says):
            asyncio.run(_looked_at(path))

    assert before == contents(tmp_path)


async def _looked_at(path: Path) -> None:
    store = SqliteCheckpointStore(path)
    await store.list_runs()


def test_a_store_without_its_tables_is_damaged(tmp_path: Path) -> None:
    """A file that carries our mark and nothing else is not taken for an empty store."""
    path = tmp_path / "runs.db"
    _without_tables(path)
    before = path.read_bytes()

    with pytest.raises(StoreDamaged, match="lacks the tables"):
        asyncio.run(_made(path))

    assert before == path.read_bytes()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """A file of no bytes (`touch`, a temporary file) belongs to nobody yet."""
    path = tmp_path / "runs.db"
    path.touch()

    asyncio.run(_made(path))

    assert path.read_bytes().startswith(b"SQLite format 3\x00")


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "runs.db")


def _nothing(path: Path) -> None:
    """Leave the path free."""


@pytest.mark.parametrize(
    ("prepare", "name", "says"),
    [
        (_folder, "runs.db", "is a folder"),
        (_pipe, "runs.db", "not a regular file"),
        (_nothing, "missing/runs.db", "does not exist. Create"),
        (_dangling, "runs.db", "does not exist. Create"),
        (_nothing, "x" * 300, "cannot be created"),
    ],
)
def test_a_path_that_cannot_be_used_is_unreachable(
    tmp_path: Path, prepare: Callable[[Path], None], name: str, says: str
) -> None:
    """One paragraph with the path and what to do; nothing appears on the disk."""
    path = tmp_path / name
    prepare(path)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(StoreUnreachable, match=says) as refused:
        asyncio.run(_made(path))

    assert "\n" not in str(refused.value)
    assert before == sorted(tmp_path.rglob("*"))


def test_a_file_in_place_of_the_folder_is_unreachable(tmp_path: Path) -> None:
    """A path that leads through a file is no path."""
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnreachable):
        asyncio.run(_made(tmp_path / "file" / "runs.db"))


@pytest.mark.parametrize("path", ["", ":memory:", "sqlite:///runs.db"])
def test_what_names_no_file_is_refused_at_once(path: str) -> None:
    """A database in memory would lose every run with the process, so it is not offered here."""
    with pytest.raises(InvalidStoreUrl):
        SqliteCheckpointStore(path)


def test_synchronous_is_full_or_normal(tmp_path: Path) -> None:
    """There is no setting under which the death of a process loses entries."""
    with pytest.raises(StoreMisused, match="OFF"):
        SqliteCheckpointStore(tmp_path / "runs.db", synchronous="OFF")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["FULL", "NORMAL"])
async def test_a_commit_is_as_durable_as_was_asked_for(
    tmp_path: Path, level: Literal["FULL", "NORMAL"]
) -> None:
    """SQLite itself says what the connection that writes is set to; FULL is the default."""
    path = tmp_path / "runs.db"
    asked = SqliteCheckpointStore(path, synchronous=level)
    default = SqliteCheckpointStore(path)

    told = [await store.durability() for store in (asked, default)]

    assert [Durability("wal", level), Durability("wal", "FULL")] == told
    await asked.aclose()
    await default.aclose()


async def test_the_files_are_private(sqlite: SqliteCheckpointStore, tmp_path: Path) -> None:
    """Journals hold what users said: only their user reads them."""
    await started(sqlite, "r")

    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in contents(tmp_path)}

    assert {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600} == modes


def test_a_location_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, detours and symbolic links to one file give one location, for good."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    monkeypatch.chdir(tmp_path)
    stores = [
        SqliteCheckpointStore(path)
        for path in ("sub/a.db", "link/a.db", tmp_path / "sub" / ".." / "link" / "a.db")
    ]
    monkeypatch.chdir("/")

    assert {f"sqlite:///{tmp_path}/sub/a.db"} == {store.location for store in stores}
    assert stores[0].location != SqliteCheckpointStore(tmp_path / "sub" / "b.db").location


def test_the_file_is_readable_without_us(tmp_path: Path) -> None:
    """Any SQLite shell shows runs and entries as text."""
    path = tmp_path / "runs.db"
    asyncio.run(_made(path))
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "print(db.execute('SELECT run, seq, body FROM agentkit_journal').fetchall())\n"
        "print(db.execute('SELECT run, status, agent, detail FROM agentkit_run').fetchall())\n"
        "db.close()\n"
    )

    shown = finish(child(program, path))

    assert "[('r', 1, '[1, \"fact\"]')]\n[('r', 'running', 'agent', b'{}')]\n" == shown


async def test_a_removed_file_is_noticed(sqlite: SqliteCheckpointStore, tmp_path: Path) -> None:
    """Entries are not acknowledged into a file that no name leads to any more."""
    lease = await started(sqlite, "r")
    for name in contents(tmp_path):
        (tmp_path / name).unlink()

    with pytest.raises(StoreUnreachable, match="removed while it was in use"):
        await sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())

    assert {} == contents(tmp_path)


async def test_a_replaced_file_is_noticed_and_kept(
    sqlite: SqliteCheckpointStore, tmp_path: Path
) -> None:
    """A backup that is put in place of the file, with its log, is not mixed with the old one."""
    (tmp_path / "backup").mkdir()
    backup = left_behind(tmp_path / "backup", 8)
    lease = await started(sqlite, "mine")
    await sqlite.read("mine")
    for suffix in ("", "-wal", "-shm"):
        os.replace(f"{backup}{suffix}", f"{tmp_path}/runs.db{suffix}")  # noqa: PTH105 - suffixes

    with pytest.raises(StoreUnreachable, match="replaced"):
        await sqlite.append("mine", rows(2), after=1, lease=lease, summary=summary())
    with pytest.raises(StoreUnreachable, match="replaced"):
        await sqlite.read("mine")

    assert rows(1, 8) == await sqlite.read("r")
    assert await sqlite.head("mine") is None


async def test_a_lease_of_another_boot_has_lapsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the machine its clock counts from zero; no process survived anyway."""
    path, clock = tmp_path / "runs.db", FakeClock(elapsed=1_000_000.0)
    before = SqliteCheckpointStore(path, clock=clock)
    lease = await started(before, "r")
    await before.aclose()
    monkeypatch.setattr(_store_clock, "boot_id", lambda: "another boot")
    after = SqliteCheckpointStore(path, clock=FakeClock(elapsed=1.0))

    head = await after.head("r")
    taken = await after.acquire("r", "heir", TTL_SECONDS)

    assert head is not None
    assert (False, "worker") == (head.held, head.owner)
    assert head.expires_in_seconds < 0
    assert (True, 1) == (taken.took_over, taken.head.recoveries)
    assert taken.epoch > lease.epoch
    assert await _held(after)
    await after.aclose()


async def _held(store: SqliteCheckpointStore) -> bool:
    head = await store.head("r")
    return head is not None and head.held


async def test_a_store_survives_its_object(tmp_path: Path, clock: FakeClock) -> None:
    """What one object wrote another one reads, with the lease as it was."""
    path = tmp_path / "runs.db"
    first = SqliteCheckpointStore(path, clock=clock)
    await started(first, "r", 3)
    await first.aclose()

    second = SqliteCheckpointStore(str(path), clock=clock)

    assert rows(1, 3) == await second.read("r")
    assert await _held(second)
    await second.aclose()
