"""Power loss: a recorded store is rebuilt as the disk may hold it, and opened."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a case can be repeated
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import apsw

from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, _sqlite_wal
from agentkit.testing.disk.image import Disk, Event, Synced, Told
from agentkit.testing.disk.recorder import Recorder
from agentkit.testing.disk.tape import State, Tape, digest_of, read_all
from agentkit.testing.disk.traffic import RUNS, Traffic, agents_at_work, scope_of

__all__ = [
    "CASES_PER_RECORDING",
    "Case",
    "Finding",
    "Recording",
    "Tally",
    "memory",
    "power_loss",
    "record",
]

CASES_PER_RECORDING = 250
"""How many moments and states of a disk are tried of one recording."""

_ROUNDS = 24
_SECONDS = 60.0
_LATER = 10_000.0


class Recording(NamedTuple):
    """What happened to a store, over one life of a process or two."""

    events: list[Event]
    states: list[bytes]
    synchronous: str


class Case(NamedTuple):
    """One power loss: its number, after which event, and the files that the next boot finds."""

    number: int
    at: int
    disk: Disk
    files: dict[str, bytes]


class Finding(NamedTuple):
    """What was wrong. `lost`: something that somebody was told or has seen is not there."""

    case: int
    lost: bool
    what: str


class Tally(NamedTuple):
    """What a campaign came to.

    Args:
        cases: states of a disk that were opened.
        checked: acknowledged entries that were looked for in them.
        findings: what was wrong.
        events: how often the power failed after an event of each kind.
    """

    cases: int = 0
    checked: int = 0
    findings: tuple[Finding, ...] = ()
    events: Mapping[str, int] = {}

    @property
    def losses(self) -> int:
        """Cases in which something acknowledged was gone."""
        return sum(finding.lost for finding in self.findings)

    @property
    def corrupt(self) -> int:
        """Cases that could not be opened, or held what was never written."""
        return len(self.findings) - self.losses

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            self.cases + other.cases,
            self.checked + other.checked,
            self.findings + other.findings,
            Counter(self.events) + Counter(other.events),
        )


def power_loss(
    numbers: Iterable[int],
    *,
    seed: int,
    synchronous: str = "FULL",
    recorded: Callable[[int, Path], Recording] | None = None,
    keep: Path | None = None,
) -> Tally:
    """Try these cases.

    Args:
        numbers: of the cases; a case is the same in whatever company it is tried.
        seed: of the campaign.
        synchronous: `FULL`, `NORMAL` or `OFF`.
        recorded: makes the recordings from a seed and an empty folder; `record` if `None`.
        keep: a folder for the files of each case that fails.
    """
    recorded = recorded or partial(record, synchronous=synchronous)
    tally = Tally()
    blocks: dict[int, list[int]] = {}
    for number in numbers:
        blocks.setdefault(number // CASES_PER_RECORDING, []).append(number)
    with (
        tempfile.TemporaryDirectory(dir=memory()) as name,
        asyncio.Runner() as runner,
        _remembered_checksums(),
    ):
        folder = Path(name)
        for block, mine in blocks.items():
            made = recorded(seed * 1_000_003 + block, folder)
            for case in _cases(made, mine, seed):
                tally = tally.plus(_tried(case, made, folder / "found", runner))
                if keep and tally.findings and tally.findings[-1].case == case.number:
                    _write(case.files, keep / f"case-{case.number}")
    return tally


def record(
    seed: int,
    folder: Path,
    *,
    synchronous: str = "FULL",
) -> Recording:
    """Record a store at work.

    One recording of five is of agents, the others of dice; two of five are of a process that is
    killed and of the next one, which works on what the first one left.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    with _fresh(folder / "first") as first, Recorder(first, seed=seed) as recorder:
        tape = Tape(recorder, synchronous=synchronous)
        if seed % 5 == 0:
            asyncio.run(_soon(agents_at_work(tape.store(), chance)))
            return Recording(recorder.events, tape.states, synchronous)
        traffic = Traffic(tape, chance)
        asyncio.run(_soon(traffic.go(_ROUNDS)))
        if seed % 5 < 3:  # noqa: PLR2004 - two of five
            return Recording(recorder.events, tape.states, synchronous)
    at = _instant_of_death(recorder.events, chance)
    events, notes = recorder.events[:at], traffic.open_at(at)
    with _fresh(folder / "second") as second, Recorder(second, seed=seed + 1) as recorder:
        recorder.goes_on_from(events)
        _write(recorder.disk.seen(), second)
        tape = tape.next_life(recorder)
        asyncio.run(_soon(Traffic(tape, chance).go(_ROUNDS // 2, again=notes)))
        return Recording(recorder.events, tape.states, synchronous)


async def _soon(work: Awaitable[None]) -> None:
    async with asyncio.timeout(_SECONDS):
        await work


def _instant_of_death(events: Sequence[Event], chance: random.Random) -> int:
    """When the first process is killed: as often as not between a write and its sync, where the
    next process sees what the disk does not have yet.
    """
    early = len(events) // 4
    syncs = [at for at in range(early, len(events)) if isinstance(events[at], Synced)]
    anywhere = chance.randrange(early, len(events))
    return chance.choice((anywhere, chance.choice(syncs or [anywhere])))


def _cases(made: Recording, numbers: Sequence[int], seed: int) -> Iterator[Case]:
    """The cases in the order of their moments, so that the events are gone through once."""
    dice = {n: random.Random(f"{seed}:{n}") for n in numbers}  # noqa: S311 - no secret
    moments = sorted((dice[n].randrange(len(made.events) + 1), n) for n in numbers)
    disk, applied = Disk(), 0
    for at, number in moments:
        for event in made.events[applied:at]:
            disk.apply(event)
        applied = at
        yield Case(number, at, disk, disk.after_power_loss(dice[number]))


def _tried(case: Case, made: Recording, folder: Path, runner: asyncio.Runner) -> Tally:
    """Open what the next boot finds, and judge it."""
    with _fresh(folder):
        _write(case.files, folder)
        finding = runner.run(_judged(case, made, folder / "runs.db"))
    event = made.events[case.at - 1] if case.at else None
    return Tally(
        cases=1,
        checked=sum(told.seq for told in case.disk.told.values()),
        findings=(finding,) if finding else (),
        events=Counter({type(event).__name__: 1}),
    )


async def _judged(case: Case, made: Recording, path: Path) -> Finding | None:
    store = SqliteCheckpointStore(
        path,
        synchronous="NORMAL" if made.synchronous == "NORMAL" else "FULL",
        clock=FakeClock(elapsed=_LATER),
    )
    try:
        state = await read_all(store, {run: scope_of(run) for run in RUNS})
        if case.number % 8 == 0:
            await _goes_on(store, state)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return Finding(case.number, lost=False, what=f"{type(error).__name__}: {error}")
    finally:
        await store.aclose()
    for told in case.disk.told.values():
        if not _holds(state, told):
            what = f"run {told.run!r}: entry {told.seq} was acknowledged and is not there"
            return Finding(case.number, lost=True, what=what)
    possible = made.states[case.disk.acknowledged : case.disk.begun + 1]
    if digest_of(state) not in possible:
        lost = digest_of(state) in made.states
        what = "an acknowledged state is gone" if lost else "this was never written"
        return Finding(case.number, lost=lost, what=what)
    return _integrity(case.number, path)


async def _goes_on(store: SqliteCheckpointStore, state: State) -> None:
    """A run can be claimed."""
    run = RUNS[0]
    lease = await store.acquire(run, "next", 15.0)
    head, _ = state.get(run, (None, ()))
    if head is not None and (lease.epoch <= head.epoch or lease.head.seq != head.seq):
        raise AssertionError(f"the lease {lease} does not follow from {head}")


def _holds(state: State, told: Told) -> bool:
    _, rows = state.get(told.run, (None, ()))
    return len(rows) >= told.seq and rows[told.seq - 1].check == told.check


def _integrity(number: int, path: Path) -> Finding | None:
    db = apsw.Connection(str(path))
    try:
        said = db.execute("PRAGMA integrity_check").fetchall()
    finally:
        db.close()
    if said == [("ok",)]:
        return None
    return Finding(number, lost=False, what=f"PRAGMA integrity_check says {said}")


@contextmanager
def _remembered_checksums() -> Iterator[None]:
    """The store checks each frame of its log when it opens it; most were seen in other cases."""
    once = _sqlite_wal._checksum  # noqa: SLF001 - what is slow about opening a store
    remembered = lru_cache(maxsize=16_384)(once)
    with patch.object(_sqlite_wal, "_checksum", remembered):
        yield


@contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """An empty folder for a while."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _write(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def memory() -> str | None:
    """A folder in memory, where there is one: what is rebuilt need not reach a disk."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    return str(shared) if shared.is_dir() else None
