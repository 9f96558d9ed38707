"""Transactional tools: what a tool writes and the entries about it are one transaction."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from agentkit.core.contracts.errors import (
    EntryTooLarge,
    HeadMoved,
    InvalidId,
    LeaseLost,
    StatementRefused,
    TransactionOver,
)
from agentkit.core.contracts.heads import Lease, Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.transactions import (
    Proposal,
    SqlParameters,
    SqlValue,
    Transaction,
    can_transact,
)
from agentkit.core.runtime import SystemChance
from agentkit.state.journal.codec import MAX_ENTRY_BYTES
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import Broken, equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, row, rows, started, summary
from agentkit.tools.threads import DaemonThreads

transactions = Subject("transactions", "journal", "transactions")

_T = TypeVar("_T")
_WAIT_SECONDS = 60.0


def _outcome(text: str) -> Proposal:
    return Proposal((row(2, text),), summary())


async def _transact(
    store: JournalPort,
    lease: Lease,
    act: Callable[[Transaction], _T],
    conclude: Callable[[_T], Proposal | None],
    *,
    after: int = 1,
    timeout_seconds: float = 300.0,
) -> bool:
    port = can_transact(store)
    if port is None:
        raise AssertionError("asked of stores that have transactions")
    return await port.transact(
        lease.run,
        act,
        conclude,
        after=after,
        lease=lease,
        threads=DaemonThreads(),
        timeout_seconds=timeout_seconds,
    )


class _Till:
    """A table of the tool's own, under a name that nobody else has, and what is done with it."""

    def __init__(self, it: Bench, store: JournalPort | None = None) -> None:
        self._store = store or it.store
        self._style = it.harness.parameters
        self.table = f"payment_{SystemChance().token()[:12]}"
        self.insert = self.sql("INSERT INTO payment VALUES (?)")

    def sql(self, text: str) -> str:
        """The statement with our table's name, and parameters as the store writes them."""
        text = text.replace("payment", self.table)
        if self._style == "format":
            text = re.sub(r":(\w+)", r"%(\1)s", text.replace("?", "%s"))
        return text

    async def ready(self) -> Lease:
        """Make the table, and run `r` with one entry."""
        lease = await started(self._store, "tables")

        def create(transaction: Transaction) -> str:
            transaction.execute(self.sql("CREATE TABLE payment (cents INTEGER UNIQUE)"))
            return "created"

        await _transact(self._store, lease, create, _outcome)
        return await started(self._store, "r")

    def pay(self, transaction: Transaction, cents: int = 500) -> str:
        """A tool with an effect."""
        transaction.execute(self.insert, (cents,))
        return "paid"

    async def payments(self) -> list[SqlValue]:
        """What the table holds."""
        found: list[tuple[SqlValue, ...]] = []
        head = await self._store.head("look")
        last = head.epoch if head else None
        lease = await self._store.acquire("look", "auditor", TTL_SECONDS, supersede=last)

        def look(transaction: Transaction) -> None:
            found.extend(transaction.execute(self.sql("SELECT cents FROM payment ORDER BY cents")))

        await _transact(self._store, lease, look, lambda _: None, after=0)
        return [cents for (cents,) in found]


@transactions.check("TransactionalPort.transact")
async def effect_and_entry_are_there_together(it: Bench) -> None:
    """Both are there when the call returns, and the head has moved."""
    till = _Till(it)
    lease = await till.ready()

    committed = await _transact(it.store, lease, till.pay, _outcome)

    head = await it.store.head("r")
    equal("whether it was committed", expected=True, actual=committed)
    equal("the effects", expected=[500], actual=await till.payments())
    expected = [*rows(1), row(2, "paid")]
    equal("the rows", expected=expected, actual=await it.store.read("r"))
    found = head and (head.seq, head.owner, head.check)
    equal("seq, owner and check", expected=(2, "worker", row(2).check), actual=found)


@transactions.check("Proposal")
async def a_transaction_may_release(it: Bench) -> None:
    """The lease goes in the same unit, and the summary is the proposal's."""
    till = _Till(it)
    lease = await till.ready()
    last = Proposal((row(2, "paid"),), summary("done"), release=True)
    await _transact(it.store, lease, till.pay, lambda _: last)
    head = await it.store.head("r")
    found = head and (head.owner, head.summary)
    equal("owner and summary", expected=("", summary("done")), actual=found)


@transactions.check("TransactionalPort.transact")
async def nothing_is_left_where_there_is_no_entry(it: Bench) -> None:
    """A tool that failed gives nothing to append, and its effects are rolled back."""
    till = _Till(it)
    lease = await till.ready()

    committed = await _transact(it.store, lease, till.pay, lambda _: None)

    equal("whether it was committed", expected=False, actual=committed)
    equal("the effects", expected=[], actual=await till.payments())
    equal("the rows", expected=rows(1), actual=await it.store.read("r"))


