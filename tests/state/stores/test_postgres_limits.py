"""Postgres: how long an operation may take, there and here, and how much it may bring."""

import asyncio
from math import inf, nan

import psycopg
import pytest

from agentkit.core.contracts.errors import StoreMisused, StoreUnreachable
from agentkit.core.contracts.heads import Row
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.testing.servers import PostgresServer, Proxy
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

SLOW = """
CREATE FUNCTION {s}.slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep({seconds});
    RETURN NEW;
END $$;
CREATE TRIGGER slow BEFORE INSERT ON {s}.agentkit_entry
FOR EACH ROW EXECUTE FUNCTION {s}.slow();
"""

AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND application_name = %s"

LEASES = "SELECT run, expires_ms FROM {s}.agentkit_run"

WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND position(%s IN query) > 0"
)

FREE = "SELECT count(*) FROM (SELECT FROM {s}.agentkit_run FOR UPDATE SKIP LOCKED) AS free"


async def test_an_append_of_many_entries_is_as_slow_as_they_are_many(desk: Desk) -> None:
    """A run of 24,000 entries comes in one, as a copy, an import or a fork brings it."""
    store = desk.store()
    many = [Row(seq, b"y" * 250, b"%08d" % seq) for seq in range(1, 24_001)]
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    head = await store.append("r", many, after=0, lease=lease, summary=summary())
    again = await store.append("r", many, after=0, lease=lease, summary=summary())

    assert (24_000, 24_000) == (head.seq, again.seq)
    assert many[-10:] == await store.read("r", after=23_990)
    await store.aclose()


async def test_an_append_that_brings_much_has_longer(desk: Desk) -> None:
    """A second for a megabyte: what is too long for a small entry is not for a large one."""
    store = desk.store(operation_seconds=0.5)
    lease = await started(store, "r")
    desk.sql(SLOW.replace("{seconds}", "0.7"))
    large = [Row(2, b"y" * 1_000_000, b"00000002")]

    with pytest.raises(StoreUnreachable, match="has cancelled this"):
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    head = await store.append("r", large, after=1, lease=lease, summary=summary())

    assert 2 == head.seq
    await store.aclose()


async def test_the_server_ends_what_takes_too_long(desk: Desk) -> None:
    """Its own word comes before the connection is given up, so nothing is in doubt; whatever role
    and database are set to, and nothing stays set.
    """
    store = desk.store(operation_seconds=0.3)
    lease = await started(store, "r")
    desk.sql(SLOW.replace("{seconds}", "60"))

    with pytest.raises(StoreUnreachable, match="Nothing was written"):
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())

    assert [(1,)] == desk.sql(FREE)
    desk.sql("DROP TRIGGER slow ON {s}.agentkit_entry")
    assert 2 == (await store.append("r", rows(2), after=1, lease=lease, summary=summary())).seq
    await store.aclose()


async def test_what_was_given_up_lets_go_of_its_run(
    desk: Desk, postgres_server: PostgresServer
) -> None:
    """Behind a network that says nothing the server ends it by itself, and its lock with it."""
    name = f"{desk.schema}-given-up"
    with Proxy(postgres_server.port) as proxy:
        dsn = f"{postgres_server.dsn(port=proxy.port)}?application_name={name}"
        store = desk.store(dsn, operation_seconds=1.0)
        lease = await started(store, "r")
        await asyncio.to_thread(desk.sql, SLOW.replace("{seconds}", "60"))
        append = asyncio.ensure_future(
            store.append("r", rows(2), after=1, lease=lease, summary=summary())
        )
        while desk.sql(AT_WORK, name) != [(1,)]:  # noqa: ASYNC110 (another process comes to it)
            await asyncio.sleep(0)
        proxy.fall_silent()

        with pytest.raises(StoreUnreachable, match="did not answer"):
            await append
        while desk.sql(AT_WORK, name) != [(0,)]:  # noqa: ASYNC110 (the server ends it)
            await asyncio.sleep(0)
        assert [(1,)] == desk.sql(FREE)
        proxy.pass_on()
        await store.aclose()


async def test_a_run_that_is_locked_costs_no_other_its_lease(desk: Desk) -> None:
    """What can be renewed is, and said; the locked ones are left out until the next time."""
    store = desk.store()
    leases = {run: await started(store, run) for run in ("free", "one", "two")}
    before = desk.sql(LEASES)
    with psycopg.connect(desk.dsn) as other:
        other.execute(f"SELECT FROM {desk.schema}.agentkit_run WHERE run <> 'free' FOR UPDATE")

        renewed = await asyncio.to_thread(store.renew, leases)

        assert ["free"] == [run for run, one in renewed.items() if not one.lost]
        assert {"free"} == renewed.keys()
    assert ["free"] == [row[0] for row in desk.sql(LEASES) if row not in before]
    assert {"free", "one", "two"} == store.renew(leases).keys()
    await store.aclose()


async def test_a_run_that_is_locked_for_a_moment_is_renewed(desk: Desk) -> None:
    """A renewal waits its turn behind an append of another run's neighbour, or of its own."""
    store = desk.store()
    lease = await started(store, "r")
    with psycopg.connect(desk.dsn) as other:
        other.execute(f"SELECT FROM {desk.schema}.agentkit_run FOR UPDATE")
        renewal = asyncio.ensure_future(asyncio.to_thread(store.renew, {"r": lease}))
        while desk.sql(WAITS, desk.schema) != [(1,)]:  # noqa: ASYNC110 (another thread comes to it)
            await asyncio.sleep(0)

    assert {"r"} == (await renewal).keys()
    await store.aclose()


@pytest.mark.parametrize("seconds", [0, -1, nan, inf, 1e9])
@pytest.mark.parametrize("option", ["operation_seconds", "transaction_seconds"])
def test_a_limit_that_is_no_time_is_refused_by_name(
    desk: Desk, option: str, seconds: float
) -> None:
    """Before anything is asked of the server."""
    with pytest.raises(StoreMisused, match=f"{option} must be more than 0"):
        PostgresCheckpointStore(desk.dsn, **{option: seconds})  # type: ignore[arg-type] # a table
