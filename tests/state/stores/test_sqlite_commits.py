"""SQLite: what is answered is durable, what shares a commit shares only that."""

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from agentkit.core.contracts.errors import (
    HeadMoved,
    JournalDamaged,
    LeaseLost,
    StoreError,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Row
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.checkpoints.adapters._lanes import Seat, Serve
from agentkit.state.checkpoints.adapters._sqlite_journal import SqliteJournal
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from tests.state.stores.helpers import TTL_SECONDS, contents, rows, started, summary

T = TypeVar("T")


class Gate:
    """Stands before COMMIT on every connection: counts, and holds back or refuses if told to."""

    def __init__(self) -> None:
        self.commits = 0
        self.refuses = False
        self._reached = threading.Event()
        self._open = threading.Event()
        self._open.set()

    def watch(self, db: apsw.Connection) -> None:
        """Stand before the commits of this connection."""
        db.set_commit_hook(self._at_commit)

    def shut(self) -> None:
        """Hold back every commit from now on."""
        self._reached.clear()
        self._open.clear()

    def release(self) -> None:
        """Let commits pass."""
        self._open.set()

    async def reached(self) -> None:
        """Wait until a commit stands before the gate."""
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, self._reached.wait, 30)

    def _at_commit(self) -> bool:
        self.commits += 1
        self._reached.set()
        assert self._open.wait(30)
        return self.refuses


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate before every commit of connections that are opened in the test."""
    gate = Gate()
    apsw.connection_hooks.append(gate.watch)
    yield gate
    gate.release()
    apsw.connection_hooks.remove(gate.watch)


class Lock:
    """Another program that holds the file's write lock."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


def orphan(path: Path, run: str, seq: int) -> None:
    """Put an entry where no head knows of one, as a damaged file may hold."""
    other = apsw.Connection(str(path))
    other.execute(
        "INSERT INTO agentkit_entry SELECT (number << 32) + ?, x'00', x'00' FROM agentkit_run "
        "WHERE run = ?",
        (seq, run),
    )
    other.close()


async def test_nothing_is_answered_before_commit_returned(
    sqlite: SqliteCheckpointStore, gate: Gate
) -> None:
    """While COMMIT is held back no append, lease or deletion resolves, and nobody sees them."""
    lease = await started(sqlite, "r")
    await sqlite.append("gone", rows(1), after=0, lease=None, summary=summary("saved"))
    gate.shut()

    tasks: list[asyncio.Task[Any]] = [
        asyncio.ensure_future(sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())),
        asyncio.ensure_future(sqlite.acquire("s", "worker", TTL_SECONDS)),
        asyncio.ensure_future(sqlite.delete_run("gone")),
        asyncio.ensure_future(
            sqlite.append("n", rows(1), after=0, lease=None, summary=summary("saved"))
        ),
    ]
    await gate.reached()

    assert rows(1) == await sqlite.read("r")
    assert await sqlite.head("s") is None
    assert await sqlite.head("gone") is not None
    assert not any(task.done() for task in tasks)
    gate.release()
    await asyncio.gather(*tasks)
    assert rows(1, 2) == await sqlite.read("r")
    assert await sqlite.head("gone") is None


async def test_a_cancelled_append_waits_for_its_commit(
    sqlite: SqliteCheckpointStore, gate: Gate
) -> None:
    """Cancellation is delivered when the append is settled, not before."""
    lease = await started(sqlite, "r")
    gate.shut()
    task = asyncio.ensure_future(
        sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())
    )
    await gate.reached()

    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    still_under_way = not task.done()
    gate.release()
    await asyncio.wait([task])

    assert still_under_way
    assert task.cancelled()
    assert rows(1, 2) == await sqlite.read("r")


async def test_f072_a_timeout_does_not_abandon_an_append(
    sqlite: SqliteCheckpointStore, gate: Gate
) -> None:
    """A deadline around an append ends when the append does, as a timeout."""
    lease = await started(sqlite, "r")
    gate.shut()
    append = sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())
    task = asyncio.ensure_future(asyncio.wait_for(append, timeout=0.001))
    await gate.reached()
    await asyncio.wait([task], timeout=0.05)
    under_way = not task.done()
    gate.release()

    with pytest.raises(asyncio.TimeoutError):
        await task
    assert under_way
    assert rows(1, 2) == await sqlite.read("r")


