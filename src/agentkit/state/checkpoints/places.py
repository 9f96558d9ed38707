"""What a store's location says of the place where it is."""

from __future__ import annotations

from pathlib import Path

from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.upkeep import migrates

__all__ = ["in_memory", "is_missing", "missing_file"]


def in_memory(store: JournalPort) -> bool:
    """Whether the store is this process's own and gone with it."""
    return store.location.startswith("memory:")


def missing_file(store: JournalPort) -> Path | None:
    """The file in which the store would be, where it is not there yet."""
    scheme, _, path = store.location.partition(":///")
    file = Path(path)
    return file if scheme == "sqlite" and not file.exists() else None


async def is_missing(store: JournalPort) -> bool:
    """Whether nothing of the store is there yet, so that the first use of it would make it. To ask
    makes nothing. A store without a schema is there as soon as its server is.

    Raises:
        StoreError: it cannot be looked at.
    """
    if store.location.startswith("sqlite:"):
        return missing_file(store) is not None
    port = migrates(store)
    return port is not None and not any(step.applied for step in await port.migrations())
