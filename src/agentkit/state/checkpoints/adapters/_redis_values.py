"""Values by key on Redis, as steps."""

from __future__ import annotations

from typing import cast

from agentkit.core.contracts.once import Claim
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import tag_of
from agentkit.state.checkpoints.adapters._redis_hints import Clock
from agentkit.state.checkpoints.adapters._redis_links import Call, Word
from agentkit.state.checkpoints.adapters._redis_plans import Steps


class RedisValues:
    """Every method takes scope key and key first. What has lapsed, Redis forgets by itself.

    Args:
        prefix: what all keys begin with.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix = prefix
        self._clock = clock

    def claim(self, scope: str, key: str, *, token: str, ttl_seconds: float) -> Steps[Claim]:
        """See `OncePort.claim_value`."""
        ttl_ms = round(ttl_seconds * 1000)
        (reply,) = yield [self._call("claim_value", scope, key, token, ttl_ms)]
        code, *said = cast("list[bytes | None]", reply)
        if code == b"ours":
            return Claim("ours")
        holder, value = cast("bytes", said[0]).decode(), said[1]
        return rules.claimed_by(holder, None if value is None else value.decode(), token)

    def settle(self, scope: str, key: str, *, token: str, value: str) -> Steps[bool]:
        """See `OncePort.settle_value`."""
        (reply,) = yield [self._call("settle_value", scope, key, token, value)]
        return reply == [b"settled"]

    def _call(self, name: str, scope: str, key: str, *args: Word) -> Call:
        kept = f"{self._prefix}:value:{{{tag_of(scope, key)}}}"
        return Call(name, (kept,), (*self._clock(), *args), script=True)
