"""How a run begins that is made of entries from elsewhere: claimed while it is not there, and given
all its entries in one append, so that it is there whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from agentkit.core.contracts.errors import (
    HeadMoved,
    RunError,
    RunIdReused,
    StoreError,
)
from agentkit.core.contracts.heads import Lease, Row, Summary
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, insist
from agentkit.state.journal.lease import LEASE_SECONDS
from agentkit.state.journal.owner import is_dead

__all__ = ["claim_new", "found", "give_back"]


async def claim_new(port: JournalPort, run: str, owner: str, *, above: int) -> Lease:
    """The lease of a run that is not there yet, with an epoch above those of its entries.

    Raises:
        RunIdReused: there is such a run.
        RunInUse: somebody is about to begin it.
    """
    head = await port.head(run)
    if head is not None and head.seq:
        raise _taken(run)
    abandoned = head is not None and is_dead(head.owner, known_drives=lambda _: True)
    return await port.acquire(
        run,
        owner,
        LEASE_SECONDS,
        supersede=head.epoch if head is not None and abandoned else None,
        above=above,
    )


async def found(
    port: JournalPort,
    lease: Lease,
    rows: Sequence[Row],
    summary: Summary,
    *,
    clock: ClockPort,
    release: bool = True,
) -> None:
    """Append everything and release, unless the lease is kept. Repeated where the store failed:
    equal rows go in once.

    Raises:
        RunIdReused: somebody else was faster.
        StoreUnreachable: on each attempt.
    """
    try:
        await insist(
            lambda: port.append(
                lease.run, rows, after=0, lease=lease, summary=summary, release=release
            ),
            clock=clock,
        )
    except HeadMoved as exc:
        raise _taken(lease.run) from exc


async def give_back(port: JournalPort, lease: Lease, *, clock: ClockPort) -> None:
    """Release a lease under which nothing was made; where that fails it lapses by itself."""
    journal = Journal(port, RunState(lease.run), clock=clock, lease=lease)
    with contextlib.suppress(StoreError, RunError):
        await journal.commit(lambda _: (), lane="", release=lambda _: True)


def _taken(run: str) -> RunIdReused:
    message = f"run {run!r} exists already, and it is never changed by another; choose another id"
    return RunIdReused(message, run_id=run)
