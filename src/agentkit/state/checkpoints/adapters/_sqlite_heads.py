"""Rows of heads on SQLite, and the seals that tell whether they are what was written.

A seal covers a row's values together with the scope and run they belong to, so it fits neither
changed values nor those of another run. It guards against bits that flip, not against forgers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from agentkit.core.contracts.errors import JournalDamaged
from agentkit.core.contracts.heads import Head, RunStatus, Summary
from agentkit.core.contracts.types import Usage

Value = str | int | bytes | None

SEAL_BYTES = 8
"""Length of a seal."""

_LEASE_AT, _LEASE_SEAL, _SEAL, _WRITTEN_AT = 1, 5, 6, 7
_canonical = msgspec.msgpack.Encoder().encode  # tells types apart, and lengths stand before values


class LeaseColumns(NamedTuple):
    """The lease in a head, with a seal of its own; who holds none has no boot and no expiry."""

    epoch: int
    owner: str = ""
    boot: str = ""
    expires_ms: int = 0


class Written(NamedTuple):
    """What an append writes of a head, in the order of its columns."""

    seq: int
    tip: bytes
    claims: int
    status: RunStatus
    agent: str
    iteration: int
    recoveries: int
    input_tokens: int
    output_tokens: int
    requests: int
    unknown: int
    cached_tokens: int
    started_at: int
    updated_at: int
    detail: bytes
    due_at: int | None = None

    def seal(self, scope: str, run: str) -> bytes:
        """The seal over all of it."""
        return seal_of(scope, run, *self)

    def filed(self, run: str) -> str:
        """What lists go by, once more, as the statement `list_check` puts it together."""
        due = "-" if self.due_at is None else self.due_at
        return f"{self.seq} {self.status} {due} {self.started_at} {self.agent} {run}"


UNHELD = LeaseColumns(0)
"""The lease of a run that nobody has claimed."""

EMPTY = Written(0, b"", 0, "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, b"")  # type: ignore[arg-type] # no status yet
"""What stands in the head of a run without entries."""


class Found(NamedTuple):
    """A head that is as it was written."""

    number: int
    lease: LeaseColumns
    written: Written


def seal_of(*values: object) -> bytes:
    """The seal over these values, in this order."""
    return blake2b(_canonical(values), digest_size=SEAL_BYTES).digest()


@lru_cache(maxsize=1024)
def identity_of(*names: str) -> int:
    """A number that finds a row where the index of its names is damaged."""
    return int.from_bytes(seal_of(*names), "big", signed=True)


@lru_cache(maxsize=1024, typed=True)
def lease_seal(scope: str, run: str, *lease: str | int) -> bytes:
    """The seal of `LeaseColumns`; kept, because each append meets the same one until a renewal."""
    return seal_of(scope, run, *lease)


def lease_in(scope: str, run: str, row: Sequence[Any]) -> LeaseColumns:
    """The lease in a row.

    Raises:
        JournalDamaged: it does not fit its seal.
    """
    lease = LeaseColumns(*row[_LEASE_AT:_LEASE_SEAL])
    check_lease(scope, run, lease, row[_LEASE_SEAL])
    return lease


def check_lease(scope: str, run: str, lease: LeaseColumns, seal: bytes) -> None:
    """Return if the lease fits its seal.

    Raises:
        JournalDamaged: it does not.
    """
    if seal != lease_seal(scope, run, *lease):
        raise head_damaged(run, "its lease (epoch, owner, expiry) is not as it was written")


def found_in(scope: str, run: str, row: Sequence[Any]) -> Found:
    """What stands in a row.

    Raises:
        JournalDamaged: it does not fit its seals.
    """
    lease, written = lease_in(scope, run, row), Written(*row[_WRITTEN_AT:])
    if row[_SEAL] != written.seal(scope, run):
        raise head_damaged(run, "its summary (position, status, usage, times) is not as written")
    return Found(row[0], lease, written)


def written_by(summary: Summary, *, seq: int, tip: bytes, claims: int) -> Written:
    """What an append with this summary writes."""
    usage = summary.usage
    return Written(
        seq,
        tip,
        claims,
        summary.status,
        summary.agent,
        summary.iteration,
        summary.recoveries,
        usage.input_tokens,
        usage.output_tokens,
        usage.requests,
        usage.unknown,
        usage.cached_tokens,
        summary.started_at,
        summary.updated_at,
        summary.detail,
        summary.due_at,
    )


def head_of(
    run: str,
    lease: LeaseColumns,
    written: Written,
    *,
    left_seconds: float,
    summary: Summary | None = None,
) -> Head:
    """The head that these columns hold; `summary` is that of `written`, if it is at hand."""
    return Head(
        run=run,
        seq=written.seq,
        check=written.tip,
        epoch=lease.epoch,
        owner=lease.owner,
        expires_in_seconds=left_seconds,
        recoveries=written.recoveries + written.claims,
        summary=(summary or _summary_of(written)) if written.seq else None,
    )


def _summary_of(written: Written) -> Summary:
    return Summary(
        status=written.status,
        agent=written.agent,
        iteration=written.iteration,
        usage=Usage(
            written.input_tokens,
            written.output_tokens,
            written.requests,
            written.unknown,
            written.cached_tokens,
        ),
        started_at=written.started_at,
        updated_at=written.updated_at,
        recoveries=written.recoveries,
        detail=written.detail,
        due_at=written.due_at,
    )


def head_damaged(run: str, what: str) -> JournalDamaged:
    """The error for a run whose head is not what was written."""
    return JournalDamaged(
        f"the head of run {run!r} is damaged: {what}. Nothing was written. Restore the store from "
        f"a backup.",
        run_id=run,
        seq=0,
    )


class Readable:
    """A context in which bytes that are no text where a text should be mean a damaged head."""

    __slots__ = ("_run",)

    def __init__(self, run: str) -> None:
        self._run = run

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Turn the error into ours."""
        if isinstance(error, UnicodeDecodeError):
            raise head_damaged(self._run, str(error)) from error
