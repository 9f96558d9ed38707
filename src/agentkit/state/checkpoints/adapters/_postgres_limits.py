"""How long an operation of one round trip may take, on the server too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from agentkit.core.contracts.errors import StoreMisused
from agentkit.state.checkpoints.adapters._postgres_errors import driver
from agentkit.state.checkpoints.adapters._postgres_session import Db
from agentkit.state.checkpoints.adapters._queries import queries

SERVER_SHARE = 0.9
"""What of the time of an operation its server has, so that its own word comes first: then it is
known that nothing was done.
"""

SENT_BYTES_PER_SECOND = 1_048_576
"""How slowly what an append brings may be sent and stored; large ones have so much longer."""

MAX_OPERATION_SECONDS = 86_400.0
"""The longest time of an operation; a server counts no further than some weeks."""


class Limit:
    """The limit of the operations of one store.

    Args:
        seconds: how long one may take that brings next to nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sql = queries("postgres")["statement_limit"]

    def execute(
        self,
        db: Db,
        sql: str,
        values: Sequence[object] | Mapping[str, object] = (),
        *,
        sent_bytes: int = 0,
    ) -> list[tuple[Any, ...]]:
        """Run a statement of ours that the server ends when its time is over, so that one that was
        given up holds no lock for long. One round trip: statements that are sent together are one
        transaction, with which the setting ends; behind a pooler nobody else is given it.
        """
        psycopg = driver()
        limit_ms = round((self._seconds * SERVER_SHARE + more_seconds(sent_bytes)) * 1000)
        with (
            psycopg.Cursor(db) as before,
            psycopg.Cursor(db, row_factory=psycopg.rows.tuple_row) as cursor,
        ):
            with db.pipeline():
                before.execute(self._sql, (str(max(limit_ms, 1)),), prepare=False, binary=True)
                cursor.execute(sql, values or None, prepare=False, binary=True)
            found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return found


def more_seconds(sent_bytes: int) -> float:
    """How much longer an operation may take for what it brings."""
    return sent_bytes / SENT_BYTES_PER_SECOND


def checked(name: str, value: float, *, most_seconds: float, why: str = "") -> float:
    """A limit that was given.

    Raises:
        StoreMisused: it is not a positive number of seconds, or too many.
    """
    if not (isfinite(value) and 0 < value <= most_seconds):
        raise StoreMisused(
            f"{name} must be more than 0 and at most {most_seconds:g} seconds, not {value!r}{why}"
        )
    return value
