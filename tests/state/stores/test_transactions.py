"""SQLite: what a tool writes and the entries about it are one transaction, whatever it does."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.errors import (
    StatementRefused,
    TransactionOver,
)
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.transactions import Proposal, Transaction, TransactionalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import row, rows, started, summary

Store = SqliteCheckpointStore
PAY = "INSERT INTO payment VALUES (?)"


@pytest.fixture
def threads() -> DaemonThreads:
    """Where the tools run."""
    return DaemonThreads()


@pytest.fixture
async def paying(sqlite: Store, tmp_path: Path) -> Lease:
    """Run `r` with one entry, in a store that also has a table of the tool's own."""
    lease = await started(sqlite, "r")
    execute(tmp_path, "CREATE TABLE payment (cents INTEGER UNIQUE)")
    execute(tmp_path, "CREATE TABLE counted (number INTEGER PRIMARY KEY AUTOINCREMENT)")
    return lease


def execute(folder: Path, sql: str) -> list[tuple[object, ...]]:
    """Look at the file as another program would."""
    other = apsw.Connection(str(folder / "runs.db"))
    try:
        return list(other.execute(sql).fetchall())
    finally:
        other.close()


def payments(folder: Path) -> list[object]:
    """What the tool's table holds."""
    return [cents for (cents,) in execute(folder, "SELECT cents FROM payment")]


def pay(transaction: Transaction) -> str:
    """A tool with an effect."""
    transaction.execute(PAY, (500,))
    return "paid"


def entering(entered: list[Transaction], transaction: Transaction) -> str:
    """The same, and seen."""
    entered.append(transaction)
    return pay(transaction)


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


async def test_nobody_ever_sees_the_effect_without_its_entry(
    sqlite: Store, paying: Lease, tmp_path: Path, threads: DaemonThreads
) -> None:
    """One COMMIT brings both: before it another program sees neither."""
    seen: list[tuple[list[object], int]] = []

    def look() -> bool:
        seen.append((payments(tmp_path), len(execute(tmp_path, "SELECT 1 FROM agentkit_entry"))))
        return False

    def watch(db: apsw.Connection) -> None:
        db.set_commit_hook(look)

    apsw.connection_hooks.append(watch)
    try:
        await transact(sqlite, paying, pay, threads=threads)
    finally:
        apsw.connection_hooks.remove(watch)

    assert [([], 1)] == seen
    assert [500] == payments(tmp_path)


async def test_the_tool_sees_its_own_writes_and_rows_come_as_tuples(
    sqlite: Store, paying: Lease, threads: DaemonThreads
) -> None:
    """Parameters go by position and by name, `executemany` takes many, every value comes back."""
    seen: list[object] = []

    def act(transaction: Transaction) -> str:
        transaction.execute("CREATE TABLE mine (a, b, c, d, e INTEGER PRIMARY KEY AUTOINCREMENT)")
        transaction.execute("CREATE INDEX mine_a ON mine (a)")
        transaction.executemany(
            "INSERT INTO mine VALUES (?, ?, ?, ?, NULL)", [(1, "x", None, b"\0")]
        )
        seen.extend(transaction.execute("SELECT a, b, c, d FROM mine WHERE a = :a;\n", {"a": 1}))
        return "ok"

    assert await transact(sqlite, paying, act, threads=threads)
    assert [(1, "x", None, b"\0")] == seen


