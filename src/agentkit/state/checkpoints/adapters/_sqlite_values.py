"""Values by key on a SQLite connection, inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.core.contracts.errors import StoreDamaged
from agentkit.core.contracts.once import Claim
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_heads import identity_of, seal_of
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
        found = self._find(db, scope, key)
        if found is not None and not self._clock.has_lapsed(found.expiry):
            return rules.claimed_by(found.token, found.value, token)
        until = self._clock.expiry(ttl_seconds)
        values = {
            "scope": scope,
            "key": key,
            "token": token,
            **until._asdict(),
            "seal": seal_of(scope, key, token, None, *until),
            "identity": identity_of(scope, key),
        }
        db.execute(self._sql["claim_value"], values)
        self._purge(db)
        return Claim("ours")

    def settle(self, db: apsw.Connection, scope: str, key: str, *, token: str, value: str) -> bool:
        """See `OncePort.settle_value`."""
        found = self._find(db, scope, key)
        if found is None or self._clock.has_lapsed(found.expiry):
            return False
        seal = seal_of(scope, key, token, value, *found.expiry)
        values = {"scope": scope, "key": key, "token": token, "value": value, "seal": seal}
        return db.execute(self._sql["settle_value"], values).get is not None

    def _find(self, db: apsw.Connection, scope: str, key: str) -> _Kept | None:
        try:
            row = db.execute(self._sql["find_value"], {"scope": scope, "key": key}).get
        except UnicodeDecodeError as exc:
            raise _damaged(key, str(exc)) from exc
        if row is not None:
            if not _is_sealed(scope, key, row):
                raise _damaged(key, "it is not as it was written")
            return _Kept(row[0], row[1], Expiry(*row[2:5]))
        identity = {"identity": identity_of(scope, key)}
        if db.execute(self._sql["hidden_value"], identity).get is not None:
            raise _damaged(key, "it is there, but its name does not find it")
        return None

    def _purge(self, db: apsw.Connection) -> None:
        """Forget what has lapsed, and leave alone what is damaged: it is told to whoever asks."""
        now = {
            "wall_ms": self._clock.wall_ms(),
            "boot": self._clock.boot,
            "elapsed_ms": self._clock.elapsed_ms(),
            "limit": PURGED_ROWS,
        }
        try:
            lapsed: list[Any] = db.execute(self._sql["lapsed_values"], now).fetchall()
        except UnicodeDecodeError:
            return
        for number, scope, key, *row in lapsed:
            if _is_sealed(scope, key, row) and self._clock.has_lapsed(Expiry(*row[2:5])):
                db.execute(self._sql["forget_value"], (number,))


class _Kept(NamedTuple):
    token: str
    value: str | None
    expiry: Expiry


def _is_sealed(scope: str, key: str, row: Sequence[object]) -> bool:
    *values, seal = row
    return seal == seal_of(scope, key, *values)


def _damaged(key: str, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"what is kept under the key {key!r} is damaged: {what}. Nothing was written. Restore the "
        f"store from a backup, or use another key if you know whether its work was done."
    )
