"""Child processes and what they leave, for the tests of our own stores."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import redis

from agentkit.state.checkpoints.adapters._redis_hints import MARK
from agentkit.testing.conformance.materials import TTL_SECONDS, row, rows, started, summary

__all__ = [
    "TTL_SECONDS",
    "child",
    "contents",
    "finish",
    "left_behind",
    "listed",
    "row",
    "rows",
    "started",
    "summary",
]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def listed(client: redis.Redis, key: str) -> dict[str, float]:
    """Members and scores of a list in Redis, but for the mark of one that is whole."""
    found = cast("list[tuple[str, float]]", client.zrange(key, 0, -1, withscores=True))
    return {member: score for member, score in found if member != MARK}


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
