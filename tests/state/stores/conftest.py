"""The stores that every contract check runs on."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    PostgresCheckpointStore,
    RedisCheckpointStore,
    SqliteCheckpointStore,
)
from agentkit.testing.servers import PgBouncer, PostgresServer

_schemas = itertools.count(1)


@pytest.fixture
def clock() -> FakeClock:
    """What the store under test judges leases by."""
    return FakeClock()


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("pgbouncer", marks=pytest.mark.pgbouncer),
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("redis_cluster", marks=pytest.mark.redis),
    ]
)
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[JournalPort]:
    """A new, empty store."""
    store: JournalPort
    if request.param == "memory":
        store = InMemoryCheckpointStore(clock=clock)
    elif request.param == "sqlite":
        store = SqliteCheckpointStore(tmp_path / "runs.db", clock=clock)
    elif request.param.startswith("redis"):
        url: str = request.getfixturevalue(f"{request.param}_url")
        store = RedisCheckpointStore(url, clock=clock)
    else:
        server: PostgresServer | PgBouncer = request.getfixturevalue(f"{request.param}_server")
        schema = f"schema {next(_schemas)}"
        store = PostgresCheckpointStore(server.dsn(), schema=schema, clock=clock)
    yield store
    await store.aclose()


@pytest.fixture
async def sqlite(clock: FakeClock, tmp_path: Path) -> AsyncIterator[SqliteCheckpointStore]:
    """A new, empty SQLite store in `tmp_path / "runs.db"`."""
    store = SqliteCheckpointStore(tmp_path / "runs.db", clock=clock)
    yield store
    await store.aclose()
