"""Postgres: what a tool writes and the entries about it are one transaction, whatever it does."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from agentkit.core.contracts.errors import (
    EntryTooLarge,
    HeadMoved,
    JournalDamaged,
    LeaseLost,
    StatementRefused,
    StoreUnreachable,
    TransactionOver,
)
from agentkit.core.contracts.heads import Lease, Row
from agentkit.core.contracts.transactions import Proposal, Transaction, TransactionalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.journal.codec import MAX_ENTRY_BYTES
from agentkit.testing.servers import PgBouncer
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import TTL_SECONDS, row, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

PAY = "INSERT INTO {s}.payment VALUES (%s)"


class Shop(NamedTuple):
    """A store with run `r`, and a table of the tool's own."""

    desk: Desk
    store: PostgresCheckpointStore
    lease: Lease
    clock: FakeClock

    @property
    def pay(self) -> str:
        """The statement that has an effect."""
        return PAY.replace("{s}", self.desk.schema)

    def payments(self) -> list[object]:
        """What another program sees of the effects."""
        return [cents for (cents,) in self.desk.sql("SELECT cents FROM {s}.payment ORDER BY 1")]

    def paying(self, transaction: Transaction) -> str:
        """A tool with an effect."""
        transaction.execute(self.pay, (500,))
        return "paid"


@pytest.fixture
def threads() -> DaemonThreads:
    """Where the tools run."""
    return DaemonThreads()


