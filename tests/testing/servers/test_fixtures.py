"""The shared servers of the tests: there when asked for, and empty each time."""

import pytest

from agentkit.testing.servers import PostgresServer, RedisCluster, RedisServer


@pytest.mark.parametrize("_again", range(2))
def test_each_test_gets_an_empty_database(
    postgres_server: PostgresServer, postgres_dsn: str, _again: int
) -> None:
    """A table that a test makes is not there for the next one."""
    database = postgres_dsn.rpartition("/")[2]

    assert "" == postgres_server.sql("CREATE TABLE left_behind (n int)", database=database)


@pytest.mark.parametrize("_again", range(2))
def test_each_test_gets_an_empty_redis(
    redis_server: RedisServer, redis_url: str, _again: int
) -> None:
    """A key that a test writes is not there for the next one."""
    assert "OK" == redis_server.ask("SET", "left behind", "1", "NX")
    assert redis_url == redis_server.url


@pytest.mark.parametrize("_again", range(2))
def test_each_test_gets_an_empty_cluster(
    redis_cluster: RedisCluster, redis_cluster_url: str, _again: int
) -> None:
    """A key that a test writes on any node is not there for the next one."""
    for key in "abcdefgh":
        assert "OK" == redis_cluster.node_of(key).ask("SET", key, "1", "NX")


def test_a_pooler_reaches_the_same_database(
    postgres_server: PostgresServer, pgbouncer_dsn: str
) -> None:
    """What is in the database of the test is seen through the pooler."""
    port, _, database = pgbouncer_dsn.rpartition(":")[2].partition("/")
    postgres_server.sql("CREATE TABLE t (n int)", database=database)

    assert str(postgres_server.port) != port
    assert "0" == postgres_server.sql("SELECT count(*) FROM t", database=database)
