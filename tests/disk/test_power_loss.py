"""The power fails at any moment: what was acknowledged under FULL is there, and nothing else."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import StoreDamaged
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.testing.disk.__main__ import main
from agentkit.testing.disk.image import Disk, Event, Synced, Wrote
from agentkit.testing.disk.power import CASES_PER_RECORDING, Recording, power_loss, record
from agentkit.testing.disk.recorder import Recorder
from agentkit.testing.disk.tape import Tape, TurnLane
from tests.state.stores.helpers import rows, started, summary

RECORDINGS = 10


def some(each: int, recordings: int = RECORDINGS) -> list[int]:
    """Numbers of cases: the first `each` of several recordings."""
    return [block * CASES_PER_RECORDING + n for block in range(recordings) for n in range(each)]


def test_full_loses_no_acknowledged_entry() -> None:
    """Whatever unsynced bytes are missing, each read is what was written, up to what was told."""
    tally = power_loss(some(15), seed=1)

    assert () == tally.findings
    assert 15 * RECORDINGS == tally.cases
    assert tally.checked > 1000
    assert {"Wrote", "Synced", "Told", "Begun", "Acknowledged"} <= {*tally.events}


def test_normal_loses_acknowledged_entries_and_nothing_worse() -> None:
    """NORMAL does not sync at a commit: the rig sees the loss, and the files stay sound."""
    tally = power_loss(some(15, 5), seed=1, synchronous="NORMAL")

    assert tally.losses > 10
    assert 0 == tally.corrupt


def test_off_loses_and_corrupts() -> None:
    """Without any sync the database itself is damaged, and the rig sees that too."""
    tally = power_loss(some(30, 5), seed=1, synchronous="OFF")

    assert tally.losses > 10
    assert tally.corrupt > 0


class HastyLane(TurnLane):
    """A store with a bug: it answers, and commits afterwards."""

    def _flush(self) -> None:
        if not self._writes:
            return super()._flush()
        jobs, self._jobs = self._jobs, []
        self._tape.begin()
        self._seat.use(lambda db: db.execute("BEGIN IMMEDIATE"))
        for work, future in jobs:
            future.set_result(self._seat.use(work))
        asyncio.get_running_loop().call_soon(self._commit)
        return None

    def _commit(self) -> None:
        self._seat.use(lambda db: db.execute("COMMIT"))
        self._tape.commit()


async def one_run(tape: Tape, entries: int = 6) -> None:
    """One run in one store."""
    store = tape.store()
    lease = await started(store, "run-0")
    for seq in range(2, entries + 1):
        await store.append("run-0", rows(seq), after=seq - 1, lease=lease, summary=summary())
    await store.aclose()


def recorded_with(lane: type[TurnLane], seed: int, folder: Path) -> Recording:
    """One run in a store that works through `lane`."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        with Recorder(Path(name), seed=seed) as recorder:
            tape = Tape(recorder)
            tape.lane = partial(lane, tape)
            asyncio.run(one_run(tape))
        return Recording(recorder.events, tape.states, "FULL")


def test_an_answer_before_the_commit_is_seen() -> None:
    """The rig finds a store that says "durable" too early, though SQLite does nothing wrong."""
    sound = power_loss(range(60), seed=1, recorded=partial(recorded_with, TurnLane))
    hasty = power_loss(range(60), seed=1, recorded=partial(recorded_with, HastyLane))

    assert () == sound.findings
    assert hasty.losses > 0


def test_a_recording_can_be_repeated(tmp_path: Path) -> None:
    """The same seed gives the same operations with the same bytes, so a case can be replayed."""
    for seed in (1, 3):
        assert record(seed, tmp_path) == record(seed, tmp_path)


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Put `files` into the folder; the path of the database among them."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("runs.db*"):
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "runs.db"


async def entries_of(store: JournalPort) -> list[Row]:
    """The entries of the run that these tests have."""
    try:
        return await store.read("run-0")
    finally:
        await store.aclose()