@pytest.fixture(params=["direct", pytest.param("pooler", marks=pytest.mark.pgbouncer)])
async def shop(desk: Desk, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """Directly, and behind a transaction pooler."""
    clock = FakeClock()
    dsn = ""
    if request.param == "pooler":
        bouncer: PgBouncer = request.getfixturevalue("pgbouncer_server")
        dsn = bouncer.dsn()
    store = desk.store(dsn, clock=clock)
    lease = await started(store, "r")
    desk.sql("CREATE TABLE {s}.payment (cents integer UNIQUE DEFERRABLE INITIALLY IMMEDIATE)")
    yield Shop(desk, store, lease, clock)
    await store.aclose()


def outcome(text: str) -> Proposal:
    """The entry that says what the tool returned."""
    return Proposal((row(2, text),), summary())


def nothing(_: object) -> None:
    """What makes the transaction be rolled back."""


async def transact(
    store: TransactionalPort,
    lease: Lease,
    act: Callable[[Transaction], str],
    conclude: Callable[[str], Proposal | None] = outcome,
    *,
    threads: DaemonThreads,
    after: int = 1,
    timeout_seconds: float = 300.0,
) -> bool:
    """One transaction of run `r`."""
    return await store.transact(
        "r",
        act,
        conclude,
        after=after,
        lease=lease,
        threads=threads,
        timeout_seconds=timeout_seconds,
    )


async def test_effect_and_entry_are_there_together(shop: Shop, threads: DaemonThreads) -> None:
    """Both are durable when the call returns, the head has moved, and before neither was seen."""
    seen: list[tuple[list[object], list[object]]] = []

    def conclude(text: str) -> Proposal:
        entries = [seq for (seq,) in shop.desk.sql("SELECT seq FROM {s}.agentkit_entry")]
        seen.append((shop.payments(), entries))
        return outcome(text)

    committed = await transact(shop.store, shop.lease, shop.paying, conclude, threads=threads)

    head = await shop.store.head("r")
    assert committed
    assert [([], [1])] == seen
    assert [500] == shop.payments()
    assert [*rows(1), row(2, "paid")] == await shop.store.read("r")
    assert head is not None
    assert 2 == head.seq


async def test_nothing_is_left_where_there_is_no_entry(shop: Shop, threads: DaemonThreads) -> None:
    """A tool that failed gives nothing to append, and its effects are rolled back."""
    committed = await transact(shop.store, shop.lease, shop.paying, nothing, threads=threads)

    assert not committed
    assert [] == shop.payments()
    assert rows(1) == await shop.store.read("r")


async def test_values_are_plain_and_parameters_are_the_drivers(
    shop: Shop, threads: DaemonThreads
) -> None:
    """Parameters are `%s` and `%(name)s`, a `%` alone is itself where there are none, and what is
    no number, text or bytes comes as Postgres prints it.
    """
    seen: list[tuple[object, ...]] = []
    table = f"{shop.desk.schema}.mine"

    def act(transaction: Transaction) -> str:
        transaction.execute(f"CREATE TABLE {table} (a int, b text, c bytea, d numeric, e int[])")
        transaction.executemany(
            f"INSERT INTO {table} VALUES (%s, %s, %s, 1.50, '{{1,2}}')",
            [(1, "x%", b"\0"), (2, None, None)],
        )
        seen.extend(transaction.execute(f"SELECT * FROM {table} WHERE a = %(a)s", {"a": 1}))
        seen.extend(transaction.execute(f"SELECT a FROM {table} WHERE b LIKE 'x%'"))
        seen.extend(transaction.execute("SELECT true, 0.5::float8, date '2024-02-29', '{}'::json"))
        return "ok"

    assert await transact(shop.store, shop.lease, act, threads=threads)
    assert [(1, "x%", b"\0", "1.50", "{1,2}"), (1,), (True, 0.5, "2024-02-29", "{}")] == seen


async def test_a_head_that_moved_is_noticed_before_the_tool_runs(
    shop: Shop, threads: DaemonThreads
) -> None:
    """Somebody's note is at the place of our entry, or a newer epoch owns the run."""
    await shop.store.append("r", rows(2), after=1, lease=None, summary=summary())
    with pytest.raises(HeadMoved):
        await transact(shop.store, shop.lease, shop.paying, threads=threads)
    shop.clock.advance(TTL_SECONDS)
    await shop.store.acquire("r", "other", TTL_SECONDS)

    with pytest.raises(LeaseLost):
        await transact(shop.store, shop.lease, shop.paying, threads=threads, after=2)

    assert [] == shop.payments()


async def test_nobody_takes_the_run_nor_leaves_a_note_while_the_tool_works(
    shop: Shop, threads: DaemonThreads
) -> None:
    """A takeover of the lapsed lease and a note both wait until the outcome is in; another run of
    the same store does not.
    """
    shop.clock.advance(TTL_SECONDS)
    one, two, three = (shop.desk.store(clock=shop.clock) for _ in range(3))
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def act(transaction: Transaction) -> str:
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(30)
        return shop.paying(transaction)

    ours = asyncio.create_task(transact(shop.store, shop.lease, act, threads=threads))
    await inside.wait()
    note = asyncio.create_task(
        one.append("r", rows(2, text="note"), after=1, lease=None, summary=summary())
    )
    takeover = asyncio.create_task(two.acquire("r", "other", TTL_SECONDS))
    await started(three, "elsewhere")
    assert not note.done()
    assert not takeover.done()
    go_on.set()

    assert await ours
    with pytest.raises(HeadMoved):
        await note
    assert (await takeover).head.seq == 2
    for store in (one, two, three):
        await store.aclose()


REPLACES = (
    "CREATE OR REPLACE FUNCTION {s}.agentkit_now(given_ms bigint) RETURNS bigint LANGUAGE sql AS "
    "'SELECT 1::bigint'"
)

REFUSED = [
    "BEGIN",
    "begin isolation level serializable",
    "START TRANSACTION",
    "COMMIT",
    "/* /* x */ */ COMMIT",
    "-- x\nCOMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT mine",
    "RELEASE agentkit_statement",
    "ROLLBACK TO agentkit_statement",
    "PREPARE TRANSACTION 'x'",
    "PREPARE p AS SELECT 1",
    "SET synchronous_commit = off",
    "SET LOCAL statement_timeout = 0",
    "RESET ALL",
    "SHOW statement_timeout",
    "COPY {s}.payment TO '/dev/null'",
    "LISTEN x",
    "NOTIFY x",
    "LOCK TABLE {s}.payment",
    "DO $$ BEGIN COMMIT; END $$",
    "CALL x()",
    "VACUUM",
    "DISCARD ALL",
    "DECLARE c CURSOR FOR SELECT 1",
    "CREATE TEMP TABLE t (a int)",
    "CREATE SCHEMA mine",
    "CREATE EXTENSION dblink",
    "DROP SCHEMA {s} CASCADE",
    "",
    "  ;",
    "CREATE TABLE {s}.agentkit_mine (a int)",
    "ALTER TABLE {s}.payment RENAME TO agentkit_mine",
    "INSERT INTO {s}.agentkit_entry VALUES (1, 9, '', '')",
    "UPDATE {s}.agentkit_run SET epoch = 0",
    'UPDATE {s}."agentkit_run" SET epoch = 0',
    "DELETE FROM {s}.agentkit_entry",
    "DROP TABLE {s}.agentkit_run CASCADE",
    "TRUNCATE {s}.agentkit_entry",
    "SELECT body FROM {s}.agentkit_entry",
    "SELECT body FROM {s}.agentkit_journal",
    "SELECT epoch FROM {s}.agentkit_run",
    "WITH x AS (DELETE FROM {s}.agentkit_value RETURNING 1) SELECT * FROM x",
    "CREATE INDEX mine ON {s}.agentkit_entry (seq)",
    "SELECT {s}.agentkit_entomb(''::bytea, '', '', 0, 0, 0)",
    "ALTER FUNCTION {s}.agentkit_now RENAME TO mine",
    REPLACES,
    "ALTER FUNCTION {s}.agentkit_now(bigint) STABLE",
    "DROP FUNCTION {s}.agentkit_now(bigint)",
    "INSERT INTO {s}.payment VALUES (1); COMMIT",
    "SELECT 1; SELECT 2",
    "no sql",
    "SELECT * FROM missing",
    "SELECT 1 / 0",
    "INSERT INTO {s}.payment VALUES (500)",
    "INSERT INTO {s}.payment VALUES ('x')",
    "SELECT 'a\x00b'",
    "SELECT '\ud800'",
]


async def test_a_statement_is_refused_and_the_transaction_goes_on(
    shop: Shop, threads: DaemonThreads
) -> None:
    """It does nothing, and says why; what the tool did before and does after it counts."""
    looks = "SELECT relname FROM pg_class WHERE relnamespace = '{s}'::regnamespace ORDER BY 1"
    before = shop.desk.sql(looks)
    texts: list[str] = []

    def act(transaction: Transaction) -> str:
        transaction.execute(shop.pay, (500,))
        for sql in REFUSED:
            with pytest.raises(StatementRefused) as refused:
                transaction.execute(sql.replace("{s}", shop.desk.schema))
            texts.append(str(refused.value))
        with pytest.raises(StatementRefused):
            transaction.execute(shop.pay, ("too", "many"))
        with pytest.raises(StatementRefused):
            transaction.executemany(shop.pay, [(600,), (500,)])
        transaction.execute(shop.pay, (700,))
        return "paid"

    assert await transact(shop.store, shop.lease, act, threads=threads)
    assert [500, 700] == shop.payments()
    assert before == shop.desk.sql(looks)
    assert [*rows(1), row(2, "paid")] == await shop.store.read("r")
    assert all(texts)


async def test_a_trigger_of_the_users_cannot_reach_our_tables(
    shop: Shop, threads: DaemonThreads
) -> None:
    """What counts is which tables a statement came to, not which it names."""
    shop.desk.sql(
        "CREATE FUNCTION {s}.reach() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "EXECUTE 'UPDATE {s}.agent' || 'kit_run SET epoch = 0'; RETURN NEW; END $$"
    )
    shop.desk.sql(
        "CREATE TRIGGER t AFTER INSERT ON {s}.payment FOR EACH ROW EXECUTE FUNCTION {s}.reach()"
    )

    def act(transaction: Transaction) -> str:
        with pytest.raises(StatementRefused, match="out of a tool's reach: agentkit_run"):
            transaction.execute(shop.pay, (500,))
        return "refused"

    assert await transact(shop.store, shop.lease, act, threads=threads)
    assert [] == shop.payments()
    head = await shop.store.head("r")
    assert head is not None
    assert shop.lease.epoch == head.epoch


async def test_a_constraint_that_would_fail_at_the_commit_fails_before_it(
    shop: Shop, threads: DaemonThreads
) -> None:
    """A deferred constraint is checked when the tool has returned: nothing of it happened."""
    shop.desk.sql("DROP TABLE {s}.payment")
    shop.desk.sql("CREATE TABLE {s}.payment (cents int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    shop.desk.sql("INSERT INTO {s}.payment VALUES (500)")

    with pytest.raises(TransactionOver, match="unique constraint"):
        await transact(shop.store, shop.lease, shop.paying, threads=threads)

    assert [500] == shop.payments()
    assert rows(1) == await shop.store.read("r")
    shop.desk.sql("DELETE FROM {s}.payment")
    assert await transact(shop.store, shop.lease, shop.paying, threads=threads)


async def test_a_tool_that_computes_for_too_long_is_cut_off(
    shop: Shop, threads: DaemonThreads
) -> None:
    """Its next statement fails, its effects are rolled back, and the run is free."""

    def act(transaction: Transaction) -> str:
        transaction.execute(shop.pay, (500,))
        shop.clock.advance(2.0)
        with pytest.raises(TransactionOver, match="2 seconds"):
            transaction.execute(shop.pay, (700,))
        return "paid"

    with pytest.raises(TransactionOver, match="2 seconds"):
        await transact(shop.store, shop.lease, act, threads=threads)

    assert [] == shop.payments()
    await shop.store.append("r", rows(2), after=1, lease=shop.lease, summary=summary())


async def test_a_statement_that_runs_for_too_long_is_cut_off(
    shop: Shop, threads: DaemonThreads
) -> None:
    """The server ends it, or else the connection is cut under it."""

    def act(transaction: Transaction) -> str:
        transaction.execute(shop.pay, (500,))
        transaction.execute("SELECT pg_sleep(600)")
        return "never"

    with pytest.raises(TransactionOver, match=r"0\.3 seconds"):
        await transact(shop.store, shop.lease, act, threads=threads, timeout_seconds=0.3)

    await shop.store.append("r", rows(2), after=1, lease=shop.lease, summary=summary())
    assert [] == shop.payments()


async def test_a_tool_that_never_returns_keeps_nobody_from_the_run(
    shop: Shop, threads: DaemonThreads
) -> None:
    """At its limit its connection is closed under it; what it does after that does nothing."""
    store = shop.desk.store(transaction_seconds=0.02)
    go_on, after = threading.Event(), threading.Event()
    raised: list[type[BaseException]] = []

    def act(transaction: Transaction) -> str:
        assert go_on.wait(30)
        try:
            transaction.execute(shop.pay, (700,))
        except TransactionOver as exc:
            raised.append(type(exc))
        after.set()
        return "paid"

    with pytest.raises(TransactionOver, match=r"0\.02 seconds"):
        await transact(store, shop.lease, act, threads=threads)
    await store.append("r", rows(2), after=1, lease=shop.lease, summary=summary())
    go_on.set()
    assert await asyncio.get_running_loop().run_in_executor(None, after.wait, 30)

    assert [TransactionOver] == raised
    assert [] == shop.payments()
    assert rows(1, 2) == await store.read("r")
    await store.aclose()


async def test_a_cancelled_caller_leaves_nothing_behind(shop: Shop, threads: DaemonThreads) -> None:
    """The transaction is rolled back while its tool goes on, in the middle of a statement too."""
    inside = asyncio.Event()
    loop = asyncio.get_running_loop()

    def act(transaction: Transaction) -> str:
        transaction.execute(shop.pay, (500,))
        loop.call_soon_threadsafe(inside.set)
        transaction.execute("SELECT pg_sleep(600)")
        return "paid"

    task = asyncio.create_task(transact(shop.store, shop.lease, act, threads=threads))
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await shop.store.append("r", rows(2), after=1, lease=shop.lease, summary=summary())
    assert [] == shop.payments()


async def test_an_append_under_way_is_carried_to_its_end(
    shop: Shop, threads: DaemonThreads
) -> None:
    """Cancelled when its entries are made already, it is cancelled once they are durable."""
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def conclude(text: str) -> Proposal:
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(30)
        return outcome(text)

    task = asyncio.create_task(
        transact(shop.store, shop.lease, shop.paying, conclude, threads=threads)
    )
    await inside.wait()
    task.cancel()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert [500] == shop.payments()
    assert [*rows(1), row(2, "paid")] == await shop.store.read("r")


async def test_an_entry_that_is_too_large_takes_the_effect_with_it(
    shop: Shop, threads: DaemonThreads
) -> None:
    """No effect without its outcome."""
    large = Proposal((Row(2, b"x" * (MAX_ENTRY_BYTES + 1), b"c" * 8),), summary())

    with pytest.raises(EntryTooLarge):
        await transact(shop.store, shop.lease, shop.paying, lambda _: large, threads=threads)

    assert [] == shop.payments()


async def test_an_append_that_fails_takes_the_effect_with_it(
    shop: Shop, threads: DaemonThreads
) -> None:
    """An entry stands already where the outcome would go: there is one commit, and none of it."""

    def conclude(text: str) -> Proposal:
        shop.desk.sql(
            "INSERT INTO {s}.agentkit_entry SELECT number, 2, 'x', 'y' FROM {s}.agentkit_run"
        )
        return outcome(text)

    with pytest.raises(JournalDamaged):
        await transact(shop.store, shop.lease, shop.paying, conclude, threads=threads)

    assert [] == shop.payments()
    head = await shop.store.head("r")
    assert head is not None
    assert 1 == head.seq


async def test_a_backend_that_is_ended_takes_the_effect_with_it(
    shop: Shop, threads: DaemonThreads
) -> None:
    """The store failed: the tool cannot go on, and the next transaction works."""
    end = (
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
        "WHERE c.relname = 'payment' AND c.relnamespace = '{s}'::regnamespace"
    )

    def act(transaction: Transaction) -> str:
        transaction.execute(shop.pay, (500,))
        assert shop.desk.sql(end)
        transaction.execute(shop.pay, (700,))
        return "never"

    with pytest.raises(StoreUnreachable):
        await transact(shop.store, shop.lease, act, threads=threads)

    assert [] == shop.payments()
    assert await transact(shop.store, shop.lease, shop.paying, threads=threads)


async def test_a_transaction_is_used_no_more_once_its_tool_has_returned(
    shop: Shop, threads: DaemonThreads
) -> None:
    """A tool that keeps it finds it closed."""
    kept: list[Transaction] = []

    def act(transaction: Transaction) -> str:
        kept.append(transaction)
        return "ok"

    assert await transact(shop.store, shop.lease, act, threads=threads)
    with pytest.raises(TransactionOver):
        kept[0].execute(shop.pay, (500,))
    assert [] == shop.payments()
