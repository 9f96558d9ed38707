"""The real servers of the tests: one of each for a process, started when a test first asks.

A test that kills a server, or wants it set up otherwise, makes its own from
`agentkit.testing.servers`; these are shared. Each test that asks for an address gets an empty
database, or a server that has forgotten all keys.
"""

import os
from collections.abc import Iterator

import pytest

from agentkit.testing.servers import (
    PgBouncer,
    PostgresServer,
    RedisCluster,
    RedisSentinel,
    RedisServer,
)
from agentkit.testing.servers.binaries import missing_kinds

_REQUIRED = ("CI", "AGENTKIT_REQUIRE_SERVERS")


_SECOND_FORMS = ("pgbouncer", "redis_cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what needs a server that is not on this machine; in CI such a test fails.

    What every store is tried by is tried on the second forms of a server too, among the slow tests.
    """
    for item in items:
        if any(form in item.name.partition("[")[2] for form in _SECOND_FORMS):
            item.add_marker(pytest.mark.slow)
    absent = set(missing_kinds())
    out = [item for item in items if absent & _needed(item)]
    if out and not any(os.environ.get(variable) for variable in _REQUIRED):
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def _needed(item: pytest.Item) -> set[str]:
    """What a test is marked for, and what its fixtures are named after: `redis_url` needs redis."""
    marks = {mark.name for mark in item.iter_markers()}
    return marks | {name.partition("_")[0] for name in getattr(item, "fixturenames", ())}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A Postgres that does not wait for the disk."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    database = postgres_server.new_database()
    yield postgres_server.dsn(database)
    postgres_server.drop_database(database)


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A transaction pooler in front of `postgres_server`."""
    with PgBouncer(postgres_server) as bouncer:
        yield bouncer


@pytest.fixture
def pgbouncer_dsn(postgres_server: PostgresServer, pgbouncer_server: PgBouncer) -> Iterator[str]:
    """The address of an empty database, through the pooler."""
    database = postgres_server.new_database()
    yield pgbouncer_server.dsn(database)
    postgres_server.drop_database(database)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A standalone Redis that keeps everything in memory."""
    with RedisServer(save="") as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of an empty Redis."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster of three masters."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    """The address of an empty Redis Cluster."""
    redis_cluster.flush()
    return redis_cluster.url


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A master with a replica and a sentinel."""
    with RedisSentinel() as sentinel:
        yield sentinel


@pytest.fixture
def redis_sentinel_url(redis_sentinel: RedisSentinel) -> str:
    """The address of an empty master, by its sentinel."""
    redis_sentinel.master.flush()
    return redis_sentinel.url
