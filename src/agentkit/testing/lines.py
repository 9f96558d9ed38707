"""Append-only files of JSON lines, written by any number of processes that may be killed.

A line is one `write` to a file opened for appending, so lines of several processes never mix, and
what was written survives the SIGKILL of its writer: the kernel holds it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from agentkit.core.contracts.types import JSONObject

__all__ = ["JsonLines"]


class JsonLines:
    """One file.

    Args:
        path: the file; made when the first line is written.
        sync: whether each line is on the disk before `write` returns, for what must also survive
            the loss of power.
    """

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._sync = sync

    def write(self, line: JSONObject) -> None:
        """Append one line; it is there for every other process when this returns."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
            if self._sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[JSONObject]:
        """All whole lines; a last one without its newline was never finished and is left out."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        return [msgspec.json.decode(line) for line in whole.splitlines()]