def before_the_last_sync(events: list[Event]) -> list[Event]:
    """What had happened when the last commit had been written and not yet synced."""
    last = max(at for at, event in enumerate(events) if isinstance(event, Synced))
    return events[:last]


async def two_entries(tape: Tape) -> list[Event]:
    """What happened up to the acknowledgement of the second one."""
    store = tape.store()
    lease = await started(store, "run-0")
    await store.append("run-0", rows(2), after=1, lease=lease, summary=summary())
    events = list(tape.recorder.events)
    await store.aclose()
    return events


async def told_and_then(tape: Tape) -> tuple[list[Row], list[dict[str, bytes]]]:
    """What a store tells, and what a disk may hold when the power fails directly after that."""
    store = tape.store()
    told = await store.read("run-0")
    disk = tape.recorder.disk
    disks = [disk.after_power_loss(random.Random(seed)) for seed in range(40)]
    await store.aclose()
    return told, disks


def test_what_a_killed_process_left_unsynced_is_durable_before_it_is_told(tmp_path: Path) -> None:
    """A process killed between its last write and the sync leaves an entry that the next one reads
    out of the system's memory: from there on no loss of power takes it back.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Recorder(first) as recorder:
        killed = before_the_last_sync(asyncio.run(two_entries(Tape(recorder))))
    with Recorder(second) as recorder:
        recorder.goes_on_from(killed)
        write(recorder.disk.seen(), second)
        told, disks = asyncio.run(told_and_then(Tape(recorder)))

    assert rows(1, 2) == told
    for disk in disks:
        path = write(disk, tmp_path / "found")
        assert told == asyncio.run(entries_of(SqliteCheckpointStore(path)))


@pytest.mark.parametrize("content", [bytes(4096), b"noise" * 1000])
def test_a_file_whose_creation_was_cut_off_is_created_again(tmp_path: Path, content: bytes) -> None:
    """The file has grown, its bytes did not reach the disk, and its journal says: it was empty."""
    with Recorder(tmp_path) as recorder:
        asyncio.run(one_run(Tape(recorder)))
    disk = Disk()
    for event in recorder.events:
        if isinstance(event, Wrote) and disk.names.get("runs.db") == event.file:
            break
        disk.apply(event)
    path = tmp_path / "found" / "runs.db"
    write({**disk.seen(), "runs.db": content}, path.parent)

    assert [] == asyncio.run(entries_of(SqliteCheckpointStore(path)))
    assert b"SQLite format 3" == path.read_bytes()[:15]


def test_a_foreign_file_with_a_foreign_journal_is_left_alone(tmp_path: Path) -> None:
    """Only a journal of a file that had no pages says that there is nothing to lose."""
    path = tmp_path / "runs.db"
    for journal in (b"", b"short", bytes.fromhex("d9d505f920a163d7") + bytes(range(1, 30))):
        write({"runs.db": b"foreign" * 100, "runs.db-journal": journal}, tmp_path)

        with pytest.raises(StoreDamaged, match="not a SQLite database"):
            asyncio.run(entries_of(SqliteCheckpointStore(path)))

        assert b"foreign" * 100 == path.read_bytes()


def test_the_command_tells_a_loss_by_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what was tried, and how to try a failing case again."""
    clean = main(["power-loss", "--cases", "20"])
    printed = capsys.readouterr().out
    lossy = main(["power-loss", "--cases", "20", "--synchronous", "NORMAL", "--seed", "2"])
    again = capsys.readouterr().out.splitlines()[-1]
    case = again.rpartition(" ")[2]
    replayed = main(["power-loss", "--case", case, "--synchronous", "NORMAL", "--seed", "2"])

    assert (0, 1, 1) == (clean, lossy, replayed)
    assert "20 cases" in printed
    assert f"case {case}: lost" in capsys.readouterr().out