async def test_a_reader_does_not_wait_for_a_commit(
    sqlite: SqliteCheckpointStore, gate: Gate
) -> None:
    """Reads have a connection of their own."""
    lease = await started(sqlite, "r")
    gate.shut()
    task = asyncio.ensure_future(
        sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())
    )
    await gate.reached()

    found = await asyncio.wait_for(sqlite.list_runs(), timeout=30)

    assert ["r"] == [one.run for one in found[0]]
    gate.release()
    await task


def test_a_closed_loop_is_forgotten(tmp_path: Path, gate: Gate) -> None:
    """When the loop that asked is gone the append still lands, and the store serves the next."""
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(started(store, "r"))
    gate.shut()
    task = loop.create_task(store.append("r", rows(2), after=1, lease=lease, summary=summary()))
    loop.run_until_complete(gate.reached())
    loop.close()
    gate.release()

    found = asyncio.run(_until_read(store, "r", 2))

    assert rows(1, 2) == found
    assert not task.done()
    task.get_coro().close()
    del task
    gc.collect()


async def _until_read(store: SqliteCheckpointStore, run: str, count: int) -> Sequence[Row]:
    """Read after everything that was submitted to the writer before."""
    await store.append("after", rows(1), after=0, lease=None, summary=summary("saved"))
    found = await store.read(run)
    assert count == len(found)
    await store.aclose()
    return found


async def test_concurrent_appends_share_commits(
    sqlite: SqliteCheckpointStore, gate: Gate, tmp_path: Path
) -> None:
    """What piles up while a commit is under way goes into the next one, together."""
    leases = [await started(sqlite, f"r{n}") for n in range(50)]
    gate.shut()
    before = gate.commits
    tasks = [
        asyncio.ensure_future(
            sqlite.append(lease.run, rows(2), after=1, lease=lease, summary=summary())
        )
        for lease in leases
    ]
    await gate.reached()
    gate.release()
    await asyncio.gather(*tasks)

    assert gate.commits - before <= 2