REFUSED = [
    "BEGIN",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "COMMIT;",
    "END",
    "ROLLBACK",
    "SAVEPOINT mine",
    "RELEASE mine",
    "ROLLBACK TO mine",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "PRAGMA synchronous = OFF",
    "PRAGMA user_version = 7",
    "PRAGMA writable_schema = ON",
    "SELECT * FROM pragma_user_version",
    "ANALYZE",
    "REINDEX",
    "ALTER TABLE payment RENAME TO agentkit_mine",
    "CREATE TEMP TABLE agentkit_run (number)",
    "CREATE TEMP VIEW agentkit_run AS SELECT 1",
    "CREATE TEMP TRIGGER t AFTER INSERT ON payment BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE v USING fts5(text)",
    "CREATE TABLE agentkit_mine (a)",
    'CREATE TABLE "AgentKit_Mine" (a)',
    "CREATE VIEW agentkit_mine AS SELECT 1",
    "CREATE INDEX mine ON agentkit_entry (chained)",
    "CREATE TRIGGER mine AFTER INSERT ON agentkit_entry BEGIN SELECT 1; END",
    "CREATE TRIGGER agentkit_mine AFTER INSERT ON payment BEGIN SELECT 1; END",
    "INSERT INTO agentkit_entry VALUES (1, x'00', x'00')",
    "UPDATE agentkit_run SET epoch = 0",
    "UPDATE AGENTKIT_RUN SET epoch = 0",
    "DELETE FROM agentkit_entry",
    "DROP TABLE agentkit_run",
    "DROP INDEX agentkit_run_newest",
    "DROP VIEW agentkit_journal",
    "SELECT body FROM agentkit_entry",
    "SELECT body FROM agentkit_journal",
    "INSERT INTO payment SELECT epoch FROM agentkit_run",
    "SELECT seq FROM sqlite_sequence",
    "INSERT INTO sqlite_sequence VALUES ('counted', 7)",
    "DELETE FROM sqlite_master",
    "UPDATE sqlite_schema SET sql = ''",
    "SELECT load_extension('x')",
    "INSERT INTO payment VALUES (1); COMMIT",
    "SELECT 1; SELECT 2",
    "no sql",
    "SELECT * FROM missing",
    "INSERT INTO payment VALUES (500)",
]


@pytest.mark.parametrize("sql", REFUSED)
async def test_a_statement_is_refused_and_the_transaction_goes_on(
    sqlite: Store, paying: Lease, tmp_path: Path, threads: DaemonThreads, sql: str
) -> None:
    """It does nothing, and says why; what the tool did before and does after it counts."""
    before = execute(tmp_path, "SELECT name, sql FROM sqlite_master")
    texts: list[str] = []

    def act(transaction: Transaction) -> str:
        transaction.execute(PAY, (500,))
        with pytest.raises(StatementRefused) as refused:
            transaction.execute(sql)
        texts.append(str(refused.value))
        transaction.execute(PAY, (700,))
        return "paid"

    assert await transact(sqlite, paying, act, threads=threads)
    assert [500, 700] == payments(tmp_path)
    assert before == execute(tmp_path, "SELECT name, sql FROM sqlite_master")
    assert [*rows(1), row(2, "paid")] == await sqlite.read("r")
    assert all(texts)


async def test_a_trigger_of_the_users_cannot_reach_our_tables(
    sqlite: Store, paying: Lease, tmp_path: Path, threads: DaemonThreads
) -> None:
    """Also where somebody made it outside, a statement that would fire it is refused."""
    execute(
        tmp_path,
        "CREATE TRIGGER t AFTER INSERT ON payment BEGIN UPDATE agentkit_run SET epoch = 0; END",
    )

    def act(transaction: Transaction) -> str:
        with pytest.raises(StatementRefused, match="out of a tool's reach"):
            transaction.execute(PAY, (500,))
        return "refused"

    assert await transact(sqlite, paying, act, threads=threads)
    assert [] == payments(tmp_path)


async def test_a_transaction_that_a_statement_rolled_back_takes_nothing_more(
    sqlite: Store, paying: Lease, tmp_path: Path, threads: DaemonThreads
) -> None:
    """`OR ROLLBACK` ends it inside SQLite: what follows is refused, and no outcome is recorded,
    however the tool goes on.
    """
    execute(tmp_path, "INSERT INTO payment VALUES (1)")

    def act(transaction: Transaction) -> str:
        transaction.execute(PAY, (500,))
        with pytest.raises(TransactionOver):
            transaction.execute("INSERT OR ROLLBACK INTO payment VALUES (1)")
        with pytest.raises(TransactionOver):
            transaction.execute(PAY, (700,))
        return "paid"

    with pytest.raises(TransactionOver, match="rolled the transaction back"):
        await transact(sqlite, paying, act, threads=threads)

    assert [1] == payments(tmp_path)
    assert rows(1) == await sqlite.read("r")
    assert await transact(sqlite, paying, pay, threads=threads)


