"""Values by key on Postgres, each operation one round trip."""

from __future__ import annotations

from agentkit.core.contracts.once import Claim
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._postgres_clock import ServerClock
from agentkit.state.checkpoints.adapters._postgres_heads import identity_of
from agentkit.state.checkpoints.adapters._postgres_journal import LOCK_SECONDS
from agentkit.state.checkpoints.adapters._postgres_limits import Limit
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db
from agentkit.state.checkpoints.adapters._queries import queries

FORGOTTEN_ROWS = 100
"""Most claims that are forgotten with each new one."""


class PostgresValues:
    """Every method takes the connection first, then scope key and key.

    Args:
        place: where the tables are.
        clock: what claims lapse by.
        limit: how long an operation may take.
    """

    def __init__(self, place: Place, clock: ServerClock, limit: Limit) -> None:
        self._clock = clock
        self._limit = limit
        self._sql = {name: place.sql(text) for name, text in queries("postgres").items()}
        self._wait_ms = round(LOCK_SECONDS * 1000)

    def claim(self, db: Db, scope: str, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """See `OncePort.claim_value`."""
        values = (
            identity_of(scope, key),
            scope,
            key,
            _bytes(token),
            round(ttl_seconds * 1000),
            FORGOTTEN_ROWS,
            self._wait_ms,
            self._clock.at_ms(),
        )
        ((holder, value),) = self._limit.execute(db, self._sql["claim_value"], values)
        return rules.claimed_by(_text(holder), None if value is None else _text(value), token)

    def settle(self, db: Db, scope: str, key: str, *, token: str, value: str) -> bool:
        """See `OncePort.settle_value`."""
        at_ms = self._clock.at_ms()
        values = (identity_of(scope, key), _bytes(token), _bytes(value), self._wait_ms, at_ms)
        ((kept,),) = self._limit.execute(
            db, self._sql["settle_value"], values, sent_bytes=len(value)
        )
        return bool(kept)


def _bytes(text: str) -> bytes:
    """Any string at all: a column of text would take neither NUL nor lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _text(kept: bytes) -> str:
    return kept.decode("utf-8", "surrogatepass")
