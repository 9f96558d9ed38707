"""SQLite: who keeps everybody else from writing is named."""

import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, _sqlite_locks
from tests.state.stores.helpers import child, started

HOLDER = """
import sys
import apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
async def holder(tmp_path: Path) -> "AsyncIterator[subprocess.Popen[str]]":
    """A process in the middle of a transaction on a store."""
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    await started(store, "r")
    await store.aclose()
    process = child(HOLDER, tmp_path / "runs.db")
    assert process.stdout is not None
    assert "holds\n" == process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


async def _refused(path: Path) -> str:
    store = SqliteCheckpointStore(path, busy_seconds=0.1)
    with pytest.raises(StoreUnreachable) as caught:
        await store.acquire("other", "worker", 15.0)
    await store.aclose()
    return str(caught.value)


async def test_a_stopped_writer_is_named_with_its_pid(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    """A process that stands still in its commit looks to others like a file that is broken."""
    going = await _refused(tmp_path / "runs.db")
    holder.send_signal(signal.SIGSTOP)
    while "T" != _state(holder.pid):
        pass
    stopped = await _refused(tmp_path / "runs.db")

    assert f"is being written by process {holder.pid} (python" in going
    assert "stands still" not in going
    assert f"process {holder.pid} (python" in stopped
    assert "and stands still (it was stopped)" in stopped


async def test_a_kernel_that_does_not_tell_leaves_the_name_out(
    holder: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no list of locks, the message says how to look."""
    monkeypatch.setattr(_sqlite_locks, "_LOCKS", tmp_path / "no-such-file")

    assert "for instance with `fuser" in await _refused(tmp_path / "runs.db")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
