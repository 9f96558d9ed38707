"""Postgres: the space of removed runs is free for new ones, and the disk's where it can be."""

import asyncio
import random

import psycopg
import psycopg_pool
import pytest

from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.upkeep import Reclaimed, reclaims
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.testing.servers import PgBouncer
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

SIZE = "SELECT pg_total_relation_size('{s}.agentkit_entry')"


async def big(store: PostgresCheckpointStore, *runs: str) -> None:
    """Ended runs of 300 kB that no compression makes small."""
    chance = random.Random(1)
    for run in runs:
        lease = await store.acquire(run, "worker", TTL_SECONDS)
        row = Row(1, chance.randbytes(300_000), b"12345678")
        await store.append(run, [row], after=0, lease=lease, summary=summary("done"), release=True)


async def test_what_removed_runs_have_left_is_given_back(desk: Desk) -> None:
    """By address and by pool, while others work; what is there stays."""
    store = desk.store()
    assert reclaims(store) is store
    await started(store, "kept", 3)
    await big(store, *(f"r{n}" for n in range(8)))
    ((before,),) = desk.sql(SIZE)
    for n in range(8):
        assert await store.delete_run(f"r{n}")

    with psycopg_pool.ConnectionPool(desk.dsn, min_size=1, max_size=1, open=True) as pool:
        pooled = PostgresCheckpointStore(pool, schema=desk.schema)
        space = await pooled.reclaim(limit_seconds=30.0)
        again = await store.reclaim(limit_seconds=30.0)
        await pooled.aclose()
    ((after,),) = desk.sql(SIZE)

    assert isinstance(before, int)
    assert isinstance(after, int)
    assert 100_000 < before - after <= space.freed_bytes
    assert "" == space.note
    assert 0 == again.freed_bytes
    assert "used again" in again.note
    assert rows(1, 3) == await store.read("kept")
    await store.aclose()


async def test_a_vacuum_that_has_to_wait_is_given_up(desk: Desk) -> None:
    """It is told, it is no error, and nothing of it is left in the server."""
    store = desk.store()
    await started(store, "r")
    vacuums = (
        "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^VACUUM.*{s}' AND state = 'active'"
    )

    with psycopg.connect(desk.dsn) as other:
        other.execute(f"LOCK TABLE {desk.schema}.agentkit_entry IN EXCLUSIVE MODE".encode())
        space = await store.reclaim(limit_seconds=0.2)
        while desk.sql(vacuums) != [(0,)]:  # noqa: ASYNC110 (a session of the server)
            await asyncio.sleep(0)
        other.rollback()

    assert Reclaimed(0, "0.2 s were not enough; autovacuum will do it") == space
    assert rows(1) == await store.read("r")
    await store.aclose()


async def test_who_may_not_vacuum_is_told(desk: Desk) -> None:
    """A role that only uses the tables gets the server's own words."""
    owner = desk.store()
    await started(owner, "r")
    await owner.aclose()
    role = f"{desk.schema}_user"
    desk.sql(f"CREATE ROLE {role} LOGIN")
    desk.sql(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
    desk.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{s}} TO {role}")
    store = desk.store(desk.dsn.replace("postgres@", f"{role}@"))

    space = await store.reclaim(limit_seconds=30.0)
    await store.aclose()
    desk.sql(f"DROP OWNED BY {role}")
    desk.sql(f"DROP ROLE {role}")

    assert 0 == space.freed_bytes
    assert "agentkit_entry" in space.note


@pytest.mark.pgbouncer
async def test_space_is_given_back_behind_a_pooler(desk: Desk, pgbouncer_server: PgBouncer) -> None:
    """One that has no sessions to offer."""
    store = desk.store(pgbouncer_server.dsn())
    await big(store, "r1", "r2")
    await store.delete_run("r1")
    await store.delete_run("r2")

    space = await store.reclaim(limit_seconds=30.0)
    await store.aclose()

    assert 100_000 < space.freed_bytes
