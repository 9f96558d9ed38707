"""SQLite: several processes on one file, processes that die, processes that fork."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.heads import Row
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.state.stores.helpers import child, contents, finish, rows, started, summary

FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

COMMON = """
import asyncio, os, signal, sys
import apsw
from agentkit.core.contracts.heads import Row
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.state.stores.helpers import rows, started, summary
path = sys.argv[1]
"""

WORKER = (
    COMMON
    + """
async def work(store, run):
    lease = await started(store, run)
    for seq in range(2, 11):
        await store.append(run, rows(seq), after=seq - 1, lease=lease, summary=summary())
    await store.append(run, [], after=10, lease=lease, summary=summary(), release=True)

async def main():
    store = SqliteCheckpointStore(path)
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(work(store, f"{sys.argv[2]}-{n}") for n in range(int(sys.argv[3]))))
    await store.aclose()

asyncio.run(main())
"""
)

APPENDER = (
    COMMON
    + """
async def main():
    store = SqliteCheckpointStore(path)
    lease = await started(store, "r", owner=f"worker-{os.getpid()}")
    for seq in range(2, 100_000):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
        print(seq, flush=True)

asyncio.run(main())
"""
)

DIES_AT_COMMIT = (
    COMMON
    + """
left = int(sys.argv[2])

def die(*_):
    global left
    left -= 1
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0

def watch(db):
    if sys.argv[3] == "before":
        db.set_commit_hook(die)
    else:
        db.set_profile(lambda sql, _: sql.startswith("COMMIT") and die())

async def main():
    store = SqliteCheckpointStore(path)
    lease = await started(store, "r", owner=f"worker-{os.getpid()}")
    await store.aclose()
    apsw.connection_hooks.append(watch)
    for seq in range(2, 30):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
        print(seq, flush=True)

asyncio.run(main())
"""
)

TRIES_THE_LOCK = """
import fcntl, sys
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510  # as in SQLite's os.h
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
    except OSError:
        print("held")
    else:
        print("free")
"""

DIES_IN_CREATION = (
    COMMON
    + """
left = int(sys.argv[2])

def die(*_):
    global left
    left -= 1
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

