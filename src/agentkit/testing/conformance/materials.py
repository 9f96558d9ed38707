"""Entries, summaries and leases as the checks use them."""

from __future__ import annotations

import json

import msgspec

from agentkit.core.contracts.heads import Head, Lease, Row, RunStatus, Summary
from agentkit.core.contracts.ports import JournalPort

__all__ = ["TTL_SECONDS", "plain", "row", "rows", "started", "summary"]

TTL_SECONDS = 60.0
"""Of leases that are to live as long as a check, on a busy machine too."""


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
    updated_at: int = 0,
    recoveries: int = 0,
    detail: bytes = b"{}",
) -> Summary:
    """A summary as the fold would make it."""
    return Summary(
        status,
        agent=agent,
        started_at=started_at,
        updated_at=updated_at,
        recoveries=recoveries,
        detail=detail,
    )


async def started(
    store: JournalPort,
    run: str,
    count: int = 1,
    owner: str = "worker",
    *,
    ttl_seconds: float = TTL_SECONDS,
) -> Lease:
    """Acquire `run` and give it its first `count` entries."""
    lease = await store.acquire(run, owner, ttl_seconds)
    await store.append(run, rows(1, count), after=0, lease=lease, summary=summary())
    return lease


def plain(head: Head | None) -> Head | None:
    """The head, of its lease's time only whether it is over: 1 or -1, and 0 without an owner."""
    if head is None or not head.owner:
        return head
    return msgspec.structs.replace(head, expires_in_seconds=1.0 if head.held else -1.0)
