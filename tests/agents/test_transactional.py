"""Transactional tools: effect and outcome are one, so such a call is never in doubt."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidSpec,
    LeaseLost,
    OutcomeUnknown,
    StatementRefused,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Head, Lease
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.transactions import Proposal
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
    _lanes,
)
from agentkit.state.checkpoints.adapters._sqlite_guard import Guard
from agentkit.state.journal.journal import append_note
from agentkit.testing.faulty import Fault, FaultyStore
from agentkit.tools import Tool, ToolContext, Transaction, tool
from tests.agents.kit import (
    RUN,
    TASK,
    Hurried,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    events_of,
    kinds_of,
    messages_of,
    then,
    told,
)

T = TypeVar("T")
READS = 1
"""How often a new run's worker reads before it acts."""


class Ledger:
    """A store, and beside its journals a table of the tools' own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.store = SqliteCheckpointStore(self.path)

    def payments(self) -> list[object]:
        """What was paid, as another program sees it."""
        other = apsw.Connection(str(self.path))
        try:
            return [cents for (cents,) in other.execute("SELECT cents FROM payment")]
        finally:
            other.close()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """A new one."""
    ledger = Ledger(tmp_path)
    await ledger.store.head("nobody")
    other = apsw.Connection(str(ledger.path))
    other.execute("CREATE TABLE payment (cents INTEGER)")
    other.close()
    yield ledger
    await ledger.store.aclose()


@tool(side_effecting=True, transactional=True)
def pay(cents: int, transaction: Transaction) -> str:
    """Pay."""
    transaction.execute("INSERT INTO payment VALUES (?)", (cents,))
    return f"paid {cents}"


def paying(act: Callable[[], object]) -> Tool:
    """A tool that pays and then does something else."""

    @tool(side_effecting=True, transactional=True, name="pay")
    def pay(cents: int, transaction: Transaction) -> object:
        transaction.execute("INSERT INTO payment VALUES (?)", (cents,))
        return act()

    return pay


def _unsure() -> None:
    raise OutcomeUnknown


async def test_effect_and_outcome_are_recorded_in_two_commits_a_turn(ledger: Ledger) -> None:
    """The transaction brings the outcome and the step; the model goes on from it."""
    llm = then(calls(call("pay", cents=500)))
    events = await events_of(agent_of(pay).stream(TASK, context(llm, ledger.store)))

    assert [500] == ledger.payments()
    assert [
        "tool_call pay",
        "tool_result pay=paid 500",
        "step iteration:1",
    ] == told(events)[:3]
    assert [
        "RunStarted",
        "LeaseTaken",
        "ModelAnswered",
        "ToolStarted",
        "ToolFinished",
        "StepCompleted",
        "ModelAnswered",
        "Finished",
    ] == await kinds_of(ledger.store)
    [started] = await bodies_of(ledger.store, e.ToolStarted)
    assert started.transactional


async def test_parallel_calls_each_have_their_outcome(ledger: Ledger) -> None:
    """Transactions take turns, and the outcome of another call comes between them."""

    @tool(side_effecting=False)
    async def look(number: int) -> str:
        return f"seen {number}"

    asked = [
        call("pay", call_id="c1", cents=1),
        call("look", call_id="c2", number=2),
        call("pay", call_id="c3", cents=3),
    ]
    result = await agent_of(pay, look).run(TASK, context(then(calls(*asked)), ledger.store))

    finished = await bodies_of(ledger.store, e.ToolFinished)
    assert "done" == result.output
    assert [1, 3] == ledger.payments()
    assert {(0, "paid 1"), (1, "seen 2"), (2, "paid 3")} == {
        (one.index, one.content) for one in finished
    }
    assert ["paid 1", "seen 2", "paid 3"] == [
        message.content for message in await messages_of(ledger.store) if message.role == "tool"
    ]
    assert 1 == len(await bodies_of(ledger.store, e.StepCompleted))


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (object, "its result cannot be kept"),
        (_unsure, "OutcomeUnknown"),
    ],
    ids=["raises", "not storable", "says that it does not know"],
)
async def test_a_tool_that_fails_has_had_no_effect(
    ledger: Ledger, act: Callable[[], object], text: str
) -> None:
    """What it wrote is rolled back, and the model is told of the error."""
    llm = then(calls(call("pay", cents=500)))
    await agent_of(paying(act)).run(TASK, context(llm, ledger.store))

    [finished] = await bodies_of(ledger.store, e.ToolFinished)
    assert [] == ledger.payments()
    assert "error" == finished.outcome
    assert text in finished.content


async def test_attempts_that_failed_are_followed_by_others(ledger: Ledger) -> None:
    """`max_attempts` is allowed: nothing is left of an attempt that failed."""
    attempts: list[int] = []

    @tool(side_effecting=True, transactional=True, max_attempts=3)
    def pay(cents: int, transaction: Transaction, context: ToolContext) -> str:
        attempts.append(context.attempt)
        transaction.execute("INSERT INTO payment VALUES (?)", (cents,))
        if context.attempt < 3:
            raise ValueError("not yet")
        return "paid"

    await agent_of(pay).run(TASK, context(then(calls(call("pay", cents=500))), ledger.store))

    assert [1, 2, 3] == attempts
    assert [500] == ledger.payments()
    finished = await bodies_of(ledger.store, e.ToolFinished)
    assert ["retrying", "retrying", "ok"] == [one.outcome for one in finished]


async def test_a_tool_that_takes_too_long_has_had_no_effect(ledger: Ledger) -> None:
    """Its outcome is an error that says so, not a doubt."""
    clock = FakeClock()
    store = SqliteCheckpointStore(ledger.path, clock=clock)
    llm = then(calls(call("pay", cents=500)))
    await agent_of(paying(lambda: clock.advance(2.0))).run(TASK, context(llm, store))

    [finished] = await bodies_of(store, e.ToolFinished)
    assert [] == ledger.payments()
    assert "error" == finished.outcome
    assert "longer than 2 seconds" in finished.content
    await store.aclose()


async def test_what_a_refused_statement_says_reaches_the_model(ledger: Ledger) -> None:
    """A tool that reaches for our tables fails as any tool fails."""

    @tool(side_effecting=True, transactional=True)
    def cheat(transaction: Transaction) -> str:
        transaction.execute("UPDATE agentkit_run SET epoch = 0")
        return "never"

    await agent_of(cheat).run(TASK, context(then(calls(call("cheat"))), ledger.store))

    [finished] = await bodies_of(ledger.store, e.ToolFinished)
    assert "StatementRefused: UPDATE agentkit_run" in finished.content


async def test_record_is_refused(ledger: Ledger) -> None:
    """It would be an append within the append; everything the tool does is one already."""
    raised: list[StatementRefused] = []

    @tool(side_effecting=True, transactional=True)
    def pay(transaction: Transaction, context: ToolContext) -> str:
        context.progress("working")
        with pytest.raises(StatementRefused) as refused:
            context.record_sync("step", lambda: 1)
        raised.append(refused.value)
        return "ok"

    events = await events_of(
        agent_of(pay).stream(TASK, context(then(calls(call("pay"))), ledger.store))
    )

    assert 1 == len(raised)
    assert "progress working" in told(events)


class Before(StoreWrapper):
    """Does something right before, or after, the first transaction."""

    def __init__(self, inner: SqliteCheckpointStore, *, after: bool = False) -> None:
        super().__init__(inner)
        self.act: Callable[[], object] = lambda: None
        self.after = after
        self.transactions: list[bool] = []

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], T],
        conclude: Callable[[T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """Forward."""
        first = not self.transactions
        self.transactions.append(self.after)
        if first and not self.after:
            await self._act()
        done = await super().transact(
            run,
            act,
            conclude,
            after=after,
            lease=lease,
            threads=threads,
            timeout_seconds=timeout_seconds,
        )
        if first and self.after:
            await self._act()
        return done

    async def _act(self) -> None:
        done = self.act()
        if asyncio.iscoroutine(done):
            await done


def note(store: SqliteCheckpointStore, body: e.Body) -> Callable[[], object]:
    """Somebody's note."""
    return lambda: append_note(
        store, RUN, lambda _: [body], note_id="n", lane=agent_lane("worker"), clock=FakeClock()
    )