async def test_a_refused_append_disturbs_no_other(
    sqlite: SqliteCheckpointStore, clock: FakeClock, tmp_path: Path
) -> None:
    """In one shared commit a lost lease and a moved head fail alone."""
    good = await started(sqlite, "good")
    behind = await started(sqlite, "behind")
    lost = await started(sqlite, "lost")
    clock.advance(TTL_SECONDS)
    await sqlite.acquire("lost", "other", TTL_SECONDS)

    with Lock(tmp_path / "runs.db"):
        waiting = asyncio.gather(
            sqlite.append("first", rows(1), after=0, lease=None, summary=summary("saved")),
            sqlite.append("behind", rows(1, 3), after=0, lease=behind, summary=summary()),
            sqlite.append("good", rows(2), after=1, lease=good, summary=summary()),
            sqlite.append("lost", rows(2), after=1, lease=lost, summary=summary()),
            sqlite.append("last", rows(1), after=0, lease=None, summary=summary("saved")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    found = await waiting

    assert [HeadMoved, LeaseLost] == [type(e) for e in found if isinstance(e, Exception)]
    assert [1, 1, 2, 1, 1] == [
        len(await sqlite.read(run)) for run in ("first", "behind", "good", "lost", "last")
    ]


async def test_an_append_that_fails_halfway_leaves_nothing_of_itself(
    sqlite: SqliteCheckpointStore, tmp_path: Path
) -> None:
    """Its head does not move where its entry finds no room; others in the same commit are in."""
    bad = await started(sqlite, "bad")
    good = await started(sqlite, "good")
    orphan(tmp_path / "runs.db", "bad", 2)

    with Lock(tmp_path / "runs.db"):
        waiting = asyncio.gather(
            sqlite.append("good", rows(2), after=1, lease=good, summary=summary()),
            sqlite.append("bad", rows(2), after=1, lease=bad, summary=summary("parked")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    _, refused = await waiting

    heads = [await sqlite.head(run) for run in ("good", "bad")]
    assert JournalDamaged is type(refused)
    assert [(2, "running"), (1, "running")] == [
        (head.seq, head.summary.status) for head in heads if head and head.summary
    ]


async def test_an_entry_behind_its_head_is_never_passed_over(
    sqlite: SqliteCheckpointStore, tmp_path: Path
) -> None:
    """A place holds one entry: an append that finds one there is told so, with the place."""
    lease = await started(sqlite, "r")
    orphan(tmp_path / "runs.db", "r", 3)

    with pytest.raises(JournalDamaged, match="already holds an entry") as damaged:
        await sqlite.append("r", rows(2, 2), after=1, lease=lease, summary=summary())

    assert ("r", 2) == (damaged.value.run_id, damaged.value.seq)


async def test_a_lease_is_judged_in_the_transaction_that_writes(
    sqlite: SqliteCheckpointStore, clock: FakeClock, tmp_path: Path
) -> None:
    """The run is taken over while an append of its holder waits for the file: it is refused."""
    lease = await started(sqlite, "r")
    other = apsw.Connection(str(tmp_path / "runs.db"))
    other.execute("BEGIN IMMEDIATE")
    append = asyncio.ensure_future(
        sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())
    )
    await asyncio.sleep(0)
    assert await sqlite.head("r")  # whatever the append reads first, it has read by now

    SqliteJournal(StoreClock(clock)).acquire(
        other, "", "r", owner="heir", ttl_seconds=TTL_SECONDS, supersede=lease.epoch, above=0
    )
    other.execute("COMMIT")
    other.close()

    with pytest.raises(LeaseLost):
        await append
    assert rows(1) == await sqlite.read("r")


async def test_f072_a_failed_commit_fails_its_whole_group(
    sqlite: SqliteCheckpointStore, gate: Gate
) -> None:
    """Nobody in the group is told that it is durable; the store works on afterwards."""
    leases = [await started(sqlite, f"r{n}") for n in range(5)]
    gate.refuses = True

    found = await asyncio.gather(
        *(
            sqlite.append(lease.run, rows(2), after=1, lease=lease, summary=summary())
            for lease in leases
        ),
        return_exceptions=True,
    )

    assert [StoreError] * 5 == [type(error) for error in found]
    assert 5 == len({id(error) for error in found}), "each waiter has an error of its own"
    gate.refuses = False
    for lease in leases:
        assert rows(1) == await sqlite.read(lease.run)
        await sqlite.append(lease.run, rows(2), after=1, lease=lease, summary=summary())
        assert rows(1, 2) == await sqlite.read(lease.run)


async def test_f072_a_full_disk_is_an_unreachable_store(tmp_path: Path) -> None:
    """A full disk is said to be one, and what was acknowledged before stays."""

    def fill(db: apsw.Connection) -> None:
        db.execute("PRAGMA max_page_count = 40").fetchall()

    store = SqliteCheckpointStore(tmp_path / "runs.db")
    lease = await started(store, "r")
    await store.aclose()
    apsw.connection_hooks.append(fill)
    try:
        with pytest.raises(StoreUnreachable, match="full"):
            await store.append(
                "r", [Row(2, bytes(500_000), bytes(8))], after=1, lease=lease, summary=summary()
            )
    finally:
        apsw.connection_hooks.remove(fill)

    assert rows(1) == await store.read("r")
    await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    assert rows(1, 2) == await store.read("r")
    await store.aclose()


async def test_f106_waiting_has_a_bound(tmp_path: Path) -> None:
    """A file that stays locked is an error that says so, for appends and renewals; once it is
    free everything goes on.
    """
    store = SqliteCheckpointStore(tmp_path / "runs.db", busy_seconds=0.1)
    lease = await started(store, "r")

    with Lock(tmp_path / "runs.db"):
        with pytest.raises(StoreUnreachable, match=r"(being written|locked) by"):
            await store.append("r", rows(2), after=1, lease=lease, summary=summary())
        with pytest.raises(StoreUnreachable, match=r"(being written|locked) by"):
            store.renew({"r": lease})
        assert rows(1) == await store.read("r")

    await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    assert not store.renew({"r": lease})["r"].lost
    await store.aclose()


async def test_renewing_needs_no_event_loop(sqlite: SqliteCheckpointStore) -> None:
    """Threads renew while the loop appends, on a connection of their own."""
    lease = await started(sqlite, "r")
    lost: list[bool] = []

    def renew() -> None:
        lost.extend(sqlite.renew({"r": lease})["r"].lost for _ in range(20))

    threads = [threading.Thread(target=renew) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seq in range(2, 50):
        await sqlite.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
    for thread in threads:
        thread.join()

    assert [False] * 60 == lost


async def test_a_mistake_in_one_operation_is_its_own(sqlite: SqliteCheckpointStore) -> None:
    """An error that is neither ours nor the driver's reaches its caller; the thread lives on."""
    with pytest.raises(OverflowError):
        await sqlite.append("r", rows(1), after=0, lease=None, summary=summary(started_at=2**70))

    await started(sqlite, "r")
    assert rows(1) == await sqlite.read("r")


async def test_closing_ends_threads_and_files(
    sqlite: SqliteCheckpointStore, tmp_path: Path
) -> None:
    """After `aclose` no thread is left and the log is folded into the file; use opens it again."""
    others = set(threading.enumerate())
    lease = await started(sqlite, "r")
    sqlite.renew({"r": lease})
    ours = set(threading.enumerate()) - others

    await sqlite.aclose()
    left = list(contents(tmp_path))
    for thread in ours:
        thread.join(5.0)  # it answers before its last line

    assert ["runs.db"] == left
    assert ours
    assert not any(thread.is_alive() for thread in ours)
    await sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())
    assert rows(1, 2) == await sqlite.read("r")
    await sqlite.aclose()
    await sqlite.aclose()


async def test_a_forgotten_store_ends_its_threads(tmp_path: Path) -> None:
    """A store that nobody holds any more leaves no thread behind."""
    others = set(threading.enumerate())
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    await started(store, "r")
    await store.read("r")
    threads = set(threading.enumerate()) - others

    del store
    gc.collect()
    for thread in threads:
        thread.join(30)

    assert 2 == len(threads)
    assert not any(thread.is_alive() for thread in threads)


async def test_operations_may_run_without_threads(tmp_path: Path) -> None:
    """What a simulator puts in place of the threads is all that runs."""
    before = set(threading.enumerate())
    store = SqliteCheckpointStore(tmp_path / "runs.db", lane=InlineLane)

    lease = await started(store, "r", 3)

    assert rows(1, 3) == await store.read("r")
    with pytest.raises(HeadMoved):
        await store.append("r", rows(9), after=8, lease=lease, summary=summary())
    assert set(threading.enumerate()) <= before
    await store.aclose()


class InlineLane:
    """Runs each operation where it is submitted."""

    def __init__(
        self, seat: Seat[apsw.Connection], serve: Serve[apsw.Connection], name: str
    ) -> None:
        self._seat, self._serve = seat, serve

    async def submit(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run it now."""
        outcome = self._seat.use(lambda db: self._serve(db, [work]))[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.value  # type: ignore[return-value]  # what `work` returned

    def close(self) -> Awaitable[None]:
        """Close the connection."""

        async def closed() -> None:
            self._seat.close()

        return closed()

    def stop(self) -> None:
        """Close the connection."""
        self._seat.close()


async def test_an_iteration_takes_little_room(tmp_path: Path) -> None:
    """A turn of four entries and 640 bytes costs at most 1,200 bytes of disk, head included."""
    path, turns = tmp_path / "runs.db", 300
    store = SqliteCheckpointStore(path, synchronous="NORMAL")
    leases = [await store.acquire(f"run-{n}", "worker", TTL_SECONDS) for n in range(4)]
    for turn in range(turns):
        for lease in leases:
            for seq, sizes in ((turn * 4, (130, 110)), (turn * 4 + 2, (330, 70))):
                entries = [
                    Row(seq + n, os.urandom(size), os.urandom(8)) for n, size in enumerate(sizes, 1)
                ]
                made = summary(detail=b"x" * 200)
                await store.append(lease.run, entries, after=seq, lease=lease, summary=made)
    await store.aclose()

    assert len(contents(tmp_path)[path.name]) / (turns * len(leases)) <= 1_200
