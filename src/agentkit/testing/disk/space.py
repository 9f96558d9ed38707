"""A file system that is really full, below a run of a real agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agentkit.testing.disk.trouble import Run, Trial, carried_on, surfaced

__all__ = ["can_mount", "full_disk", "on_small_disk"]

_DISK_KILOBYTES = 512
_STEP_KILOBYTES = 4
_SECONDS = 60.0


def full_disk(folder: Path) -> Iterator[Trial]:
    """Leave 0, 4, 8 … KB of room until a run ends in it; each time free some, and carry on.

    Args:
        folder: the root of a small, empty file system.
    """
    number = 0
    while True:
        number += 1
        for old in folder.iterdir():
            old.unlink()
        with tempfile.TemporaryDirectory() as known:
            error, wrong = asyncio.run(_filled(Path(known), folder, number))
        yield Trial(number, "full" if error else "", error, tuple(wrong))
        if not error:
            return


async def _filled(known: Path, folder: Path, number: int) -> tuple[str, list[str]]:
    ballast = folder / "ballast"
    room = (number - 1) * _STEP_KILOBYTES * 1024
    ballast.write_bytes(bytes(shutil.disk_usage(folder).free - room))
    run, wrong = Run(known, folder / "runs.db"), list[str]()
    async with asyncio.timeout(_SECONDS):
        store = run.store()
        error = await surfaced(run, store, wrong)
        if number % 2:
            await store.aclose()
            store = run.store()
        ballast.unlink()
        wrong += await carried_on(run, store)
        await store.aclose()
    return error, wrong


def on_small_disk(arguments: list[str], folder: Path) -> int:
    """Run `python -m agentkit.testing.disk …` with a small file system at `folder`, which only that
    process sees; its exit code.
    """
    script = f'mount -t tmpfs -o size={_DISK_KILOBYTES}k small "$0" && exec "$@"'
    command = [sys.executable, "-m", "agentkit.testing.disk", *arguments]
    return subprocess.run(  # noqa: S603 - itself
        [*_namespace(), "sh", "-c", script, str(folder), *command], check=False
    ).returncode


def can_mount() -> bool:
    """Whether this user may mount a file system that nobody else sees."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as name:
        command = [*_namespace(), "mount", "-t", "tmpfs", "small", name]
        return not subprocess.run(command, check=False, capture_output=True).returncode  # noqa: S603


def _namespace() -> list[str]:
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
