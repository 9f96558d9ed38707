"""Postgres: who makes the tables, who may use them, and what is refused before a write."""

import asyncio
import logging
import re
import threading
from urllib.parse import quote

import pytest

from agentkit.core.contracts.errors import (
    InvalidStoreUrl,
    JournalTooNew,
    StoreDamaged,
    StoreUnreachable,
)
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore, open_store
from agentkit.state.checkpoints.adapters._migrations import steps
from agentkit.testing.servers import PgBouncer, PostgresServer
from tests.state.stores.helpers import TTL_SECONDS, child, finish, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

STARTER = """
import asyncio, sys
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from tests.state.stores.helpers import started

async def main():
    store = PostgresCheckpointStore(sys.argv[1], schema=sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    await started(store, sys.argv[3])
    await store.aclose()

asyncio.run(main())
"""

SLOW = """
CREATE FUNCTION {s}.slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.1);
    RETURN NEW;
END $$;
CREATE TRIGGER slow BEFORE INSERT ON {s}.agentkit_entry
FOR EACH ROW EXECUTE FUNCTION {s}.slow();
"""


def as_role(desk: Desk, role: str) -> str:
    """The same database for somebody who may do little."""
    desk.sql(f"CREATE ROLE {role} LOGIN")
    return desk.dsn.replace("postgres@", f"{role}:hunter2@")


async def test_of_many_starters_one_makes_the_tables(desk: Desk) -> None:
    """Twenty at once on an empty database: all of them work, each migration was applied once."""
    barrier = threading.Barrier(20)
    failed: list[BaseException] = []

    async def work(run: str) -> None:
        store = desk.store()
        barrier.wait(60)
        await started(store, run)
        await store.aclose()

    def start(run: str) -> None:
        try:
            asyncio.run(work(run))
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=start, args=(f"r{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert [] == failed
    assert [(20,)] == desk.sql("SELECT count(*) FROM {s}.agentkit_run")
    known = [(step.number, step.name) for step in steps("postgres")]
    assert known == desk.sql("SELECT version, name FROM {s}.agentkit_schema ORDER BY 1")


@pytest.mark.slow
@pytest.mark.pgbouncer
def test_of_many_processes_one_makes_the_tables(desk: Desk, pgbouncer_server: PgBouncer) -> None:
    """The same with twenty processes, half of them behind a transaction pooler."""
    processes = [
        child(STARTER, pgbouncer_server.dsn() if n % 2 else desk.dsn, desk.schema, f"r{n}")
        for n in range(20)
    ]
    for process in processes:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)

    assert [(20,)] == desk.sql("SELECT count(*) FROM {s}.agentkit_run")
    assert [(len(steps("postgres")),)] == desk.sql("SELECT count(*) FROM {s}.agentkit_schema")


async def test_a_newer_schema_is_refused_before_anything_is_written(desk: Desk) -> None:
    """Every first operation says so, and the store is as it was."""
    store = desk.store()
    lease = await started(store, "r")
    await store.aclose()
    desk.sql("INSERT INTO {s}.agentkit_schema (version, name) VALUES (999, 'later')")
    before = desk.sql("SELECT * FROM {s}.agentkit_run")

    late = desk.store()
    with pytest.raises(JournalTooNew, match="has schema 999, this release knows schema 1"):
        await late.append("r", rows(2), after=1, lease=lease, summary=summary())
    with pytest.raises(JournalTooNew):
        await late.acquire("other", "worker", TTL_SECONDS)
    with pytest.raises(JournalTooNew):
        late.renew({"r": lease})
    with pytest.raises(JournalTooNew):
        await late.read("r")
    await late.aclose()

    assert before == desk.sql("SELECT * FROM {s}.agentkit_run")


async def test_a_role_that_may_not_make_tables_uses_those_that_are_there(desk: Desk) -> None:
    """Without them it is told what its owner has to do: what the script of the migration names."""
    role = f"{desk.schema}_clerk"
    store = desk.store(as_role(desk, role))
    with pytest.raises(
        StoreUnreachable, match=r"may not make them .*`agentkit migrate`"
    ) as refused:
        await store.head("r")
    assert "hunter2" not in str(refused.value)

    owner = desk.store()
    script = (await owner.migrate())[-1].sql
    await owner.aclose()
    desk.sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {s} FROM PUBLIC")
    with pytest.raises(StoreUnreachable, match=r"permission denied.*migrate --print"):
        await store.head("r")
    grants = re.findall(r"^-- (GRANT .+) TO its_role;$", script, re.MULTILINE)
    for grant in grants:
        desk.sql(f"{grant} TO {role}")
    lease = await started(store, "r")
    store.renew({"r": lease})
    await store.append("r", [], after=1, lease=lease, summary=summary("done"), release=True)

    assert await store.entomb("r", updated_at=0)
    assert await store.delete_run("r")
    assert "ours" == (await store.claim_value("k", token="t", ttl_seconds=9)).state
    await store.aclose()
    desk.sql(f"DROP OWNED BY {role}")
    desk.sql(f"DROP ROLE {role}")


async def test_the_script_is_what_the_store_does(desk: Desk) -> None:
    """Looking makes nothing; run by hand in a schema of a name like any, it makes the tables."""
    store = PostgresCheckpointStore(desk.dsn, schema="by 'hand\"")
    there = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'by %'"

    lacking = await store.migrations()
    assert [(0,)] == desk.sql(there)
    for step in lacking:
        desk.sql(step.sql)
    known = await store.migrations()
    applied = await store.migrate()
    await started(store, "r")
    await store.aclose()

    assert [False] * len(lacking) == [step.applied for step in lacking]
    assert [True] * len(known) == [step.applied for step in known]
    assert [] == applied
    desk.sql('DROP SCHEMA "by \'hand""" CASCADE')


