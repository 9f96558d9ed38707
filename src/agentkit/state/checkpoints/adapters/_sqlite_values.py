"""Values by key on a SQLite connection, inside a transaction of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit.core.contracts.once import Claim
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._store_clock import Expiry, StoreClock

if TYPE_CHECKING:
    import apsw

PURGED_ROWS = 100
"""Most claims that are forgotten with each new one."""


class SqliteValues:
    """Every method takes the connection first, then scope key and key.

    Args:
        clock: what claims lapse by.
    """

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock
        self._sql = queries("sqlite")

    def claim(
        self, db: apsw.Connection, scope: str, key: str, *, token: str, ttl_seconds: float
    ) -> Claim:
        """See `OncePort.claim_value`."""
        found = db.execute(self._sql["find_value"], {"scope": scope, "key": key}).get
        if found is not None:
            holder, value, *expiry = found
            if not self._clock.has_lapsed(Expiry(*expiry)):
                return rules.claimed_by(holder, value, token)
        until = self._clock.expiry(ttl_seconds)
        values = {"scope": scope, "key": key, "token": token, **until._asdict()}
        db.execute(self._sql["claim_value"], values)
        now = {
            "wall_ms": self._clock.wall_ms(),
            "boot": self._clock.boot,
            "elapsed_ms": self._clock.elapsed_ms(),
            "limit": PURGED_ROWS,
        }
        db.execute(self._sql["purge_values"], now)
        return Claim("ours")

    def settle(self, db: apsw.Connection, scope: str, key: str, *, token: str, value: str) -> bool:
        """See `OncePort.settle_value`."""
        values = {"scope": scope, "key": key, "token": token, "value": value}
        return db.execute(self._sql["settle_value"], values).get is not None
