"""Postgres: what an address may say, what is said of it, and what is not."""

import psycopg_pool
import pytest

from agentkit.core.contracts.errors import InvalidStoreUrl, StoreMisused
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore, open_store
from tests.state.stores.helpers import rows, started
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_an_encoding_that_does_not_hold_every_text_is_refused(
    desk: Desk, encoding: str
) -> None:
    """By name: of an address before anything is asked, of a pool with its first connection."""
    with pytest.raises(InvalidStoreUrl, match=f"client_encoding={encoding}"):
        open_store(f"{desk.dsn}?client_encoding={encoding}")
    options = {"client_encoding": encoding}
    with psycopg_pool.ConnectionPool(desk.dsn, min_size=1, kwargs=options, open=True) as pool:
        store = PostgresCheckpointStore(pool, schema=desk.schema)
        with pytest.raises(StoreMisused, match="client_encoding"):
            await store.head("r")
        await store.aclose()

    unicode = open_store(f"{desk.dsn}?schema={desk.schema}&client_encoding=utf-8")
    await started(unicode, "☂ 😀")
    assert rows(1) == await unicode.read("☂ 😀")
    await unicode.aclose()


def test_an_option_that_is_unknown_is_named_and_no_password_is() -> None:
    """A part of the address that may be one is not quoted."""
    with pytest.raises(InvalidStoreUrl, match="option 'schma', which is unknown") as refused:
        open_store("postgresql://me:hunter2@db.example/runs?sslmode=prefer&schma=x")
    with pytest.raises(InvalidStoreUrl, match="not understood") as unquoted:
        open_store("postgresql://db.example/runs?hun=ter2@x")

    assert "hunter2" not in str(refused.value)
    assert "'hun'" not in str(unquoted.value)
    assert "dbname" not in str(unquoted.value)


def test_a_location_names_the_data_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the address is written, and whatever of it comes from the environment."""
    expected = "postgresql://db.example:5432/runs?schema=agentkit"

    for address in (
        "postgresql://me:hunter2@db.example/runs",
        "postgres://DB.example:5432/runs?sslmode=prefer",
        "host=db.example dbname=runs user=you password='hunter2'",
    ):
        store = PostgresCheckpointStore(address)
        assert expected == store.location
        assert "hunter2" not in repr(store) + repr(vars(store)) + repr(vars(store._engine))
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGDATABASE", "runs")
    assert expected == PostgresCheckpointStore("").location
    opened = open_store("postgresql://me:hunter2@db.example/runs?schema=b%20c&connect_timeout=3")
    assert "postgresql://db.example:5432/runs?schema=b%20c" == opened.location
    twins = PostgresCheckpointStore("host=/run/pg,other port=5433 dbname=x")
    assert "postgresql://%2Frun%2Fpg:5433,other:5433/x?schema=agentkit" == twins.location


@pytest.mark.parametrize(
    "address",
    ["password=hunter2 x", "postgresql://me:hunter2@[::1/db", "host=x pass word=hunter2"],
)
def test_f118_an_address_that_is_not_understood_is_not_shown(address: str) -> None:
    """The driver would quote it."""
    with pytest.raises(InvalidStoreUrl) as refused:
        PostgresCheckpointStore(address)

    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__
