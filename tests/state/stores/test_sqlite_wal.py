"""SQLite's write-ahead log: a torn tail is dropped, damage in the middle is never passed over."""

import asyncio
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.errors import StoreDamaged
from agentkit.core.contracts.heads import Row
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.checkpoints.adapters._sqlite_wal import _checksum, read_log
from tests.state.stores.helpers import contents, left_behind, rows, started, summary

HEADER = 32
PAGE = 2048
FRAME = 24 + PAGE
ENTRIES = 8


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed: entry 1 in the file, 2 to 8 in its log."""
    return left_behind(tmp_path_factory.mktemp("left"), ENTRIES)


def _copy(left: Path, folder: Path) -> Path:
    path = folder / "runs.db"
    shutil.copy(left, path)
    shutil.copy(f"{left}-wal", f"{path}-wal")
    return path


def _wal(path: Path) -> Path:
    return Path(f"{path}-wal")


async def _read(path: Path) -> Sequence[Row]:
    store = SqliteCheckpointStore(path)
    try:
        return await store.read("r")
    finally:
        await store.aclose()


def _commits(log: bytes) -> list[int]:
    """Numbers of the frames, from 0 on, that end a transaction."""
    frames = range((len(log) - HEADER) // FRAME)
    return [n for n in frames if any(log[HEADER + n * FRAME + 4 : HEADER + n * FRAME + 8])]


def test_f078_an_intact_log_is_read_whole(left: Path, tmp_path: Path) -> None:
    """A process that was killed between two appends leaves nothing to mend."""
    path = _copy(left, tmp_path)

    log = read_log(_wal(path), page_size=PAGE)

    assert (0, False) == (log.bad_frame, log.damaged)
    assert rows(1, ENTRIES) == asyncio.run(_read(path))


def test_f078_a_torn_tail_is_dropped(left: Path, tmp_path: Path) -> None:
    """Cut anywhere, the log gives the transactions that are complete in it, and never an error."""
    whole = _wal(left).read_bytes()
    commits = _commits(whole)
    assert ENTRIES - 1 == len(commits)
    for frame in range(commits[-1] + 2):
        for extra in (0, 1, 23, 24, 25, PAGE // 2, FRAME - 1):
            cut = HEADER + frame * FRAME + extra
            if cut > len(whole):
                continue
            path = _copy(left, tmp_path)
            _wal(path).write_bytes(whole[:cut])

            found = asyncio.run(_read(path))

            assert rows(1, 1 + sum(commit < frame for commit in commits)) == found, cut
            for file in tmp_path.iterdir():
                file.unlink()


def test_f078_a_torn_last_transaction_is_dropped(left: Path, tmp_path: Path) -> None:
    """A last transaction whose bytes did not all reach the disk was acknowledged to nobody,
    whichever of them are missing.
    """
    whole = _wal(left).read_bytes()
    before, last = _commits(whole)[-2:]
    assert last - before > 1, "the last transaction has several frames"
    for frame in range(before + 1, last + 1):
        start = HEADER + frame * FRAME
        for lost in (slice(start, start + FRAME), slice(start + 600, start + FRAME)):
            path = _copy(left, tmp_path)
            torn = bytearray(whole)
            torn[lost] = bytes(lost.stop - lost.start)
            _wal(path).write_bytes(torn)

            assert rows(1, ENTRIES - 1) == asyncio.run(_read(path)), (frame, lost)
            for file in tmp_path.iterdir():
                file.unlink()


def _flips(log: bytes) -> Iterator[int]:
    """Positions in every region of the header and of each frame before the last transaction."""
    yield from range(HEADER)
    for frame in range(_commits(log)[-2] + 1):
        start = HEADER + frame * FRAME
        yield from (start + offset for offset in range(24))
        yield from (start + offset for offset in (24, 25, 24 + PAGE // 2, FRAME - 1))


def test_f078_a_flipped_byte_in_the_middle_stops_with_its_place(left: Path, tmp_path: Path) -> None:
    """A bad frame before a later commit was acknowledged: nothing is read, nothing is written."""
    whole = _wal(left).read_bytes()
    path = _copy(left, tmp_path)
    positions = list(_flips(whole))

    for position in positions:
        for pattern in (0xFF, 0x01):
            damaged = bytearray(whole)
            damaged[position] ^= pattern
            _wal(path).write_bytes(damaged)

            assert read_log(_wal(path), page_size=PAGE).damaged, (position, pattern)
    assert len(positions) > 300


@pytest.mark.parametrize("position", [0, 9, 17, 30, HEADER + 3, HEADER + 17, HEADER + 500])
def test_f078_a_damaged_log_is_left_as_it_is(left: Path, tmp_path: Path, position: int) -> None:
    """The error names the file and the frame, and not one byte of the folder changes."""
    path = _copy(left, tmp_path)
    damaged = bytearray(_wal(path).read_bytes())
    damaged[position] ^= 0xFF
    _wal(path).write_bytes(damaged)
    before = contents(tmp_path)

    with pytest.raises(StoreDamaged, match=r"-wal is damaged at frame 1") as refused:
        asyncio.run(_read(path))

    assert str(path) in str(refused.value)
    assert before == contents(tmp_path)


def test_a_flip_in_the_last_transaction_cannot_be_told_from_a_torn_one(
    left: Path, tmp_path: Path
) -> None:
    """The one loss that is not noticed: it is the last append, and whole."""
    path = _copy(left, tmp_path)
    damaged = bytearray(_wal(path).read_bytes())
    damaged[-1] ^= 0xFF
    _wal(path).write_bytes(damaged)

    assert rows(1, ENTRIES - 1) == asyncio.run(_read(path))


def test_frames_of_an_earlier_round_are_no_damage(tmp_path: Path) -> None:
    """SQLite starts the log again from its beginning; what is left of the round before follows."""
    path = left_behind(tmp_path, "restarted")

    log = read_log(_wal(path), page_size=PAGE)

    assert 0 < log.bad_frame < 10, "the log was started again"
    assert not log.damaged
    assert rows(1, 41) == asyncio.run(_read(path))


def _log_of(rounds: Sequence[Sequence[int]]) -> bytes:
    """A log that was started again for each round but the first; a frame is the size that its
    transaction leaves the database with, or 0 where it does not end one.
    """
    log = bytearray()
    for number, commits in enumerate(rounds, 1):
        head = struct.pack(">6I", 0x377F0682, 3007000, PAGE, number, number, 7 + number)
        sums = _checksum(head, (0, 0), "<")
        new = head + struct.pack(">2I", *sums)
        for place, commit in enumerate(commits, 1):
            start, data = struct.pack(">2I", place, commit), bytes([number, place]) * (PAGE // 2)
            sums = _checksum(data, _checksum(start, sums, "<"), "<")
            new += start + struct.pack(">4I", number, 7 + number, *sums) + data
        log[: len(new)] = new
    return bytes(log)


def test_a_frame_with_the_first_bytes_of_an_older_one_is_a_torn_tail(tmp_path: Path) -> None:
    """A frame's header may lie in two sectors. Where the disk wrote the second one alone, the frame
    seems to end a transaction, as the older one there did, and a commit seems to follow it.
    """
    frame = 42
    start = HEADER + (frame - 1) * FRAME
    assert 8 == -start % 512, "the header's first 8 bytes lie in a sector of their own"
    old = [50] * 60
    new = [50] * (frame - 1) + [0, 50]
    whole, before = _log_of([old, new]), _log_of([old])
    torn = whole[:start] + before[start : start + 8] + whole[start + 8 :]
    (tmp_path / "wal").write_bytes(torn)

    log = read_log(tmp_path / "wal", page_size=PAGE)

    assert (frame, False) == (log.bad_frame, log.damaged)


def test_a_log_without_its_file_is_not_thrown_away(left: Path, tmp_path: Path) -> None:
    """Where the file is gone but its log is there, a new empty store would hide the loss."""
    path = _copy(left, tmp_path)
    _whole_page_one(path)
    path.unlink()

    with pytest.raises(StoreDamaged, match="its write-ahead log"):
        asyncio.run(_read(path))

    assert _wal(path).stat().st_size > HEADER


def _whole_page_one(path: Path) -> None:
    """Have the log hold the file's first page, as after a change of the schema."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 1; CREATE TABLE extra (x)")
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close()


async def test_a_log_in_use_is_never_taken_for_damaged(tmp_path: Path) -> None:
    """Scanning while another thread appends and starts the log again finds no damage."""
    store = SqliteCheckpointStore(tmp_path / "runs.db", synchronous="NORMAL")
    lease = await started(store, "r")
    scans: list[bool] = []

    async def scan() -> None:
        while not done.is_set():
            log = await asyncio.to_thread(read_log, _wal(tmp_path / "runs.db"), page_size=PAGE)
            scans.append(log.damaged)

    done = asyncio.Event()
    scanning = asyncio.ensure_future(scan())
    checkpointer = apsw.Connection(str(tmp_path / "runs.db"))
    for seq in range(2, 600):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
        if seq % 5 == 0:
            _checkpoint(checkpointer)
    done.set()
    await scanning

    checkpointer.close()
    await store.aclose()
    assert len(scans) > 20
    assert not any(scans)


def _checkpoint(db: apsw.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
