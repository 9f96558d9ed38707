"""Postgres: what is sent again by itself, because the server says that it did nothing of it."""

import asyncio

import psycopg
import pytest

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.heads import Lease
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.checkpoints.adapters import _postgres_session as session
from agentkit.testing.servers import PostgresServer
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()"
)

REFUSES = """
CREATE SEQUENCE {s}.refused;
CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('{s}.refused') <= 2 THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON {s}.agentkit_run
FOR EACH ROW EXECUTE FUNCTION {s}.refuse();
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("40001", id="serialization"),
        pytest.param("40P01", id="deadlock"),
        pytest.param("25006", id="read-only"),
    ],
)
async def test_f072_what_the_server_has_undone_is_sent_again(desk: Desk, code: str) -> None:
    """More than once, and whatever it is: a claim, an append, a renewal, a removal. Nothing of it
    was done, so nothing is done twice.
    """
    store = desk.store()
    await store.head("r")
    desk.sql(REFUSES.replace("{code}", code))

    def troubled() -> bool:
        ((tried,),) = desk.sql("SELECT last_value FROM {s}.refused")
        desk.sql("SELECT setval('{s}.refused', 1, false)")
        return tried == 3

    lease = await store.acquire("r", "worker", TTL_SECONDS)
    assert troubled()
    await store.append("r", rows(1), after=0, lease=lease, summary=summary())
    assert troubled()
    renewed = store.renew({"r": lease})
    assert troubled()
    done = summary("done")
    await store.append("r", rows(2), after=1, lease=lease, summary=done, release=True)
    assert troubled()
    entombed = await store.entomb("r", updated_at=0)
    assert troubled()

    assert {"r": (1, False)} == {run: (one.seq, one.lost) for run, one in renewed.items()}
    assert entombed
    await store.aclose()


async def test_what_is_undone_again_and_again_is_an_error_that_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time with a name; nothing was written, and the store goes on working."""
    monkeypatch.setattr(session, "REPEAT_SECONDS", 0.1)
    store = desk.store()
    lease = await started(store, "r")
    desk.sql(REFUSES.replace("{code}", "40001").replace("<= 2", "<= 4000"))

    with pytest.raises(StoreUnreachable, match=r"in favour of other sessions.*Nothing was written"):
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    ((tried,),) = desk.sql("SELECT last_value FROM {s}.refused")
    desk.sql("DROP TRIGGER refuse ON {s}.agentkit_run")
    head = await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    await store.aclose()

    assert isinstance(tried, int)
    assert 1 < tried < 10
    assert 2 == head.seq


async def test_an_append_that_cannot_be_serialized_is_repeated(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    """Where the database is set so, it may not see what others did to its run meanwhile."""
    database = postgres_dsn.rpartition("/")[2]
    postgres_server.sql(
        f"ALTER DATABASE {database} SET default_transaction_isolation = serializable"
    )
    store = PostgresCheckpointStore(postgres_dsn)
    lease = await started(store, "r")

    with psycopg.connect(postgres_dsn) as other, psycopg.connect(postgres_dsn) as looking:
        other.execute("UPDATE agentkit.agentkit_run SET claims = claims")
        append = asyncio.ensure_future(
            store.append("r", rows(2), after=1, lease=lease, summary=summary())
        )
        looking.autocommit = True
        while looking.execute(WAITING).fetchone() == (0,):  # noqa: ASYNC110 (a server's session)
            await asyncio.sleep(0)
        other.commit()

    assert 2 == (await append).seq
    await store.aclose()


async def test_a_session_that_takes_no_writes_is_not_kept(
    postgres_server: PostgresServer, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next operation gets another one, which may lead to a server that does."""
    monkeypatch.setattr(session, "REPEAT_SECONDS", 0.1)
    database = postgres_dsn.rpartition("/")[2]
    owner = PostgresCheckpointStore(postgres_dsn)
    await owner.head("r")
    await owner.aclose()
    postgres_server.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    store = PostgresCheckpointStore(postgres_dsn)
    with pytest.raises(StoreUnreachable, match=r"read-only .*may be a standby"):
        await store.acquire("r", "worker", TTL_SECONDS)

    postgres_server.sql(
        "SET default_transaction_read_only = off;"
        f"ALTER DATABASE {database} RESET default_transaction_read_only"
    )
    found = await asyncio.gather(store.acquire("r", "worker", TTL_SECONDS), return_exceptions=True)
    await store.aclose()

    assert [Lease] == [type(one) for one in found]


@pytest.mark.slow
async def test_a_standby_is_waited_for_until_it_is_the_primary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failover the address may lead to a server that takes no writes yet."""
    with PostgresServer(fsync=False) as server:
        store = PostgresCheckpointStore(server.dsn())
        lease = await started(store, "r")
        server.demote()
        monkeypatch.setattr(session, "REPEAT_SECONDS", 0.1)
        with pytest.raises(StoreUnreachable, match=r"read-only .*may be a standby"):
            await store.append("r", rows(2), after=1, lease=lease, summary=summary())
        monkeypatch.setattr(session, "REPEAT_SECONDS", 100.0)

        append = asyncio.ensure_future(
            store.append("r", rows(2), after=1, lease=lease, summary=summary())
        )
        read = await store.read("r")
        server.sql("SELECT pg_promote()")

        assert rows(1) == read
        assert 2 == (await append).seq
        await store.aclose()
