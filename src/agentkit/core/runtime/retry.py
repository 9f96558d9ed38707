"""Whether and when a failed model attempt is tried again. Pure: the random number is an argument.

The table for users is `docs/reference/retries.md`; a test compares it with this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import FailureKind

__all__ = ["RETRIED", "RetryPolicy", "next_retry"]

RETRIED: Mapping[FailureKind, bool] = MappingProxyType(
    {
        "rate_limited": True,
        "overloaded": True,
        "server": True,
        "network": True,
        "timeout": True,
        "truncated": True,
        "interrupted": True,
        "auth": False,
        "quota": False,
        "invalid_request": False,
        "not_found": False,
        "context_length": False,
    }
)
"""Which kinds of failure are tried again. The others park the run at once: waiting does not mend
them, and a fallback would hide a broken key for ever."""

_SPREAD_OVER_RETRY_AFTER = 0.1


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how slowly a model attempt is tried again.

    Args:
        attempts: attempts in all, the first one included; 1 turns retries off.
        base_seconds: the wait after the first failure, before jitter.
        factor: by how much each further wait grows.
        max_seconds: no computed wait is longer.
        max_retry_after_seconds: a provider that asks for a longer wait than this parks the run
            instead of keeping a worker asleep.

    Raises:
        InvalidSpec: a number is out of range.
    """

    attempts: int = 5
    base_seconds: float = 0.5
    factor: float = 2.0
    max_seconds: float = 60.0
    max_retry_after_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidSpec(f"RetryPolicy.attempts is {self.attempts!r}; give 1 or more")
        for name, least in (
            ("base_seconds", 0.0),
            ("factor", 1.0),
            ("max_seconds", 0.0),
            ("max_retry_after_seconds", 0.0),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise InvalidSpec(f"RetryPolicy.{name} is {value!r}; give {least} or more, finite")


def next_retry(
    kind: FailureKind,
    attempt: int,
    *,
    retry_after_seconds: float | None = None,
    should_retry: bool | None = None,
    policy: RetryPolicy,
    jitter: float,
) -> float | None:
    """The wait before the next attempt, or that there is none.

    The provider's own word goes first: `should_retry=False` stops, `True` allows a kind that the
    table does not retry, a spend limit (`quota`) excepted. A `retry_after_seconds` is the least
    wait (up to a tenth more, so that many workers do not come back in one instant); zero or less
    means that the provider named none. Otherwise the wait grows by `factor`, its second half
    random.

    Args:
        kind: how the attempt failed.
        attempt: which attempt that was, counted from 1 over all workers and restarts.
        retry_after_seconds: what the provider asked us to wait.
        should_retry: what the provider said about trying again (`x-should-retry`).
        policy: the limits.
        jitter: a random number from 0 to 1, drawn by the caller.

    Returns:
        Seconds to wait, or `None`: stop and park.
    """
    if should_retry is False or attempt >= policy.attempts:
        return None
    allowed = RETRIED[kind] or (should_retry is True and kind != "quota")
    if not allowed:
        return None
    if retry_after_seconds is not None and retry_after_seconds > 0:
        if retry_after_seconds > policy.max_retry_after_seconds:
            return None
        return retry_after_seconds * (1 + _SPREAD_OVER_RETRY_AFTER * jitter)
    if kind == "interrupted":  # our own orderly stop: nothing at the provider needs a rest
        return 0.0
    return _backoff(attempt, policy) * (0.5 + 0.5 * jitter)


def _backoff(attempt: int, policy: RetryPolicy) -> float:
    """`base * factor ** (attempt - 1)`, at most `max_seconds`."""
    if policy.base_seconds == 0:
        return 0.0
    try:
        return min(policy.max_seconds, policy.base_seconds * policy.factor ** (attempt - 1))
    except OverflowError:
        return policy.max_seconds