apsw.connection_hooks.append(lambda db: db.set_exec_trace(die))
asyncio.run(started(SqliteCheckpointStore(path), "r"))
"""
)


@contextlib.contextmanager
def _children(program: str, *argument_lists: tuple[object, ...]) -> Iterator[list["Process"]]:
    """Children that have all said `ready` and wait for a line."""
    processes = [child(program, *arguments) for arguments in argument_lists]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", finish(process)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


Process = subprocess.Popen[str]


async def test_f106_contention_slows_and_never_fails(tmp_path: Path) -> None:
    """Two processes with twenty runs each share one file with a reader in a long transaction."""
    path = tmp_path / "runs.db"
    store = SqliteCheckpointStore(path)
    await started(store, "seen")
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM agentkit_entry").get

    with _children(WORKER, (path, "a", 20), (path, "b", 20)) as processes:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            finish(process)

    assert before == reader.execute("SELECT count(*) FROM agentkit_entry").get
    reader.close()
    for name in ("a", "b"):
        for number in range(20):
            assert rows(1, 10) == await store.read(f"{name}-{number}")
    await store.aclose()


@pytest.mark.parametrize("attempt", range(2))
async def test_f112_eight_processes_create_one_file(tmp_path: Path, attempt: int) -> None:
    """The file creates itself, whoever comes first; nobody fails and nothing is lost."""
    path = tmp_path / "runs.db"

    with _children(WORKER, *((path, name, 2) for name in "abcdefgh")) as processes:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            finish(process)

    store = SqliteCheckpointStore(path)
    for name in "abcdefgh":
        for number in range(2):
            assert rows(1, 10) == await store.read(f"{name}-{number}")
    await store.aclose()


@pytest.mark.slow
async def test_f112_a_creation_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    """SIGKILL at each statement of the creation leaves a file that the next process completes."""
    survived = 0
    for number in range(1, 100):
        path = tmp_path / f"runs-{number}.db"
        process = child(DIES_IN_CREATION, path, number)
        process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert -signal.SIGKILL == process.returncode
        store = SqliteCheckpointStore(path)
        await started(store, "s", 2)
        assert rows(1, 2) == await store.read("s")
        await store.aclose()
        survived += 1

    assert survived > 15, "the creation has that many statements"
    assert survived < 99, "and then it succeeds"


@pytest.mark.parametrize("acknowledged", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
async def test_a_killed_process_loses_nothing_acknowledged(
    tmp_path: Path, acknowledged: int
) -> None:
    """SIGKILL in the middle of appends: what the process had heard of is there, and at most the
    one append that it was waiting for besides.
    """
    path = tmp_path / "runs.db"
    process = child(APPENDER, path)
    assert process.stdout is not None
    heard = 1
    while heard < acknowledged + 1:
        heard = int(process.stdout.readline())
    process.kill()
    rest = process.stdout.read().split()  # `communicate` would miss what is buffered already
    process.communicate()
    heard = max([heard, *map(int, rest)])

    store = SqliteCheckpointStore(path)
    found = await store.read("r")

    assert found in (rows(1, heard), rows(1, heard + 1))
    head = await store.head("r")
    assert head is not None
    assert (len(found), found[-1].check) == (head.seq, head.check)
    await store.aclose()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_death_at_a_commit_is_all_or_nothing(tmp_path: Path, moment: str) -> None:
    """SIGKILL right before a COMMIT loses that append, right after it keeps it, unacknowledged."""
    for number in range(1, 8):
        path = tmp_path / f"runs-{number}.db"
        process = child(DIES_AT_COMMIT, path, number, moment)
        printed, complaint = process.communicate(timeout=60)
        assert -signal.SIGKILL == process.returncode, complaint
        heard = max([1, *map(int, printed.split())])

        store = SqliteCheckpointStore(path)
        found = await store.read("r")
        await store.aclose()

        assert number == heard
        assert rows(1, heard + (moment == "after")) == found


@FORKS
async def test_a_forked_child_opens_its_own_connections(tmp_path: Path) -> None:
    """Parent and child go on with the same object, each with connections and locks of its own:
    when the parent closes, the child's data stays.
    """
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    lease = await started(store, "parent")
    await store.read("parent")
    store.renew({"r": lease})
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()

    pid = os.fork()
    if pid == 0:
        _in_child(lambda: _child_appends(store, to_child, from_child))
    assert b"opened" == os.read(to_parent, 100)
    await store.append("parent", rows(2), after=1, lease=lease, summary=summary())
    await store.aclose()
    os.write(from_parent, b"closed")
    assert b"appended" == os.read(to_parent, 100)
    assert rows(1, 40) == await store.read("child"), "while the child is still at it"
    await store.append("parent", rows(3), after=2, lease=lease, summary=summary())
    os.write(from_parent, b"go on")
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)

    assert 0 == status
    assert rows(1, 3) == await store.read("parent")
    assert rows(1, 41) == await store.read("child")
    await store.aclose()
    assert {"runs.db"} == set(contents(tmp_path))


async def _child_appends(store: SqliteCheckpointStore, to_child: int, from_child: int) -> None:
    lease = await started(store, "child", 20)
    os.write(from_child, b"opened")
    assert os.read(to_child, 100) == b"closed"
    for seq in range(21, 41):
        await store.append("child", rows(seq), after=seq - 1, lease=lease, summary=summary())
    assert not store.renew({"r": lease})["r"].lost
    os.write(from_child, b"appended")
    assert os.read(to_child, 100) == b"go on"
    await store.append("child", rows(41), after=40, lease=lease, summary=summary())
    await store.aclose()


@FORKS
async def test_forking_in_the_middle_of_appends(tmp_path: Path) -> None:
    """However busy the threads are when the process forks, neither side hangs or loses anything."""
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    lease = await started(store, "parent")
    stop = threading.Event()
    renewals: list[bool] = []

    def keep_renewing() -> None:
        while not stop.is_set():
            renewals.append(store.renew({"r": lease})["r"].lost)

    async def keep_appending() -> int:
        seq = 1
        while not stop.is_set():
            await store.append("parent", rows(seq + 1), after=seq, lease=lease, summary=summary())
            seq += 1
        return seq

    heartbeat = threading.Thread(target=keep_renewing)
    heartbeat.start()
    appending = asyncio.ensure_future(keep_appending())
    statuses = []
    for number in range(8):
        await store.read("parent")
        pid = os.fork()
        if pid == 0:
            _in_child(lambda number=number: _child_works(store, f"child-{number}"))
        statuses.append(await asyncio.to_thread(os.waitpid, pid, 0))
    stop.set()
    heartbeat.join()
    seq = await appending

    assert [0] * 8 == [status for _, status in statuses]
    assert not any(renewals)
    assert rows(1, seq) == await store.read("parent")
    for number in range(8):
        assert rows(1, 5) == await store.read(f"child-{number}")
    await store.aclose()


async def _child_works(store: SqliteCheckpointStore, run: str) -> None:
    await started(store, run, 5)
    assert rows(1, 5) == await store.read(run)
    await store.aclose()


def _in_child(work: object) -> None:
    """Run a coroutine in a loop of the child's own, and leave without the parent's clean-up."""
    status = 1
    try:
        asyncio._set_running_loop(None)
        asyncio.run(work())  # type: ignore[operator]  # a coroutine function
        status = 0
    except BaseException as exc:  # noqa: BLE001 - the child must not return into the test runner
        os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
    finally:
        os._exit(status)


async def test_looking_at_the_file_keeps_the_locks(tmp_path: Path) -> None:
    """A second object of this process that inspects the file does not take the first one's locks
    with it, as closing a file descriptor of one's own would.
    """
    path = tmp_path / "runs.db"
    one, two = SqliteCheckpointStore(path), SqliteCheckpointStore(path)
    lease = await started(one, "r")
    assert "held\n" == finish(child(TRIES_THE_LOCK, path))

    assert rows(1) == await two.read("r")

    assert "held\n" == finish(child(TRIES_THE_LOCK, path))
    assert not two.renew({"r": lease})["r"].lost
    await one.aclose()
    await two.aclose()
    assert "free\n" == finish(child(TRIES_THE_LOCK, path))


async def test_f112_switching_to_a_log_waits_for_others(tmp_path: Path) -> None:
    """A creator that died before the switch leaves a file without a log; the next one switches,
    also while a third one is writing, when SQLite itself does not wait.
    """
    path = tmp_path / "runs.db"
    store = SqliteCheckpointStore(path)
    await started(store, "r")
    await store.aclose()
    other = apsw.Connection(str(path))
    other.execute("PRAGMA journal_mode = DELETE").fetchall()
    other.execute("BEGIN IMMEDIATE")
    attempts: list[str] = []

    def count(_: object, sql: str, __: object) -> bool:
        if "journal_mode = WAL" in sql:
            attempts.append("switch")
            if len(attempts) == 3:
                other.execute("ROLLBACK")
        return True

    def watch(db: apsw.Connection) -> None:
        db.set_exec_trace(count)

    apsw.connection_hooks.append(watch)
    try:
        assert rows(1) == await store.read("r")
    finally:
        apsw.connection_hooks.remove(watch)

    assert ["switch"] * 3 == attempts
    other.close()
    await store.aclose()


async def test_two_objects_on_one_file_agree(tmp_path: Path) -> None:
    """Objects of one process on one path have one location and see each other's commits."""
    one, two = (SqliteCheckpointStore(tmp_path / "runs.db") for _ in range(2))
    lease = await started(one, "r")

    await two.append("r", rows(2), after=1, lease=lease, summary=summary())
    found: list[Row] = await one.read("r")
    await one.aclose()

    assert one.location == two.location
    assert rows(1, 2) == found
    await two.append("r", rows(3), after=2, lease=lease, summary=summary())
    assert rows(1, 3) == await two.read("r")
    await two.aclose()