async def test_a_note_that_comes_in_between_moves_the_transaction_behind_it(
    ledger: Ledger,
) -> None:
    """The head moved: it is read and the tool is run, once."""
    store = Before(ledger.store)
    store.act = note(ledger.store, e.CheckpointSaved(1, "running", "{}"))
    await agent_of(pay).run(TASK, context(then(calls(call("pay", cents=500))), store))

    assert [500] == ledger.payments()
    assert 2 == len(store.transactions)
    kinds = await kinds_of(ledger.store)
    assert kinds.index("CheckpointSaved") < kinds.index("ToolFinished")


async def test_a_call_that_somebody_has_settled_meanwhile_is_not_made(ledger: Ledger) -> None:
    """An operator said what became of it before its transaction began."""
    store = Before(ledger.store)
    store.act = note(ledger.store, e.OutcomeReported(1, 0, 1, "skipped", "no", by="ann"))

    result = await agent_of(pay).run(TASK, context(then(calls(call("pay", cents=500))), store))

    assert "done" == result.output
    assert [] == ledger.payments()


async def test_a_lost_acknowledgement_is_looked_up(ledger: Ledger) -> None:
    """It was committed, and the answer was lost: the rows are read, the tool is not run again."""
    store = Before(ledger.store, after=True)

    def lose() -> None:
        raise StoreUnreachable("the answer was lost")

    store.act = lose
    events = await events_of(
        agent_of(pay).stream(TASK, context(then(calls(call("pay", cents=500))), store))
    )

    assert [500] == ledger.payments()
    assert 1 == len(store.transactions)
    assert ["tool_call pay", "tool_result pay=paid 500", "step iteration:1"] == told(events)[:3]