async def test_a_tool_that_computes_for_too_long_is_cut_off(
    sqlite: Store, paying: Lease, clock: FakeClock, tmp_path: Path, threads: DaemonThreads
) -> None:
    """Its next statement fails, its effects are rolled back, and the file is free."""

    def act(transaction: Transaction) -> str:
        transaction.execute(PAY, (500,))
        clock.advance(2.0)
        with pytest.raises(TransactionOver, match="2 seconds"):
            transaction.execute(PAY, (700,))
        return "paid"

    with pytest.raises(TransactionOver, match="2 seconds"):
        await transact(sqlite, paying, act, threads=threads)

    assert [] == payments(tmp_path)
    await sqlite.append("r", rows(2), after=1, lease=paying, summary=summary())


async def test_the_time_of_the_tool_itself_may_be_shorter(
    sqlite: Store, paying: Lease, clock: FakeClock, threads: DaemonThreads
) -> None:
    """Whichever limit is smaller counts; a tool that returns too late has done nothing."""

    def act(transaction: Transaction) -> str:
        clock.advance(1.0)
        return "late"

    with pytest.raises(TransactionOver, match="1 seconds"):
        await transact(sqlite, paying, act, threads=threads, timeout_seconds=1.0)


async def test_a_statement_that_runs_for_too_long_is_cut_off(
    sqlite: Store, paying: Lease, clock: FakeClock, tmp_path: Path, threads: DaemonThreads
) -> None:
    """SQLite looks at the clock while it works."""
    inside = asyncio.Event()
    loop = asyncio.get_running_loop()

    def act(transaction: Transaction) -> str:
        transaction.execute(PAY, (500,))
        loop.call_soon_threadsafe(inside.set)
        transaction.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )
        return "never"

    endless = asyncio.create_task(transact(sqlite, paying, act, threads=threads))
    await inside.wait()
    clock.advance(2.0)
    with pytest.raises(TransactionOver):
        await endless

    assert [] == payments(tmp_path)


class Gate:
    """A seat's gate: threads named `leaked` are held up in front of it until they are let go."""

    def __init__(self) -> None:
        self.acquire, self.release = (lock := threading.Lock()).acquire, lock.release
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread().name == "leaked":
            self.reached.set()
            assert self.go_on.wait(30)
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


async def test_a_thread_that_a_tool_has_left_behind_does_nothing_unguarded(
    sqlite: Store,
    paying: Lease,
    tmp_path: Path,
    threads: DaemonThreads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had begun a statement when the tool returned, and comes to the connection when everything
    is let through there: it is refused, and the store's tables are as they were.
    """
    transactions, gate = sqlite._engine.transactions, Gate()
    seat = transactions._seat()
    monkeypatch.setattr(seat, "gate", gate)
    transactions.give_back(seat)
    raised: list[type[BaseException]] = []
    left_behind: list[threading.Thread] = []

    def leave(transaction: Transaction) -> None:
        try:
            transaction.execute("DELETE FROM agentkit_entry")
        except TransactionOver as exc:
            raised.append(type(exc))

    def act(transaction: Transaction) -> str:
        thread = threading.Thread(target=leave, args=[transaction], name="leaked", daemon=True)
        left_behind.append(thread)
        thread.start()
        assert gate.reached.wait(30)
        return pay(transaction)

    def conclude(text: str) -> Proposal:
        gate.go_on.set()
        left_behind[0].join(30)
        return outcome(text)

    assert await transact(sqlite, paying, act, conclude, threads=threads)
    assert [TransactionOver] == raised
    assert [500] == payments(tmp_path)
    assert [*rows(1), row(2, "paid")] == await sqlite.read("r")


async def test_a_wrapper_has_what_its_store_has() -> None:
    """Memory has no transactions for tools, so neither has a wrapper around it."""
    assert not isinstance(InMemoryCheckpointStore(), TransactionalPort)
    assert not StoreWrapper(InMemoryCheckpointStore()).can_transact
    assert StoreWrapper(SqliteCheckpointStore("runs.db")).can_transact