@transactions.check("TransactionalPort.transact")
async def what_does_not_hold_any_more_keeps_the_tool_from_running(it: Bench) -> None:
    """A head that moved and a lease that was lost are noticed before `act` is called."""
    till = _Till(it)
    lease = await till.ready()
    entered: list[Transaction] = []

    def act(transaction: Transaction) -> None:
        entered.append(transaction)

    await it.store.append("r", rows(2), after=1, lease=None, summary=summary())
    await refused(
        HeadMoved, _transact(it.store, lease, act, lambda _: None), what="act after 1, of 2"
    )
    await it.store.acquire("r", "heir", TTL_SECONDS, supersede=lease.epoch)
    late = _transact(it.store, lease, act, lambda _: None, after=2)
    await refused(LeaseLost, late, what="act under a lease that was taken over")

    equal("what was called", expected=[], actual=entered)
    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))


@transactions.check("TransactionalPort.transact", "handles")
async def nobody_takes_the_run_nor_leaves_a_note_while_the_tool_works(it: Bench) -> None:
    """A takeover and a note through another handle both wait until the outcome is in."""
    till = _Till(it)
    lease = await till.ready()
    other = it.another()
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def act(transaction: Transaction) -> str:
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(_WAIT_SECONDS)
        return till.pay(transaction)

    ours = asyncio.ensure_future(_transact(it.store, lease, act, _outcome))
    await inside.wait()
    late = other.append("r", rows(2, text="note"), after=1, lease=None, summary=summary())
    note = asyncio.ensure_future(late)
    takeover = asyncio.ensure_future(other.acquire("r", "heir", TTL_SECONDS, supersede=lease.epoch))
    done, _ = await asyncio.wait({note, takeover}, timeout=0.2)
    go_on.set()

    equal("how many of them were answered meanwhile", expected=0, actual=len(done))
    equal("whether it was committed", expected=True, actual=await ours)
    await refused(HeadMoved, note, what="the note at the place of the outcome")
    equal("seq that the heir found", expected=2, actual=(await takeover).head.seq)


_REFUSED = (
    "COMMIT",
    "ROLLBACK",
    "BEGIN",
    "SAVEPOINT mine",
    "SELECT 1; SELECT 2",
    "INSERT INTO payment VALUES (1); COMMIT",
    "no sql",
    "SELECT * FROM missing",
    "INSERT INTO payment VALUES (500)",
)


@transactions.check("Transaction.execute")
async def a_refused_statement_does_nothing_and_the_tool_goes_on(it: Bench) -> None:
    """What would end the transaction, is wrong, or violates a constraint."""
    till = _Till(it)
    lease = await till.ready()
    unrefused: list[str] = []

    def act(transaction: Transaction) -> str:
        till.pay(transaction)
        for sql in _REFUSED:
            try:
                transaction.execute(till.sql(sql))
            except StatementRefused:
                continue
            unrefused.append(sql)
        till.pay(transaction, 700)
        return "paid"

    committed = await _transact(it.store, lease, act, _outcome)

    equal("statements that went through", expected=[], actual=unrefused)
    equal("whether it was committed", expected=True, actual=committed)
    equal("the effects", expected=[500, 700], actual=await till.payments())


@transactions.check("TransactionalPort.transact")
async def an_impossible_run_id_is_refused(it: Bench) -> None:
    """As by every other method, before anything is begun."""
    till = _Till(it)
    lease = await till.ready()

    for run in ("", "a\x00b", "a\nb", "a\ud800b", "x" * 513):
        wrong = msgspec.structs.replace(lease, run=run)
        attempt = _transact(it.store, wrong, till.pay, _outcome)
        await refused(InvalidId, attempt, what=f"a transaction of {run[:20]!r}")

    equal("the effects", expected=[], actual=await till.payments())


