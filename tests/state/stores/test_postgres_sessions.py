"""Postgres: whatever a transactional tool does to its session, the next user finds it as it was."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import psycopg
import psycopg_pool
import pytest

from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.transactions import Proposal, Transaction
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.testing.servers import PgBouncer
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import row, started, summary
from tests.state.stores.postgres_kit import Desk, desk
from tests.state.stores.test_postgres_transactions import nothing, threads, transact

__all__ = ["desk", "threads"]

pytestmark = pytest.mark.postgres

LEAVES = (
    "SELECT set_config('search_path', 'evil', false)",
    "SELECT set_config('lock_timeout', '1234', false)",
    "SELECT set_config('synchronous_commit', 'off', false)",
    "SELECT pg_advisory_lock(7007)",
    "SELECT 1 AS one INTO TEMP left_behind",
    "SELECT set_config('role', 'pg_monitor', false)",
)

FINDS = (
    "SELECT current_setting('search_path'), current_setting('lock_timeout') = '1234ms', "
    "current_setting('synchronous_commit'), current_user = session_user, "
    "to_regclass('pg_temp.left_behind') IS NULL"
)

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7007"


class Used(NamedTuple):
    """A store whose tools meet on one session, and what that is set to by whoever owns it."""

    desk: Desk
    store: PostgresCheckpointStore
    lease: Lease
    search_path: str


@pytest.fixture(params=["direct", "pool", pytest.param("pooler", marks=pytest.mark.pgbouncer)])
async def used(desk: Desk, request: pytest.FixtureRequest) -> AsyncIterator[Used]:
    """Our own connections, the user's pool, and a transaction pooler."""
    if request.param == "pool":
        with psycopg_pool.ConnectionPool(
            desk.dsn, min_size=1, max_size=1, open=True, configure=_configured
        ) as pool:
            store = PostgresCheckpointStore(pool, schema=desk.schema)
            yield Used(desk, store, await started(store, "r"), "mine")
            await store.aclose()
            return
    dsn = ""
    if request.param == "pooler":
        bouncer: PgBouncer = request.getfixturevalue("pgbouncer_server")
        dsn = bouncer.dsn()
    store = desk.store(dsn)
    yield Used(desk, store, await started(store, "r"), '"$user", public')
    await store.aclose()


def _configured(db: psycopg.Connection[object]) -> None:
    db.execute("SET search_path = mine")
    db.commit()


@pytest.mark.parametrize("ends", ["committed", "rolled back"])
async def test_a_tool_leaves_its_session_as_it_was(
    used: Used, threads: DaemonThreads, ends: str
) -> None:
    """Settings, role, locks that outlive a transaction and temporary tables are gone; what the
    owner of a pool has set is there. The entry of the tool is as durable as any.
    """

    def leaves(transaction: Transaction) -> str:
        for sql in LEAVES:
            transaction.execute(sql)
        return "left"

    found: list[object] = []

    def finds(transaction: Transaction) -> str:
        found.extend(transaction.execute(FINDS))
        return "found"

    def second(text: str) -> Proposal:
        return Proposal((row(2 + committed, text),), summary())

    if ends == "committed":
        committed = await transact(used.store, used.lease, leaves, threads=threads)
    else:
        committed = await transact(used.store, used.lease, leaves, nothing, threads=threads)
    locks = used.desk.sql(LOCKS)
    await transact(used.store, used.lease, finds, second, threads=threads, after=1 + committed)

    assert (ends == "committed") == committed
    assert [(0,)] == locks
    is_ours = used.search_path != "mine"
    assert [(used.search_path, False, "on", True, is_ours or ends != "committed")] == found
