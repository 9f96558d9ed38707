"""Postgres: poolers on either side of the network, and what restarts under load or under a tool."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import psycopg
import psycopg_pool
import pytest

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease
from agentkit.core.contracts.transactions import Proposal, Transaction
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.checkpoints.adapters import _postgres_session as session
from agentkit.testing.servers import PgBouncer, PostgresServer
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import row, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

RUNS = 20


@pytest.fixture
async def narrow(desk: Desk) -> AsyncIterator[PostgresCheckpointStore]:
    """A store on a pool that has one connection."""
    with psycopg_pool.ConnectionPool(desk.dsn, min_size=1, max_size=1, open=True) as pool:
        store = PostgresCheckpointStore(pool, schema=desk.schema)
        yield store
        await store.aclose()


async def test_many_runs_share_the_one_connection_of_a_pool(
    narrow: PostgresCheckpointStore,
) -> None:
    """Appends, reads and renewals take turns, and a tool's transaction is one more of them."""
    leases = [await started(narrow, f"r{n}") for n in range(RUNS)]
    over = threading.Event()
    renewals: list[int] = []

    def renew() -> None:
        while not over.is_set():
            found = narrow.renew({lease.run: lease for lease in leases})
            renewals.append(sum(not one.lost for one in found.values()))

    async def work(lease: Lease) -> list[object]:
        for seq in range(2, 5):
            await narrow.append(lease.run, rows(seq), after=seq - 1, lease=lease, summary=summary())
            await narrow.head(lease.run)
        assert await transact(narrow, lease, _pays, after=4)
        return [one.body for one in await narrow.read(lease.run)]

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        found = await asyncio.gather(*(work(lease) for lease in leases))
    finally:
        over.set()
        await asyncio.to_thread(thread.join)

    assert [[one.body for one in (*rows(1, 4), row(5, "paid"))]] * RUNS == found
    assert {RUNS} == set(renewals)


async def test_a_pool_that_has_no_connection_to_give_is_an_error_that_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that a connection may take; when one is back the store works."""
    monkeypatch.setattr(session, "CONNECT_SECONDS", 0.1)
    with psycopg_pool.ConnectionPool(desk.dsn, min_size=1, max_size=1, open=True) as pool:
        store = PostgresCheckpointStore(pool, schema=desk.schema)
        lease = await started(store, "r")

        with pool.connection():
            with pytest.raises(StoreUnreachable, match="its pool gave no connection"):
                await store.append("r", rows(2), after=1, lease=lease, summary=summary())
            with pytest.raises(StoreUnreachable, match="its pool gave no connection"):
                store.renew({"r": lease})
        head = await store.append("r", rows(2), after=1, lease=lease, summary=summary())
        await store.aclose()

    assert 2 == head.seq


async def test_a_statement_that_is_cancelled_for_one_run_spoils_no_other(desk: Desk) -> None:
    """One that several share is cancelled while one of them is locked: each of the others gets its
    own, and the error of that one says what happened.
    """
    store = desk.store(f"{desk.dsn}?application_name={desk.schema}")
    leases = [await started(store, f"r{n}") for n in range(4)]

    with psycopg.connect(desk.dsn) as other:
        other.execute(
            f"SELECT 1 FROM {desk.schema}.agentkit_run WHERE run = 'r2' FOR UPDATE".encode()
        )
        tasks = [
            asyncio.ensure_future(
                store.append(lease.run, rows(2), after=1, lease=lease, summary=summary())
            )
            for lease in leases
        ]
        shared = await cancelled(desk, tasks, besides=None)
        await cancelled(desk, tasks, besides=shared)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        other.rollback()
    again = await store.append("r2", rows(2), after=1, lease=leases[2], summary=summary())
    await store.aclose()

    assert [Head, Head, StoreUnreachable, Head] == [type(one) for one in found]
    assert "the server has cancelled this" in str(found[2])
    assert 2 == again.seq


async def cancelled(
    desk: Desk, tasks: Sequence["asyncio.Task[Head]"], *, besides: object
) -> object:
    """Cancel the statement of the tasks that waits for a lock, once there is one; its beginning."""
    waits = "wait_event_type = 'Lock' AND application_name = %s AND query_start IS DISTINCT FROM %s"
    sql = f"SELECT query_start, pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waits}"
    found: list[tuple[object, ...]] = []
    while not found and not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        found = desk.sql(sql, desk.schema, besides)
    return found[0][0] if found else None


@pytest.mark.slow
@pytest.mark.pgbouncer
async def test_a_pooler_that_is_restarted_under_load_loses_and_doubles_nothing(
    desk: Desk, postgres_server: PostgresServer
) -> None:
    """Whoever is told of it asks again; all runs get on."""
    with PgBouncer(postgres_server) as pooler:
        store = desk.store(pooler.dsn())
        leases = [await started(store, f"r{n}") for n in range(RUNS)]
        seen = {lease.run: 1 for lease in leases}
        restarts = 0

        async def work(lease: Lease) -> None:
            while restarts < 3:
                seq = seen[lease.run] + 1
                try:
                    await store.append(
                        lease.run, rows(seq), after=seq - 1, lease=lease, summary=summary()
                    )
                except StoreUnreachable:
                    continue
                seen[lease.run] = seq

        tasks = [asyncio.ensure_future(work(lease)) for lease in leases]
        for number in range(3):
            before = dict(seen)
            while min(seen[run] - before[run] for run in seen) < 1 and not failed(tasks):
                await asyncio.wait(tasks, timeout=0.01)
            await asyncio.to_thread(pooler.restart)
            restarts = number + 1
        await asyncio.gather(*tasks)

        for lease in leases:
            assert rows(1, seen[lease.run]) == await store.read(lease.run)
        await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["server", pytest.param("pooler", marks=pytest.mark.pgbouncer)])
async def test_what_restarts_under_a_tool_takes_its_effect_with_it(fails: str) -> None:
    """The tool's next statement says that the store is gone; the next transaction works."""
    with PostgresServer(fsync=False) as server:
        pooler = PgBouncer(server) if fails == "pooler" else None
        failing = pooler or server
        try:
            store = PostgresCheckpointStore(failing.dsn())
            lease = await started(store, "r")
            server.sql("CREATE TABLE payment (cents integer)")

            def act(transaction: Transaction) -> str:
                transaction.execute("INSERT INTO payment VALUES (500)")
                failing.restart()
                transaction.execute("INSERT INTO payment VALUES (700)")
                return "never"

            with pytest.raises(StoreUnreachable):
                await transact(store, lease, act, after=1)
            left = server.sql("SELECT count(*) FROM payment")
            committed = await transact(store, lease, _pays, after=1)
            await store.aclose()
        finally:
            if pooler is not None:
                pooler.close()

    assert "0" == left
    assert committed


def failed(tasks: Sequence["asyncio.Task[None]"]) -> bool:
    """Whether one of them has ended."""
    return any(task.done() for task in tasks)


async def transact(
    store: PostgresCheckpointStore,
    lease: Lease,
    act: Callable[[Transaction], str],
    *,
    after: int,
) -> bool:
    """One transaction of the lease's run."""
    return await store.transact(
        lease.run,
        act,
        lambda text: Proposal((row(after + 1, text),), summary()),
        after=after,
        lease=lease,
        threads=DaemonThreads(),
        timeout_seconds=60.0,
    )


def _pays(transaction: Transaction) -> str:
    transaction.execute("SELECT 1")
    return "paid"
