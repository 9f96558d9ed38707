"""What a store's location says of the place where it is."""

from __future__ import annotations

from pathlib import Path

from agentkit.core.contracts.ports import JournalPort

__all__ = ["in_memory", "missing_file"]


def in_memory(store: JournalPort) -> bool:
    """Whether the store is this process's own and gone with it."""
    return store.location.startswith("memory:")


def missing_file(store: JournalPort) -> Path | None:
    """The file in which the store would be, where it is not there yet."""
    scheme, _, path = store.location.partition(":///")
    file = Path(path)
    return file if scheme == "sqlite" and not file.exists() else None