@pytest.mark.parametrize(
    "name",
    [
        "Upper Case",
        "it's",
        'a "quoted" one',
        "a$1$b",
        "back\\slash",
        "-- x; DROP SCHEMA public",
        "user",
        "schéma ☂ 模式",
        "x" * 63,
        "ü" * 31 + "x",
    ],
)
async def test_a_schema_may_have_any_name_that_a_statement_can_hold(desk: Desk, name: str) -> None:
    """Its tables are in that one and no other, by argument and by URL."""
    there = "SELECT nspname FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid"
    before = desk.sql(f"{there} WHERE relname = 'agentkit_run'")
    store = PostgresCheckpointStore(desk.dsn, schema=name)
    named = open_store(f"{desk.dsn}?schema={quote(name, safe='')}")
    lease = await started(store, "r")
    store.renew({"r": lease})
    await store.append("r", rows(2), after=1, lease=lease, summary=summary("done"), release=True)
    found = await named.read("r")
    await store.aclose()
    await named.aclose()

    assert rows(1, 2) == found
    assert store.location == named.location
    assert {*before, (name,)} == {*desk.sql(f"{there} WHERE relname = 'agentkit_run'")}
    desk.sql(f'DROP SCHEMA "{name.replace(chr(34), chr(34) * 2)}" CASCADE')


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 64,
        "ü" * 32,
        "100%",
        "%s",
        "a$$b",
        "{name}",
        "a\0b",
        "a\nb",
        "\ud800",
        "pg_catalog",
        "pg_temp",
        "information_schema",
    ],
)
def test_a_schema_that_could_be_mistaken_is_refused_by_name(name: str) -> None:
    """Before anything is asked of the server."""
    with pytest.raises(InvalidStoreUrl, match=r"schema") as refused:
        PostgresCheckpointStore("postgresql://nobody@127.0.0.1:1/none", schema=name)

    assert repr(name) in str(refused.value)


async def test_a_store_is_migrated_before_it_is_used(desk: Desk) -> None:
    """Somebody who may brings it up; it is done once."""
    store = desk.store()

    first, again = await store.migrate(), await store.migrate()
    await store.aclose()

    assert [step.number for step in steps("postgres")] == [step.number for step in first]
    assert [] == again


async def test_a_database_that_cannot_hold_every_text_is_refused(
    postgres_server: PostgresServer,
) -> None:
    """Before any table is made in it."""
    postgres_server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    store = PostgresCheckpointStore(postgres_server.dsn("latin"))

    with pytest.raises(StoreUnreachable, match="encoding LATIN1"):
        await store.head("r")
    await store.aclose()

    tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'agentkit%'"
    assert "0" == postgres_server.sql(tables, database="latin")
    postgres_server.drop_database("latin")


async def test_a_schema_that_vanishes_is_not_made_anew(desk: Desk) -> None:
    """Somebody drops it under a running worker, to restore it: until it is there again everything
    is refused, on old connections and on new ones, for an empty store would begin known runs anew.
    """
    store = desk.store()
    await started(store, "r")
    desk.sql("ALTER SCHEMA {s} RENAME TO {s}_away")

    with pytest.raises(StoreUnreachable, match="lacks what it should have"):
        await store.acquire("r", "worker", TTL_SECONDS)
    await store.aclose()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="has lost its schema"):
            await store.acquire("r", "worker", TTL_SECONDS)
    with pytest.raises(StoreDamaged, match="has lost its schema"):
        await store.reclaim(limit_seconds=1.0)
    assert [(0,)] == desk.sql("SELECT count(*) FROM pg_namespace WHERE nspname = '{s}'")
    desk.sql("ALTER SCHEMA {s}_away RENAME TO {s}")

    assert rows(1) == await store.read("r")
    await store.aclose()


@pytest.mark.parametrize("limit", ["20ms", "1s"])
async def test_a_roles_own_statement_timeout_does_not_count(desk: Desk, limit: str) -> None:
    """What an operation may take is the store's to say, making the tables included."""
    role = f"{desk.schema}_hasty"
    dsn = as_role(desk, role)
    desk.sql(f"ALTER ROLE {role} SUPERUSER")
    desk.sql(f"ALTER ROLE {role} SET statement_timeout = '{limit}'")
    store = desk.store(dsn)
    lease = await started(store, "r")
    desk.sql(SLOW)

    head = await store.append("r", rows(2), after=1, lease=lease, summary=summary())

    assert 2 == head.seq
    await store.aclose()
    desk.sql("DROP SCHEMA {s} CASCADE")
    desk.sql(f"DROP ROLE {role}")


async def test_f118_nothing_that_is_logged_shows_a_password(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """From connecting to closing, at the finest level."""
    caplog.set_level(logging.DEBUG)
    store = desk.store(desk.dsn.replace("postgres@", "postgres:hunter2@"))
    await started(store, "r")
    await store.aclose()

    assert "hunter2" not in caplog.text


async def test_names_of_any_length_are_found(desk: Desk) -> None:
    """A scope of a megabyte and a run of 2,048 bytes are no more than a digest in an index."""
    wide = Scope("".join(chr(0x4E00 + n % 20_000) for n in range(300_000)), "ü" * 1000)
    run = "".join(chr(0x1F300 + n % 700) for n in range(512))
    store = desk.store()
    view = store.scoped(wide)
    await started(view, run, 2)

    assert rows(1, 2) == await view.read(run)
    assert [run] == [one.run for one in (await view.list_runs())[0]]
    assert [wide.key] == await store.scopes()
    assert "ours" == (await view.claim_value(run, token="t", ttl_seconds=9)).state
    await store.aclose()
