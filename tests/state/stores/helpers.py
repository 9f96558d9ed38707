"""Rows, summaries and other small things that the store tests share."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agentkit.core.contracts.heads import Lease, Row, RunStatus, Summary
from agentkit.core.contracts.ports import JournalPort

TTL_SECONDS = 15.0


def row(seq: int, text: str = "fact") -> Row:
    """An entry whose bytes tell its place and text."""
    return Row(seq, json.dumps([seq, text]).encode(), f"{seq:08d}".encode())


def rows(first: int, count: int = 1, text: str = "fact") -> list[Row]:
    """`count` entries from `first` on."""
    return [row(seq, text) for seq in range(first, first + count)]


def summary(
    status: RunStatus = "running",
    *,
    agent: str = "agent",
    started_at: int = 1_000,
    recoveries: int = 0,
    detail: bytes = b"{}",
) -> Summary:
    """A summary as the fold would make it."""
    return Summary(status, agent=agent, started_at=started_at, recoveries=recoveries, detail=detail)


async def started(store: JournalPort, run: str, count: int = 1, owner: str = "worker") -> Lease:
    """Acquire `run` and give it its first `count` entries."""
    lease = await store.acquire(run, owner, TTL_SECONDS)
    await store.append(run, rows(1, count), after=0, lease=lease, summary=summary())
    return lease


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs `program` with a pipe from its standard output and one to its input."""
    command: Sequence[str] = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: "subprocess.Popen[str]", *, seconds: float = 90.0) -> str:
    """What the process printed; fails with its complaint if it failed."""
    printed, complaint = process.communicate(timeout=seconds)
    assert process.returncode == 0, complaint
    return printed


DIES = """
import asyncio, os, signal, sys
import apsw
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.state.stores.helpers import rows, started, summary

async def main():
    store = SqliteCheckpointStore(sys.argv[1])
    lease = await started(store, "r")
    if sys.argv[2] == "restarted":
        for seq in range(2, 41):
            await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
        other = apsw.Connection(sys.argv[1])
        other.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        await store.append("r", rows(41), after=40, lease=lease, summary=summary())
    else:
        await store.aclose()
        for seq in range(2, int(sys.argv[2]) + 1):
            await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def left_behind(folder: Path, how: object) -> Path:
    """A store in `folder` whose process was killed.

    Run `r` has `how` entries, all but the first in the log; or with `"restarted"` 41 entries, and
    behind the log's end frames of an earlier round.
    """
    path = folder / "runs.db"
    process = child(DIES, path, how)
    complaint = process.communicate(timeout=60)[1]
    assert -signal.SIGKILL == process.returncode, complaint
    return path
