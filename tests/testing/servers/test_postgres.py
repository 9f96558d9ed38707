"""A Postgres of one's own lives, dies and lives again as told."""

import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

from agentkit.testing.servers import PgBouncer, PostgresServer, ServerFailed, StopMode
from agentkit.testing.servers.processes import wait_until


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that the tests of this file may kill."""
    with PostgresServer() as server:
        yield server


pytestmark = pytest.mark.postgres


def test_a_killed_server_comes_back_with_what_it_had_committed(
    own_postgres: PostgresServer,
) -> None:
    """SIGKILL ends postmaster and backends at once; the same port then serves the same data."""
    own_postgres.sql("CREATE TABLE killed AS SELECT 7 AS n")
    dsn, pid = own_postgres.dsn(), _pid(own_postgres)

    own_postgres.kill()
    with pytest.raises(ServerFailed):
        own_postgres.sql("SELECT 1")
    own_postgres.start()

    assert "7" == own_postgres.sql("SELECT n FROM killed")
    assert dsn == own_postgres.dsn()
    assert pid != _pid(own_postgres)


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_a_server_restarts_in_each_mode(own_postgres: PostgresServer, mode: StopMode) -> None:
    """A restarted server has its data, however it was stopped."""
    own_postgres.sql(f"CREATE TABLE stopped_{mode} AS SELECT 7 AS n")

    own_postgres.restart(mode)

    assert "7" == own_postgres.sql(f"SELECT n FROM stopped_{mode}")


def test_a_postmaster_that_dies_alone_takes_its_backends_along(
    own_postgres: PostgresServer,
) -> None:
    """Whoever kills the postmaster's pid gets a server that is gone whole and can start."""
    pid = _pid(own_postgres)
    process = own_postgres.process
    assert process is not None

    os.kill(pid, signal.SIGKILL)

    assert 128 + signal.SIGKILL == process.wait()
    own_postgres.start()
    assert "1" == own_postgres.sql("SELECT 1")


def test_a_running_server_is_not_started_twice(own_postgres: PostgresServer) -> None:
    """A second start is refused, and names the pid."""
    with pytest.raises(ServerFailed, match=str(_pid(own_postgres))):
        own_postgres.start()


def test_a_server_that_cannot_start_says_why() -> None:
    """The error has the last words of the server."""
    with pytest.raises(ServerFailed, match="no_such_setting"):
        PostgresServer(settings={"no_such_setting": "1"})


def test_whether_commits_reach_the_disk_can_be_chosen(
    own_postgres: PostgresServer, postgres_server: PostgresServer
) -> None:
    """`fsync` is on unless it is switched off."""
    assert "on" == own_postgres.sql("SHOW fsync")
    assert "off" == postgres_server.sql("SHOW fsync")


def test_a_closed_server_leaves_nothing(postgres_server: PostgresServer) -> None:
    """Neither process nor folder is there after the `with` statement."""
    with PostgresServer(fsync=False) as server:
        pid = _pid(server)

    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_demoted_server_takes_no_writes_until_it_is_promoted(
    own_postgres: PostgresServer,
) -> None:
    """It answers what is read, as a standby does."""
    own_postgres.demote()

    assert "t" == own_postgres.sql("SELECT pg_is_in_recovery()")
    with pytest.raises(ServerFailed, match="read-only"):
        own_postgres.sql("CREATE TABLE demoted (n integer)")
    assert "t" == own_postgres.sql("SELECT pg_promote()")
    own_postgres.sql("CREATE TABLE demoted (n integer)")


@pytest.mark.pgbouncer
def test_a_pooler_pools_by_transaction(own_postgres: PostgresServer) -> None:
    """Two clients that stay connected share the one connection that there is to the server."""
    with (
        PgBouncer(own_postgres, pool_size=1, settings={"query_wait_timeout": "5"}) as bouncer,
        psycopg.connect(bouncer.dsn(), autocommit=True) as one,
        psycopg.connect(bouncer.dsn(), autocommit=True) as other,
    ):
        pids = [
            connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
            for connection in (one, other, one)
        ]

    assert 1 == len(set(pids))


@pytest.mark.pgbouncer
def test_a_killed_pooler_comes_back(own_postgres: PostgresServer) -> None:
    """After SIGKILL nobody listens; started again, it lets through on the same port."""
    with PgBouncer(own_postgres) as bouncer:
        bouncer.kill()
        with pytest.raises(ServerFailed):
            own_postgres.sql("SELECT 1", port=bouncer.port)

        bouncer.start()

        assert "1" == own_postgres.sql("SELECT 1", port=bouncer.port)


@pytest.mark.pgbouncer
def test_a_pooler_survives_a_restart_of_its_server(own_postgres: PostgresServer) -> None:
    """After the server is back, the pooler lets through again."""
    with PgBouncer(own_postgres) as bouncer:
        own_postgres.kill()
        own_postgres.start()

        wait_until(lambda: _answers(own_postgres, bouncer), what="the pooler lets through")


def _answers(server: PostgresServer, bouncer: PgBouncer) -> bool:
    try:
        return server.sql("SELECT 1", port=bouncer.port) == "1"
    except ServerFailed:
        return False


def _pid(server: PostgresServer) -> int:
    assert server.process is not None
    return server.process.pid
