"""How a SQLite file comes to have the newest schema: step by step, by whoever opens it first."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentkit.core.contracts.errors import StoreDamaged
from agentkit.state.checkpoints.adapters import _migrations as migrations
from agentkit.state.checkpoints.adapters._queries import queries

if TYPE_CHECKING:
    import apsw

_log = logging.getLogger("agentkit.state")


def newest() -> int:
    """The newest schema that this release knows."""
    return migrations.steps("sqlite")[-1].number


def create(db: apsw.Connection) -> None:
    """Make the first schema in an empty file, unless another process was faster.

    It is done before the file has a write-ahead log, so that its header is complete in itself.
    """
    sql = queries("sqlite")
    db.execute(sql["page_size"])
    db.execute(sql["begin"])
    _, version, tables = db.execute(sql["identity"]).get
    if not version and not tables:
        db.execute(migrations.steps("sqlite")[0].sql).fetchall()
    db.execute(sql["commit"])


def bring_up(db: apsw.Connection, *, version: int) -> None:
    """Apply the steps behind `version`. Each looks at the version again when it has the file to
    itself, so of many that begin at once one does it, and the next goes on where one was killed.
    """
    for step in migrations.steps("sqlite")[version:]:
        _log.info("schema step %d (%s) begins", step.number, step.name)
        while step.repeated and _executed(db, step, step.repeated):
            pass
        _executed(db, step, step.sql)


def _executed(db: apsw.Connection, step: migrations.Step, text: str) -> bool:
    """Execute it as one durable unit, if the step is the next one; whether that changed rows."""
    sql = queries("sqlite")
    db.execute(sql["begin"])
    try:
        _, version, _ = db.execute(sql["identity"]).get
        if version >= step.number:
            return False
        before = db.total_changes()
        db.execute(text).fetchall()
        if text is step.sql and db.execute(sql["identity"]).get[1] != step.number:
            raise StoreDamaged(f"schema step {step.number} of this release does not note itself")
        db.execute(sql["commit"])
        return db.total_changes() != before
    finally:
        if db.in_transaction:
            db.execute(sql["rollback"])
