"""Postgres: sessions that write to the same runs at once never wait for each other in a circle."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import psycopg
import pytest

from agentkit.core.contracts.errors import HeadMoved
from agentkit.core.contracts.heads import Head, Lease
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.checkpoints.adapters import _postgres_session as session
from tests.state.stores.helpers import row, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

T = TypeVar("T")

RUNS, STORES = 20, 4

SLOWER = """
CREATE FUNCTION {s}.slower() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.002);
    RETURN NEW;
END $$;
CREATE TRIGGER slower BEFORE INSERT OR UPDATE ON {s}.agentkit_run
FOR EACH ROW EXECUTE FUNCTION {s}.slower();
"""

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = %s"
)


@pytest.mark.parametrize("new", [False, True], ids=["runs that are there", "runs that are new"])
async def test_batches_in_any_order_lock_in_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    """Each store sends one statement for all runs, in an order of its own, all at the same moment:
    of each run's appends one gets in, and no transaction has to be rolled back for another's sake.
    """
    monkeypatch.setattr(session, "REPEAT_SECONDS", 0.0)
    dsn = f"{desk.dsn}?application_name={desk.schema}"
    stores = [desk.store(dsn) for _ in range(STORES)]
    gates = [await started(stores[0], f"gate{n}") for n in range(STORES)]

    names = [f"r{n}" for n in range(RUNS)]
    leases = [None if new else await stores[0].acquire(name, "worker", 60.0) for name in names]
    targets = list(zip(names, leases, strict=True))
    desk.sql(SLOWER)

    with psycopg.connect(desk.dsn) as other:
        sql = f"SELECT 1 FROM {desk.schema}.agentkit_run WHERE run ~ 'gate' FOR UPDATE"
        other.execute(sql.encode())
        held = [
            append(store, [(one.run, one)], 2) for store, one in zip(stores, gates, strict=True)
        ]
        await until_all_wait(desk)
        groups = [
            append(store, order, 1) for store, order in zip(stores, orders(targets), strict=True)
        ]
        await asyncio.sleep(0)
        other.rollback()
    await asyncio.gather(*held)
    found = [one for group in await asyncio.gather(*groups) for one in group]

    assert {Head, HeadMoved} == {type(one) for one in found}
    assert RUNS == sum(isinstance(one, Head) for one in found)
    for store in stores:
        await store.aclose()


async def until_all_wait(desk: Desk) -> None:
    """Until each of the stores has a statement that waits for a lock."""
    while desk.sql(WAITING, desk.schema) != [(STORES,)]:  # noqa: ASYNC110 (sessions of a server)
        await asyncio.sleep(0)


def orders(items: list[T]) -> list[list[T]]:
    """The same items in an order for each store."""
    return [items, items[::-1], items[1::2] + items[::2], items[::-2] + items[-2::-2]]


def append(
    store: PostgresCheckpointStore, targets: Sequence[tuple[str, Lease | None]], seq: int
) -> "asyncio.Future[list[Head | BaseException]]":
    """An append of this store to each of the runs, all asked for before one is answered."""
    rows = [row(seq, f"of {id(store)}")]
    return asyncio.gather(
        *(
            store.append(run, rows, after=seq - 1, lease=lease, summary=summary())
            for run, lease in targets
        ),
        return_exceptions=True,
    )