async def test_a_commit_that_is_confirmed_only_by_a_reload_tells_its_step(ledger: Ledger) -> None:
    """The answer is lost, and the store away for a while: once it is back the call's entries are
    found in it, and its result and its step are told like any others.
    """
    store = FaultyStore(ledger.store, Fault("after", "transact"))
    store.faults.append(Fault("before", "read", call=READS + 1, times=4))
    run = agent_of(pay).stream(
        TASK, context(then(calls(call("pay", cents=500))), store, clock=Hurried())
    )

    events = told(await events_of(run))

    assert {"after": 1, "before": 4} == store.fired
    assert ["tool_call pay", "tool_result pay=paid 500", "step iteration:1"] == events[:3]
    assert [500] == ledger.payments()


async def test_a_release_that_is_confirmed_only_by_a_reload_counts(ledger: Ledger) -> None:
    """The transaction that ends the tenure gives the lease back: it is not given back again."""

    @tool(side_effecting=True)
    async def send() -> str:
        raise OutcomeUnknown("no answer")

    asked = [call("send", call_id="c1")]
    asked += [call("pay", call_id=f"c{number}", cents=number) for number in (2, 3)]
    store = FaultyStore(ledger.store, Fault("after", "transact", call=2))
    store.faults.append(Fault("before", "read", call=READS + 1, times=4))
    ctx = context(then(calls(*asked)), store, clock=Hurried())

    result = await agent_of(pay, send).run(TASK, ctx)

    assert {"after": 1, "before": 4} == store.fired
    assert "suspended" == result.stop_reason
    assert [2, 3] == ledger.payments()
    assert ["StepCompleted"] == (await kinds_of(ledger.store))[-1:]
    assert 3 == store.calls["append"]  # its start, the answer, and that nobody knows of `send`


