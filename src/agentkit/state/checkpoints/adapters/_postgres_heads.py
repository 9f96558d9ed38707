"""Rows of heads on Postgres, and what finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from agentkit.core.contracts.heads import Head, Summary
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Usage

IDENTITY_BYTES = 16
"""Length of the digests that find a scope, a run or a key."""

_canonical = msgspec.msgpack.Encoder().encode
_NOT_DUE = -1


@lru_cache(maxsize=4096)
def identity_of(*names: str) -> bytes:
    """What finds a row by its names; the row has the names too, and they are compared."""
    return blake2b(_canonical(names), digest_size=IDENTITY_BYTES).digest()


def numbers_of(summary: Summary) -> tuple[int, ...]:
    """The numbers of a summary in the order of `agentkit_append`."""
    usage = summary.usage
    return (
        summary.iteration,
        summary.recoveries,
        usage.input_tokens,
        usage.output_tokens,
        usage.requests,
        usage.unknown,
        usage.cached_tokens,
        summary.started_at,
        summary.updated_at,
        _NOT_DUE if summary.due_at is None else summary.due_at,
    )


def check_summary(summary: Summary) -> None:
    """Refuse an agent's name that is no text for Postgres.

    Raises:
        InvalidId: it holds control characters or lone surrogates, or is too long.
    """
    if summary.agent:
        check_id(summary.agent, what="agent name")


def is_text(value: str) -> bool:
    """Whether a column could hold it at all."""
    return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)


def head_of(row: Sequence[Any], summary: Summary | None = None) -> Head:
    """The head in a row that begins with the server's time, as the statement `head` gives it.

    Args:
        row: the columns.
        summary: the one in the row, if it is at hand.
    """
    now_ms, run, epoch, owner, expires_ms, seq, tip, claims, *written = row
    recoveries = written[3]
    return Head(
        run=run,
        seq=seq,
        check=tip,
        epoch=epoch,
        owner=owner,
        expires_in_seconds=(expires_ms - now_ms) / 1000 if owner else 0.0,
        recoveries=recoveries + claims,
        summary=(summary or _summary_of(written)) if seq else None,
    )


def _summary_of(written: Sequence[Any]) -> Summary:
    status, agent, iteration, recoveries, *usage, started_at, updated_at, due_at, detail = written
    return Summary(
        status=status,
        agent=agent,
        iteration=iteration,
        usage=Usage(*usage),
        started_at=started_at,
        updated_at=updated_at,
        recoveries=recoveries,
        detail=detail,
        due_at=due_at,
    )
