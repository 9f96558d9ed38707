"""Giving back the space that removed runs have left in a Postgres store."""

from __future__ import annotations

import contextlib

from agentkit.core.contracts.upkeep import Reclaimed
from agentkit.state.checkpoints.adapters._postgres_errors import NoAnswer, driver, driver_errors
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db, bounded, execute
from agentkit.state.checkpoints.adapters._queries import queries

CANCEL_SECONDS = 5.0
"""How long telling the server to stop may take."""

_AT_THE_END = (
    "the space of removed entries is used again by new ones; only what lay at the end of a table "
    "goes back to the disk"
)


def reclaim(db: Db, place: Place, *, limit_seconds: float) -> Reclaimed:
    """See `ReclaimPort.reclaim`. Others go on reading and writing meanwhile.

    Args:
        db: a connection for this alone.
        place: where the tables are.
        limit_seconds: how long it may take.
    """
    sql, told = place.sql(queries("postgres")["vacuum"]), list[str]()

    with driver_errors(place.location):
        before = _size(db, place)
        db.add_notice_handler(note := lambda said: told.append(said.message_primary or ""))
        try:
            with bounded(db, limit_seconds):
                execute(db, sql, binary=False)
        except NoAnswer:
            _give_up(db)
            return Reclaimed(0, f"{limit_seconds:g} s were not enough; autovacuum will do it")
        finally:
            db.remove_notice_handler(note)
        freed = max(before - _size(db, place), 0)
    return Reclaimed(freed, "; ".join(told) or ("" if freed else _AT_THE_END))


def _size(db: Db, place: Place) -> int:
    ((size,),) = execute(db, queries("postgres")["size"], (place.schema,))
    return int(size)


def _give_up(db: Db) -> None:
    """Have the server stop, and use the connection no more."""
    with contextlib.suppress(driver().Error):  # it ends by itself when it has done its work
        db.cancel_safe(timeout=CANCEL_SECONDS)
    db.close()
