"""Postgres: connections that break, servers that restart, networks that say nothing, forks."""

import asyncio
import gc
import os
import threading
from collections.abc import Generator

import psycopg_pool
import pytest
from psycopg.rows import dict_row

from agentkit.core.contracts.errors import StoreMisused, StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease, Renewal
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.checkpoints.adapters import _postgres_session as session
from agentkit.state.checkpoints.adapters._postgres_errors import NoAnswer
from agentkit.testing.servers import PostgresServer, Proxy
from agentkit.testing.servers.ports import take_port
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

END_ALL = (
    "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
    "WHERE application_name = %s"
)


async def test_connections_that_were_ended_are_made_anew(desk: Desk) -> None:
    """Every operation finds that its connection is gone before it uses it."""
    name = f"{desk.schema}-ended"
    store = desk.store(f"{desk.dsn}?application_name={name}")
    lease = await started(store, "r")
    for seq in range(2, 5):
        await store.head("r")
        store.renew({"r": lease})
        assert [(3,)] == desk.sql(END_ALL, name)

        assert seq - 1 == getattr(await store.head("r"), "seq", None)
        assert {"r": Renewal(seq - 1)} == store.renew({"r": lease})
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
    assert [(3,)] == desk.sql(END_ALL, name)
    taken = await store.acquire("other", "worker", TTL_SECONDS)

    assert 0 == taken.head.seq
    assert rows(1, 4) == await store.read("r")
    await store.aclose()


async def test_a_server_that_restarts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while it is away gets its answer when it is back."""
    monkeypatch.setattr(session, "CONNECT_SECONDS", 100.0)
    with PostgresServer(fsync=False) as server:
        store = PostgresCheckpointStore(server.dsn())
        lease = await started(store, "r")
        server.kill()

        append = asyncio.ensure_future(
            store.append("r", rows(2), after=1, lease=lease, summary=summary())
        )
        read = asyncio.ensure_future(store.read("r"))
        await asyncio.get_running_loop().run_in_executor(None, server.start)

        assert 2 == (await append).seq
        assert rows(1) == (await read)[:1]
        await store.aclose()


async def test_a_server_that_is_not_there_is_named_without_a_password() -> None:
    """One that was never reached is not waited for; the error tells host and database."""
    port = take_port()
    store = PostgresCheckpointStore(f"postgresql://me:hunter2@127.0.0.1:{port}/runs")

    with pytest.raises(StoreUnreachable) as refused:
        await store.head("r")
    with pytest.raises(StoreUnreachable) as again:
        store.renew({"r": Lease("r", "worker", 1, TTL_SECONDS, Head("r"))})

    for error in (refused, again):
        assert f"127.0.0.1:{port}/runs" in str(error.value)
        assert "hunter2" not in str(error.value) + repr(error.value.__cause__)
    await store.aclose()


async def test_a_network_that_says_nothing_is_given_up(
    desk: Desk, postgres_server: PostgresServer
) -> None:
    """Each operation ends within its time, on an open connection and on a new one."""
    with Proxy(postgres_server.port) as proxy:
        dsn = postgres_server.dsn(port=proxy.port) + "?connect_timeout=2"
        store = desk.store(dsn, operation_seconds=0.3)
        lease = await started(store, "r")
        await store.head("r")
        store.renew({"r": lease})
        proxy.fall_silent()

        for _ in range(2):  # the second time there is no connection
            with pytest.raises(StoreUnreachable):
                await store.append("r", rows(2), after=1, lease=lease, summary=summary())
            with pytest.raises(StoreUnreachable):
                await store.read("r")
            with pytest.raises(StoreUnreachable):
                store.renew({"r": lease})
        proxy.pass_on()
        head = await store.append("r", rows(2), after=1, lease=lease, summary=summary())
        await store.aclose()

        assert proxy.struck["Silence"]
    assert 2 == head.seq


async def test_what_did_not_answer_is_said(desk: Desk, postgres_server: PostgresServer) -> None:
    """The message names the store and the time that was waited."""
    with Proxy(postgres_server.port) as proxy:
        store = desk.store(postgres_server.dsn(port=proxy.port), operation_seconds=0.2)
        await store.head("r")
        proxy.fall_silent()

        with pytest.raises(StoreUnreachable, match=r"did not answer \(within 0\.2 seconds\)"):
            await store.head("r")
        proxy.pass_on()
        await store.aclose()


@FORKS
async def test_a_forked_child_has_connections_of_its_own(desk: Desk) -> None:
    """Parent and child go on with the same object, neither in the other's way."""
    store = desk.store()
    lease = await started(store, "parent")
    store.renew({"r": lease})

    pid = os.fork()
    if pid == 0:
        try:
            thread = threading.Thread(target=lambda: asyncio.run(_child(store)))
            thread.start()
            thread.join()
        finally:
            os._exit(0)
    for seq in range(2, 30):
        await store.append("parent", rows(seq), after=seq - 1, lease=lease, summary=summary())
    await asyncio.to_thread(os.waitpid, pid, 0)

    assert rows(1, 29) == await store.read("parent")
    assert rows(1, 29) == await store.read("child")
    await store.aclose()


