"""The schema of a Postgres store: what stands in it, and how it comes to be the newest."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from agentkit.core.contracts.errors import JournalTooNew, StoreUnreachable
from agentkit.state.checkpoints.adapters._postgres_errors import driver
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db, bounded, execute
from agentkit.state.checkpoints.adapters._queries import queries

MIGRATION_SECONDS = 60.0
"""How long one statement of a migration may take, waiting for another migrator included."""

OLDEST_SERVER = 130_000
"""Postgres 13; what the functions use is not all there before it."""

_FILE = re.compile(r"(\d{3})_(\w+)\.sql")


class Migration(NamedTuple):
    """One step of the schema. `sql` holds `{schema}` where the quoted name of the schema goes."""

    number: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All that this release knows, in the order in which they are applied."""
    found = []
    for file in files("agentkit.state.checkpoints.adapters").joinpath("_sql/postgres").iterdir():
        if match := _FILE.fullmatch(file.name):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), match[2], text))
    return tuple(sorted(found))


def script(place: Place) -> str:
    """All migrations as one script for `psql`, for whoever may not let a program do it."""
    sql = queries("postgres")
    parts = ["BEGIN;", place.sql(sql["create_schema"]), place.sql(sql["create_versions"])]
    for step in migrations():
        parts.append(place.sql(step.sql))
        parts.append(_noted(place, step))
    return "\n".join([*parts, "COMMIT;", ""])


def pending(db: Db, place: Place) -> list[Migration]:
    """What a store lacks; looks only.

    Raises:
        JournalTooNew: it has more than this release knows.
    """
    newest = _version(db, place)
    known = migrations()[-1].number
    if newest > known:
        raise JournalTooNew(
            f"the store {place.location} has schema {newest}, this release knows schema {known}. "
            f"Nothing was written. Install the newer release of agentkit here too."
        )
    return [step for step in migrations() if step.number > newest]


def migrate(db: Db, place: Place) -> list[Migration]:
    """Apply what is lacking, in one transaction; of many starters one does it.

    Returns what was applied here.

    Raises:
        JournalTooNew: as for `pending`; nothing was written.
    """
    sql = queries("postgres")
    with bounded(db, MIGRATION_SECONDS), db.transaction():
        execute(db, sql["lock_migrations"], (place.name,), binary=False)
        steps = pending(db, place)
        has_schema, has_versions = _has(db, place)
        if not has_schema:
            execute(db, place.sql(sql["create_schema"]), binary=False)
        if not has_versions:
            execute(db, place.sql(sql["create_versions"]), binary=False)
        for step in steps:
            execute(db, place.sql(step.sql), binary=False)
            execute(db, _noted(place, step), binary=False)
    return steps


def prepare(db: Db, place: Place) -> None:
    """See that a new connection leads to a store that this release can use, and make it one.

    Raises:
        JournalTooNew: the store is newer.
        StoreUnreachable: it is no database for a store.
    """
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
    if lacking:
        _migrate(db, place)


def _migrate(db: Db, place: Place) -> None:
    try:
        migrate(db, place)
    except driver().errors.InsufficientPrivilege as exc:
        raise StoreUnreachable(
            f"the store {place.location} has no tables of this release, and the role may not make "
            f"them ({exc.diag.message_primary}). Have its owner run `agentkit migrate`, then grant "
            f"this role USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables."
        ) from exc


def _noted(place: Place, step: Migration) -> str:
    """The statement that notes a step as applied; its number and name are those of a file."""
    text = place.sql(queries("postgres")["add_version"])
    return text.replace("{number}", str(step.number)).replace("{name}", step.name)


def _version(db: Db, place: Place) -> int:
    if not all(_has(db, place)):
        return 0
    ((newest,),) = execute(db, place.sql(queries("postgres")["version"]))
    return newest or 0


def _has(db: Db, place: Place) -> tuple[bool, bool]:
    names = (place.schema, f"{place.schema}.agentkit_schema")
    ((has_schema, has_versions),) = execute(db, queries("postgres")["has_schema"], names)
    return has_schema, has_versions
