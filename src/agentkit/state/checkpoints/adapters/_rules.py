"""What every store decides in the same way: limits, refusals, epochs, pages. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from agentkit.core.contracts.errors import (
    EntryTooLarge,
    HeadMoved,
    InvalidId,
    LeaseLost,
    NoteRefused,
    RunError,
    RunInUse,
    StoreMisused,
)
from agentkit.core.contracts.heads import TERMINAL_STATUSES, Claimable, Head, Lease, Row, Summary
from agentkit.core.contracts.once import Claim
from agentkit.state.journal.codec import MAX_ENTRY_BYTES
from agentkit.state.journal.owner import describe

_LONGEST_SECONDS = 100 * 366 * 86_400.0
"""Leases and claims that are to last for longer last for so long."""

_SHORTEST_SECONDS = 0.001
_MOST = 10**12
_LARGEST = 2**53
_LAST_SECOND = 32_503_680_000
"""The year 3000, for a damaged clock."""


def check_append(
    run: str,
    rows: Sequence[Row],
    *,
    after: int,
    lease: Lease | None,
    scope: str,
    release: bool,
) -> None:
    """Refuse an append that no store could make sense of, before anything is sent.

    Raises:
        EntryTooLarge: a row is larger than `MAX_ENTRY_BYTES`.
        StoreMisused: the rows do not follow `after`, or the lease is of another run or scope.
    """
    if lease is None and (release or not rows):
        raise StoreMisused(f"run {run!r}: an append without a lease must bring a note")
    if lease is not None and (lease.run != run or lease.scope != scope):
        raise StoreMisused(
            f"run {run!r}: the lease is for run {lease.run!r} in scope {lease.scope!r}, "
            f"this store handle looks at scope {scope!r}"
        )
    for seq, row in enumerate(rows, after + 1):
        if row.seq != seq:
            raise StoreMisused(f"run {run!r}: entry {row.seq} cannot stand at position {seq}")
        if len(row.body) > MAX_ENTRY_BYTES:
            raise EntryTooLarge(
                f"run {run!r}: entry {seq} has {len(row.body)} bytes, the limit is "
                f"{MAX_ENTRY_BYTES}. Nothing was written. Keep large data elsewhere and "
                f"record where it is.",
                run_id=run,
            )


def check_text(*texts: str | None, what: str) -> None:
    """Refuse texts that UTF-8 cannot say, and with it neither a file nor a server.

    Raises:
        InvalidId: one holds lone surrogates.
    """
    for text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError as exc:
            raise InvalidId(f"{what} {text!r} holds lone surrogates") from exc


def lasting(ttl_seconds: float) -> float:
    """The time as every store can count it: whole milliseconds at least, and a century at most.

    Raises:
        StoreMisused: it is no time, or over at once.
    """
    if not ttl_seconds >= _SHORTEST_SECONDS:  # also where it is not a number
        raise StoreMisused(f"ttl_seconds must be a millisecond or more, not {ttl_seconds!r}")
    return min(ttl_seconds, _LONGEST_SECONDS)


def counted(number: int) -> int:
    """A place in a journal, or a limit, as every store can take it: below the first there is none,
    and nothing has as many.
    """
    return min(max(number, 0), _MOST)


def check_numbers(*numbers: int | None) -> None:
    """Refuse epochs and times that not every store can hold.

    Raises:
        StoreMisused: one has more than 53 bits.
    """
    for number in numbers:
        if number is not None and abs(number) > _LARGEST:
            raise StoreMisused(f"{number} is neither an epoch nor a time: it has over 53 bits")


def refusal(run: str, *, head: Head | None, lease: Lease | None, after: int) -> RunError:
    """The reason why `head` does not take an append after `after` under `lease`."""
    if lease is not None and (head is None or not owns(lease, head)):
        return LeaseLost(_lost_message(run, head, lease), run_id=run)
    if lease is None and head is not None and _ended(head.summary):
        return NoteRefused(
            f"run {run!r} has ended and takes no notes any more; start a new run instead",
            run_id=run,
        )
    return HeadMoved(
        f"run {run!r} is at entry {head.seq if head else 0}, not at {after}: somebody appended "
        f"to it. Read the tail and decide again.",
        run_id=run,
    )


def owns(lease: Lease, head: Head) -> bool:
    """Whether the head's owner and epoch are the lease's."""
    return head.epoch == lease.epoch and head.owner == lease.owner


def released_already(lease: Lease | None, head: Head, rows: Sequence[Row]) -> bool:
    """Whether a release without rows was done by an earlier attempt of the same holder."""
    return not rows and lease is not None and head.epoch == lease.epoch and not head.owner


def may_acquire(head: Head, supersede: int | None) -> bool:
    """Whether the lease is free, lapsed, or held under exactly the epoch `supersede`."""
    return not head.held or head.epoch == supersede


def claimable(scope: str, head: Head, *, now_ms: int) -> Claimable | None:
    """The run as one that wants a worker, if it does."""
    summary = head.summary
    if summary is None or summary.due_at is None or summary.due_at > now_ms:
        return None
    return Claimable(scope, head.run, summary.agent, summary.due_at, head.owner, head.held)


def claim_order(one: Claimable) -> tuple[bool, int, str, str]:
    """The place of a run among those that want a worker."""
    return one.held, one.due_at, one.scope, one.run


def took_over(head: Head) -> bool:
    """Whether whoever held the lease before had neither released it nor finished the run."""
    return bool(head.owner) and not _ended(head.summary)


def claimed_by(holder: str, value: str | None, token: str) -> Claim:
    """What a key that `holder` has claimed, and perhaps settled, is for the claimant `token`."""
    if value is not None:
        return Claim("settled", value)
    return Claim("ours" if holder == token else "open")


def next_epoch(last: int, *, wall_ms: int, above: int = 0) -> int:
    """The epoch after `last`: the run's own, or the highest one that went with a deleted run."""
    return max(last + 1, above + 1, wall_ms)