async def _child(store: PostgresCheckpointStore) -> None:
    lease = await started(store, "child")
    for seq in range(2, 30):
        await store.append("child", rows(seq), after=seq - 1, lease=lease, summary=summary())
    store.renew({"r": lease})
    await store.aclose()


async def test_a_pool_lends_connections_for_one_operation_at_a_time(desk: Desk) -> None:
    """They come back as they were, whatever habits they have; dead ones are passed over."""
    with psycopg_pool.ConnectionPool(
        f"{desk.dsn}?application_name={desk.schema}",
        min_size=1,
        max_size=2,
        kwargs={"row_factory": dict_row},
        open=True,
    ) as pool:
        store = PostgresCheckpointStore(pool, schema=desk.schema)
        assert desk.store().location == store.location
        lease = await started(store, "r")
        store.renew({"r": lease})
        with pool.connection() as one, pool.connection() as two:
            assert (False, False) == (one.autocommit, two.autocommit)
        desk.sql(END_ALL, desk.schema)

        await store.append("r", rows(2), after=1, lease=lease, summary=summary())

        assert rows(1, 2) == await store.read("r")
        await store.aclose()
        assert not pool.closed
    with pytest.raises(StoreUnreachable):
        await store.read("r")
    await store.aclose()


@FORKS
async def test_a_pool_is_not_used_across_a_fork(desk: Desk) -> None:
    """Its connections are the parent's: the child is told so, instead of disturbing them."""
    with psycopg_pool.ConnectionPool(desk.dsn, min_size=1, open=True) as pool:
        store = PostgresCheckpointStore(pool, schema=desk.schema)
        await started(store, "r")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                thread = threading.Thread(target=lambda: os.write(writing, _misused(store)))
                thread.start()
                thread.join()
            finally:
                os._exit(0)
        await asyncio.to_thread(os.waitpid, pid, 0)
        told = os.read(reading, 4096).decode()
        os.close(reading)
        os.close(writing)

        assert "after the fork" in told
        assert rows(1) == await store.read("r")
        await store.aclose()


def _misused(store: PostgresCheckpointStore) -> bytes:
    try:
        asyncio.run(_read(store))
    except StoreMisused as error:
        return str(error).encode()
    return b"it was used"


async def _read(store: PostgresCheckpointStore) -> None:
    await store.read("r")


async def test_a_pool_of_one_event_loop_is_refused(desk: Desk) -> None:
    """The error says what to give instead."""
    pool = psycopg_pool.AsyncConnectionPool(desk.dsn, open=False)

    with pytest.raises(StoreMisused, match="give it the address"):
        PostgresCheckpointStore(pool)  # type: ignore[arg-type] # that is the point


async def test_a_store_that_is_forgotten_leaves_no_connection(desk: Desk) -> None:
    """Without `aclose` its threads end with it, and every connection is closed."""
    name = f"{desk.schema}-forgotten"
    store = desk.store(f"{desk.dsn}?application_name={name}")
    lease = await started(store, "r")
    await store.head("r")
    store.renew({"r": lease})
    there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    assert [(3,)] == desk.sql(there, name)

    del store
    gc.collect()

    while desk.sql(there, name) != [(0,)]:  # noqa: ASYNC110 (the server ends the sessions)
        await asyncio.sleep(0)


def test_only_silence_counts() -> None:
    """As long as bytes move nothing is given up, however long it takes in all."""

    def turns() -> Generator[str, int, str]:
        for _ in range(4):
            yield "read"
        return "all of it"

    clock = FakeClock()
    slow, silent = (session._until(turns(), clock, 10.0) for _ in range(2))
    for waiting in (slow, silent):
        next(waiting)
    for ready in (1, 0, 1):
        clock.advance(9.0 if ready else 8.0)
        slow.send(ready)

    with pytest.raises(NoAnswer, match="within 10 seconds"):
        silent.send(0)
    with pytest.raises(StopIteration, match="all of it"):
        slow.send(1)