async def test_a_commit_that_failed_is_made_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails before COMMIT: the effect went with it, and the tool is run once more."""
    runs: list[int] = []
    clock = FakeClock()
    journal = ledger.store._engine.journal
    append = journal.append

    failed: list[int] = []

    def failing(*given: Any) -> Head:
        if len(runs) == 1 and not failed:
            failed.append(1)
            raise StoreUnreachable("no space")
        return append(*given)

    monkeypatch.setattr(journal, "append", failing)
    run = asyncio.create_task(
        agent_of(paying(lambda: _count(runs))).run(
            TASK, context(then(calls(call("pay", cents=500))), ledger.store, clock=clock)
        )
    )
    while not (clock.sleepers or run.done()):  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)
    clock.advance(1.0)
    await run

    assert [1] == failed
    assert [1, 1] == runs
    assert [500] == ledger.payments()


@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_store_that_fails_under_the_tool_is_tried_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, swallowed: bool
) -> None:
    """It is no outcome, whatever the tool makes of it: the transaction is made anew."""
    clock, runs = FakeClock(), list[int]()
    run_in_guard = Guard.run

    def failing(guard: Guard, work: Callable[..., T], sql: str) -> T:
        def fail(_: object) -> T:
            raise apsw.FullError("no space")

        return run_in_guard(guard, fail if runs == [1] and "500" in sql else work, sql)

    monkeypatch.setattr(Guard, "run", failing)

    @tool(side_effecting=True, transactional=True)
    def pay(transaction: Transaction) -> str:
        runs.append(1)
        try:
            transaction.execute("INSERT INTO payment VALUES (500)")
        except StoreUnreachable:
            if not swallowed:
                raise
        return "paid"

    run = asyncio.create_task(
        agent_of(pay).run(TASK, context(then(calls(call("pay"))), ledger.store, clock=clock))
    )
    while not (clock.sleepers or run.done()):  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)
    clock.advance(1.0)
    await run

    assert [1, 1] == runs
    assert [500] == ledger.payments()


async def test_a_fork_under_the_tool_makes_the_transaction_anew(ledger: Ledger) -> None:
    """Connections are closed before a process forks; what was open in them is rolled back."""
    clock, runs = FakeClock(), list[int]()

    @tool(side_effecting=True, transactional=True)
    def pay(transaction: Transaction) -> str:
        runs.append(1)
        transaction.execute("INSERT INTO payment VALUES (500)")
        if runs == [1]:
            _lanes._before_fork()
            _lanes._after_fork()
        transaction.execute("INSERT INTO payment VALUES (700)")
        return "paid"

    run = asyncio.create_task(
        agent_of(pay).run(TASK, context(then(calls(call("pay"))), ledger.store, clock=clock))
    )
    while not (clock.sleepers or run.done()):  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)
    clock.advance(1.0)
    await run

    assert [1, 1] == runs
    assert [500, 700] == ledger.payments()


async def test_a_lease_that_is_lost_before_the_transaction_leaves_nothing(ledger: Ledger) -> None:
    """Another worker has the run: the tool is not entered, and nothing is written."""
    store = Before(ledger.store)

    async def take_over() -> None:
        head = await ledger.store.head(RUN)
        assert head is not None
        await ledger.store.acquire(RUN, "other", 15.0, supersede=head.epoch)

    store.act = take_over
    with pytest.raises(LeaseLost):
        await agent_of(pay).run(TASK, context(then(calls(call("pay", cents=500))), store))

    assert [] == ledger.payments()
    assert [] == await bodies_of(ledger.store, e.ToolFinished)


@pytest.mark.parametrize("committed", [False, True])
async def test_a_call_whose_worker_stopped_is_made_again_without_a_question(
    ledger: Ledger, *, committed: bool
) -> None:
    """An intent without outcome cannot have happened; with outcome it has."""
    store = Before(ledger.store, after=committed)
    llm = then(calls(call("pay", cents=500)))
    entered: list[int] = []
    agent = agent_of(paying(lambda: _count(entered)))

    class Stop(BaseException):
        """The worker stops here."""

    def stop() -> None:
        raise Stop

    store.act = stop
    with pytest.raises(Stop):
        await agent.run(TASK, context(llm, store))
    result = await agent.run(TASK, context(llm, ledger.store))

    assert "done" == result.output
    assert [500] == ledger.payments()
    assert [] == await bodies_of(ledger.store, e.QuestionAsked)
    assert 1 == len(entered)


@pytest.mark.parametrize("store", ["memory", "wrapped"])
async def test_a_store_without_transactions_is_refused_before_anything_happens(store: str) -> None:
    """Before the model is asked and before a run is recorded."""
    memory = InMemoryCheckpointStore()
    port = StoreWrapper(memory) if store == "wrapped" else memory
    llm = then(calls(call("pay", cents=500)))

    with pytest.raises(InvalidSpec, match="pay: transactional=True needs a store with trans"):
        await agent_of(pay).run(TASK, context(llm, port))

    assert [] == llm.requests
    assert await memory.scoped(Scope()).head(RUN) is None


def test_what_cannot_be_transactional_is_refused_at_decoration() -> None:
    """The message says what to write instead."""

    def fits(transaction: Transaction) -> str:
        return "ok"

    def lacks(cents: int) -> str:
        return "ok"

    async def waits(transaction: Transaction) -> str:
        return "ok"

    def twice(one: Transaction, two: Transaction) -> str:
        return "ok"

    with pytest.raises(InvalidSpec, match="needs a parameter annotated with"):
        tool(side_effecting=True, transactional=True)(lacks)
    with pytest.raises(InvalidSpec, match="write def, not async def"):
        tool(side_effecting=True, transactional=True)(waits)
    with pytest.raises(InvalidSpec, match="needs side_effecting=True"):
        tool(side_effecting=False, transactional=True)(fits)
    with pytest.raises(InvalidSpec, match="say transactional=True"):
        tool(side_effecting=True)(fits)
    with pytest.raises(InvalidSpec, match="never in doubt"):
        tool(side_effecting=True, transactional=True, idempotent=True)(fits)
    with pytest.raises(InvalidSpec, match="never in doubt"):
        tool(side_effecting=True, transactional=True, on_in_doubt="ask")(fits)
    with pytest.raises(InvalidSpec, match="both 'one' and 'two' ask for a Transaction"):
        tool(side_effecting=True, transactional=True)(twice)


def test_the_model_is_not_told_of_the_transaction() -> None:
    """It is the runtime's to give."""
    assert {"cents"} == set(pay.definition.parameters["properties"])  # type: ignore[arg-type]


def _count(runs: list[int]) -> str:
    runs.append(1)
    return "paid"