def may_entomb(head: Head, *, updated_at: int) -> bool:
    """Whether the entries of this run may go, as far as its head says."""
    summary = head.summary
    if summary is None or not _ended(summary) or head.tombstone or head.held:
        return False
    return summary.updated_at == updated_at


def in_use(run: str, head: Head) -> RunInUse:
    """The error for a run whose lease somebody else holds."""
    return RunInUse(
        f"run {run!r} is held by {describe(head.owner)} {_span(head)}. Wait for it, or stop that "
        f"worker.",
        run_id=run,
        owner=head.owner,
        expires_in_seconds=head.expires_in_seconds,
    )


def _span(head: Head) -> str:
    """Since when and for how long; an epoch is the store's time at which it began, or later."""
    since = datetime.fromtimestamp(min(head.epoch / 1000, _LAST_SECOND), UTC)
    left = max(head.expires_in_seconds, 0.0)
    return f"since {since:%Y-%m-%d %H:%M:%S} UTC, for another {left:.1f} s unless renewed"


def to_cursor(started_at: int, run: str) -> str:
    """The cursor of the page after this run."""
    return base64.urlsafe_b64encode(msgspec.json.encode((started_at, run))).decode()


def from_cursor(cursor: str) -> tuple[int, str] | None:
    """Start time and run id after which the page begins; `None` for the first page.

    Raises:
        StoreMisused: it is not a cursor that `list_runs` gave.
    """
    if not cursor:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[int, str])
    except (binascii.Error, ValueError, msgspec.DecodeError) as exc:
        raise StoreMisused(
            f"{cursor!r} is not a cursor that list_runs returned; begin with an empty one"
        ) from exc


def _ended(summary: Summary | None) -> bool:
    return summary is not None and summary.status in TERMINAL_STATUSES


def _lost_message(run: str, head: Head | None, lease: Lease) -> str:
    if head is None:
        now = "the run was deleted"
    elif not head.owner:
        now = f"it was released at epoch {head.epoch}"
    else:
        now = f"{describe(head.owner)} holds it with epoch {head.epoch}"
    return (
        f"run {run!r}: the lease of {describe(lease.owner)} with epoch {lease.epoch} is gone; "
        f"{now}. This worker must stop acting for the run."
    )