@transactions.check("Transaction")
async def a_tool_sees_its_own_writes(it: Bench) -> None:
    """Parameters go by position and by name, also many at once; rows come as tuples."""
    till = _Till(it)
    lease = await till.ready()
    hostile = "'); DROP TABLE payment; -- ?:a%s😀"
    seen: list[tuple[SqlValue, ...]] = []

    def act(transaction: Transaction) -> str:
        def run(sql: str, given: SqlParameters = ()) -> list[tuple[SqlValue, ...]]:
            return transaction.execute(till.sql(sql), given)

        run("CREATE TABLE payment_more (a INTEGER, b TEXT, c INTEGER)")
        many = till.sql("INSERT INTO payment_more VALUES (?, ?, ?)")
        transaction.executemany(many, [(1, hostile, None), (2, "", 3)])
        both: SqlParameters = {"a": 1, "b": hostile}
        seen.extend(run("SELECT a, b, c FROM payment_more WHERE a = :a AND b = :b", both))
        seen.extend(run("SELECT b, a FROM payment_more WHERE c = ?;", (3,)))
        return "ok"

    await _transact(it.store, lease, act, _outcome)

    equal("the rows", expected=[(1, hostile, None), ("", 2)], actual=seen)


@transactions.check("TransactionalPort.transact")
async def an_entry_that_is_too_large_takes_the_effect_with_it(it: Bench) -> None:
    """No effect without its outcome."""
    till = _Till(it)
    lease = await till.ready()
    large = Proposal((Row(2, b"x" * (MAX_ENTRY_BYTES + 1), b"c" * 8),), summary())

    attempt = _transact(it.store, lease, till.pay, lambda _: large)
    await refused(EntryTooLarge, attempt, what="an outcome over the limit")

    equal("the effects", expected=[], actual=await till.payments())
    equal("the rows", expected=rows(1), actual=await it.store.read("r"))


@transactions.check("Transaction")
async def a_transaction_is_used_no_more_once_its_tool_has_returned(it: Bench) -> None:
    """A tool that keeps it finds it closed."""
    till = _Till(it)
    lease = await till.ready()
    kept: list[Transaction] = []

    def act(transaction: Transaction) -> str:
        kept.append(transaction)
        return "ok"

    await _transact(it.store, lease, act, _outcome)
    try:
        till.pay(kept[0])
    except TransactionOver:
        pass
    else:
        raise Broken("a statement after the tool returned: expected TransactionOver")

    equal("the effects", expected=[], actual=await till.payments())


@transactions.check("TransactionalPort.transact")
async def a_tool_that_never_returns_keeps_nobody_from_the_store(it: Bench) -> None:
    """At its limit it is rolled back while it goes on; what it does after that does nothing."""
    store = it.another(real_time=True)
    till = _Till(it, store)
    lease = await till.ready()
    go_on, over = threading.Event(), threading.Event()
    raised: list[str] = []

    def act(transaction: Transaction) -> str:
        till.pay(transaction)
        go_on.wait(_WAIT_SECONDS)
        try:
            till.pay(transaction, 700)
        except TransactionOver as exc:
            raised.append(type(exc).__name__)
        over.set()
        return "paid"

    attempt = _transact(store, lease, act, _outcome, timeout_seconds=0.1)
    await refused(TransactionOver, attempt, what="a tool that does not return in time")
    await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    go_on.set()
    await asyncio.to_thread(over.wait, _WAIT_SECONDS)

    equal("what its next statement raised", expected=["TransactionOver"], actual=raised)
    equal("the effects", expected=[], actual=await till.payments())
    equal("the rows", expected=rows(1, 2), actual=await store.read("r"))


@transactions.check("TransactionalPort.transact")
async def a_cancelled_caller_leaves_nothing_behind(it: Bench) -> None:
    """The transaction is rolled back while its tool goes on."""
    till = _Till(it)
    lease = await till.ready()
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def act(transaction: Transaction) -> str:
        till.pay(transaction)
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(_WAIT_SECONDS)
        return "paid"

    task = asyncio.ensure_future(_transact(it.store, lease, act, _outcome))
    await inside.wait()
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    head = await it.store.append("r", rows(2), after=1, lease=lease, summary=summary())
    go_on.set()

    holds("the task is cancelled", true=isinstance(outcome, asyncio.CancelledError))
    equal("where the next append is", expected=2, actual=head.seq)
    equal("the effects", expected=[], actual=await till.payments())


@transactions.check("TransactionalPort.transact")
async def an_outcome_under_way_is_carried_to_its_end(it: Bench) -> None:
    """Cancelled when its entries are made already, it is cancelled once they are durable."""
    till = _Till(it)
    lease = await till.ready()
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def conclude(text: str) -> Proposal:
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(_WAIT_SECONDS)
        return _outcome(text)

    task = asyncio.ensure_future(_transact(it.store, lease, till.pay, conclude))
    await inside.wait()
    task.cancel()
    go_on.set()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)

    holds("the task is cancelled", true=isinstance(outcome, asyncio.CancelledError))
    equal("the effects", expected=[500], actual=await till.payments())
    expected = [*rows(1), row(2, "paid")]
    equal("the rows", expected=expected, actual=await it.store.read("r"))
