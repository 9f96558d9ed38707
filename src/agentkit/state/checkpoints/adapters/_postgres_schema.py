"""The schema of a Postgres store: what stands in it, and how it comes to be the newest."""

from __future__ import annotations

from collections.abc import Collection

from agentkit.core.contracts.errors import (
    JournalTooNew,
    StoreDamaged,
    StoreMisused,
    StoreUnreachable,
)
from agentkit.core.contracts.upkeep import Migration
from agentkit.state.checkpoints.adapters import _migrations as steps
from agentkit.state.checkpoints.adapters._postgres_errors import driver
from agentkit.state.checkpoints.adapters._postgres_limits import Limit
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db, bounded, execute
from agentkit.state.checkpoints.adapters._queries import queries

MIGRATION_SECONDS = 60.0
"""How long a migration may take, waiting for another migrator included."""

_LIMIT = Limit(MIGRATION_SECONDS)
_LIMIT_MS = str(round(MIGRATION_SECONDS * 1000))

OLDEST_SERVER = 130_000
"""Postgres 13; what the functions use is not all there before it."""


def listed(db: Db, place: Place) -> list[Migration]:
    """See `MigrationPort.migrations`."""
    lacking = {step.number for step in pending(db, place)}
    return [_shown(place, step, lacking) for step in steps.steps("postgres")]


def pending(db: Db, place: Place) -> list[steps.Step]:
    """What a store lacks; looks only.

    Raises:
        JournalTooNew: it has more than this release knows.
    """
    newest, known = _version(db, place), steps.steps("postgres")
    if newest > known[-1].number:
        raise JournalTooNew(
            f"the store {place.location} has schema {newest}, this release knows schema "
            f"{known[-1].number}. Nothing was written. Install the newer release of agentkit here."
        )
    return [step for step in known if step.number > newest]


def migrate(db: Db, place: Place) -> list[Migration]:
    """Apply what is lacking, each step in a transaction; of many starters one does it.

    Returns what was applied here.

    Raises:
        JournalTooNew: as for `pending`; nothing was written.
    """
    applied: list[Migration] = []
    with bounded(db, MIGRATION_SECONDS):
        while lacking := pending(db, place):
            step = lacking[0]
            while step.repeated and _changed(db, place, step):
                pass
            if _applied(db, place, step):
                applied.append(_shown(place, step, {step.number}))
    return applied


class Preparation:
    """See that a new connection leads to a store that this release can use, and make it one; but
    not where one was before.

    Args:
        place: where the tables are.

    Raises:
        JournalTooNew: the store is newer.
        StoreDamaged: the schema that was there is gone.
        StoreUnreachable: it is no database for a store.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._seen = False

    def __call__(self, db: Db) -> None:
        _prepare(db, self._place, seen=self._seen)
        self._seen = True


def _prepare(db: Db, place: Place, *, seen: bool) -> None:
    if db.info.encoding != "utf-8":
        raise StoreMisused(
            f"the connections of the pool have the client_encoding {db.info.encoding}, which does "
            f"not hold every text. Let it be UTF8."
        )
    version, encoding = db.pgconn.server_version, db.pgconn.parameter_status(b"server_encoding")
    if 0 < version < OLDEST_SERVER:
        raise StoreUnreachable(
            f"the store {place.location} is on Postgres {version // 10_000}; 13 is the oldest"
        )
    if encoding not in {b"UTF8", None}:
        raise StoreUnreachable(
            f"the store {place.location} has the encoding {encoding.decode()}, which does not hold "
            f"every text. Make a database with ENCODING 'UTF8' for it."
        )
    with bounded(db, MIGRATION_SECONDS):
        lacking = pending(db, place)
    if seen and lacking == list(steps.steps("postgres")):
        raise StoreDamaged(
            f"the store {place.location} has lost its schema since this process used it. Nothing "
            f"was made or written, as a new one would begin known runs again. Restore it from a "
            f"backup; if it is to begin empty, start a new process."
        )
    if lacking:
        _migrate(db, place)


def _migrate(db: Db, place: Place) -> None:
    try:
        migrate(db, place)
    except driver().errors.InsufficientPrivilege as exc:
        raise StoreUnreachable(
            f"the store {place.location} has no tables of this release, and the role may not make "
            f"them ({exc.diag.message_primary}). Have its owner run `agentkit migrate`, then grant "
            f"this role what `agentkit migrate --print` names."
        ) from exc


def _applied(db: Db, place: Place, step: steps.Step) -> bool:
    """Apply a step, unless somebody else just did."""
    sql = queries("postgres")
    with db.transaction():
        execute(db, sql["statement_limit"], (_LIMIT_MS,))
        execute(db, sql["lock_migrations"], (place.name,), binary=False)
        if step not in pending(db, place):
            return False
        has_schema, has_versions = _has(db, place)
        if not has_schema:
            execute(db, place.sql(sql["create_schema"]), binary=False)
        if not has_versions:
            execute(db, place.sql(sql["create_versions"]), binary=False)
        execute(db, place.sql(step.sql), binary=False)
        execute(db, _noted(place, step), binary=False)
    return True


def _shown(place: Place, step: steps.Step, lacking: Collection[int]) -> Migration:
    """The step with a script that `psql` runs."""
    sql = queries("postgres")
    first = (place.sql(sql["create_schema"]), place.sql(sql["create_versions"]))
    parts = [*(first if step.number == 1 else ()), place.sql(step.sql), _noted(place, step)]
    script = "\n".join(["BEGIN;", *parts, "COMMIT;", ""])
    if step.repeated:
        script = f"-- Repeat this until it changes no row.\n{place.sql(step.repeated)}\n{script}"
    if step == steps.steps("postgres")[-1]:
        script += place.sql(sql["grants"]) + "\n"
    return Migration(step.number, step.name, script, applied=step.number not in lacking)


def _noted(place: Place, step: steps.Step) -> str:
    """The statement that notes a step as applied; its number and name are those of a file."""
    text = place.sql(queries("postgres")["add_version"])
    return text.replace("{number}", str(step.number)).replace("{name}", step.name)


def _changed(db: Db, place: Place, step: steps.Step) -> bool:
    """Do what a step repeats, unless somebody else has applied it; whether that changed rows. One
    does so at a time, or rows that another one is about to change would look as if none were left.
    """
    sql = queries("postgres")
    with db.transaction(), driver().Cursor(db) as cursor:
        execute(db, sql["statement_limit"], (_LIMIT_MS,))
        execute(db, sql["lock_migrations"], (place.name,), binary=False)
        if step not in pending(db, place):
            return False
        return bool(cursor.execute(place.sql(step.repeated)).rowcount)


def _version(db: Db, place: Place) -> int:
    if not all(_has(db, place)):
        return 0
    ((newest,),) = _LIMIT.execute(db, place.sql(queries("postgres")["version"]))
    return newest or 0


def _has(db: Db, place: Place) -> tuple[bool, bool]:
    names = (place.schema, f"{place.schema}.agentkit_schema")
    ((has_schema, has_versions),) = _LIMIT.execute(db, queries("postgres")["has_schema"], names)
    return has_schema, has_versions
