"""What the scripts say of a run that nobody may go on with, as errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agentkit.core.contracts.errors import (
    AgentkitError,
    JournalDamaged,
    JournalTooNew,
    RunExpired,
    StoreFailedOver,
    StoreMisused,
)
from agentkit.state.checkpoints.adapters._redis_links import Reply


def failed_over(run: str, how: str) -> StoreFailedOver:
    """The error for a run whose newest entries may be missing; `how` the server came to have it."""
    what = {
        "promoted": "a replica has taken the place of the server that wrote it last, and a replica "
        "may lack the newest entries",
        "demoted": "its server was a replica of another one meanwhile, and has what that one had",
        "restarted": "the server was restarted, moved or restored since it was last written, under "
        "settings that may lose the newest entries",
    }
    return StoreFailedOver(
        f"run {run!r} was stopped: {what[how]}. Nothing was written. `agentkit show` tells what is "
        f"there of it; `agentkit accept-failover` or accept_failover of the store lets it go on "
        f"from there."
    )


def unusable(run: str, code: Reply, said: Sequence[Reply]) -> AgentkitError | None:
    """The error for a run that nobody may go on with; `None` if it is none."""
    if code == b"headless":
        return RunExpired(
            f"run {run!r}: its entries are there but its head is gone; it was evicted or deleted "
            f"by somebody. See the server's maxmemory-policy. It is not started over; delete_run "
            f"gives it up.",
            run_id=run,
        )
    if code == b"expired":
        return RunExpired(
            f"run {run!r} has expired: it had not ended, its head is there, but its entries are "
            f"gone (orphan_ttl_seconds, an eviction, or somebody deleted them). It is not started "
            f"over; delete_run gives it up.",
            run_id=run,
        )
    if code == b"damaged":
        there, seq = cast("tuple[int, bytes]", said)
        return JournalDamaged(
            f"run {run!r}: its log has {there} entries, and its head says {seq.decode()}. Nothing "
            f"was written. Restore the store from a backup.",
            run_id=run,
            seq=min(there, int(seq)) + 1,
        )
    if code == b"foreign":
        return foreign(run)
    if code == b"newer":
        written = cast("bytes", said[0]).decode()
        return JournalTooNew(
            f"run {run!r}: its head has format {written}, which a newer release wrote. Nothing was "
            f"written. Upgrade agentkit to use this run."
        )
    return None


def foreign(run: str) -> StoreMisused:
    """The error for somebody else's key under the name of a run."""
    return StoreMisused(
        f"run {run!r}: a key of another kind has its name. Use another prefix, or remove that key."
    )
