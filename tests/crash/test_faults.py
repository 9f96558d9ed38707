"""A store that fails, repeats itself or answers late on each call in turn: the same end, or none
yet; never another one, and no effect twice.
"""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from agentkit.agents import Agent, AgentResult
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import StoreError, StoreUnreachable
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Decision, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services, SystemClock
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.testing.crash import CrashingLLM, CrashPlan
from agentkit.testing.crash.scenario import answer, make_tools
from agentkit.testing.effects import EffectLog
from agentkit.testing.faulty import Fault, FaultKind, FaultyStore, Operation
from agentkit.testing.invariants import Evidence, ToolKind, check, read_rows, report
from agentkit.testing.lines import JsonLines
from agentkit.tools import ToolContext, Transaction, tool

TASK = "Do it."
STEPS = 2
TOOLS: dict[str, ToolKind] = {"lookup": "read", "upsert": "idempotent", "notify": "plain"}
EXPECTED = "all done: value of a, stored a, sent a, sent b, value of b"
MOST_CALLS = 60


class Impatient(SystemClock):
    """Waits between attempts take no time."""

    async def sleep(self, seconds: float) -> None:
        """Give way once."""
        await super().sleep(0)


class Rig:
    """One run on one store, whose logs outlive its workers."""

    def __init__(self, inner: JournalPort, path: Path) -> None:
        self.inner = inner
        self.effects = EffectLog(path / "effects.jsonl")
        self.answers = JsonLines(path / "answers.jsonl")

    async def run(self, store: JournalPort) -> AgentResult:
        """A worker on `store`, from the beginning or from wherever the last one stopped."""
        agent, context = self._worker(store)
        return await agent.run(TASK, context)

    def _worker(self, store: JournalPort) -> tuple[Agent, RunContext]:
        plan = CrashPlan()
        llm: LLMPort = CrashingLLM(
            FakeLLM(lambda messages: answer(messages, STEPS)), plan, self.answers, run="r"
        )
        services = Services(
            invoker=Invoker(llm), checkpointer=Checkpointer(port=store), clock=Impatient()
        )
        cognition = ReActCognition(make_tools(plan, self.effects))
        agent = Agent("worker", prompt="Work.", cognition=cognition)
        return agent, RunContext(correlation_id="r", services=services)

    async def resumed(self) -> AgentResult:
        """The next workers; a question about a call is answered by looking at the effects."""
        result = await self.run(self.inner)
        if result.suspended is None:
            return result
        done = {effect.digest: effect.result for effect in self.effects.effects()}
        decisions = {
            question.id: Decision("done", done[question.digest])
            if question.digest in done
            else Decision("run_again")
            for question in result.suspended.questions
        }
        agent, context = self._worker(self.inner)
        return await agent.resume("r", decisions, context)

    async def assert_sound(self, result: AgentResult) -> None:
        """The result is the undisturbed one and no invariant is broken."""
        evidence = Evidence(
            run="r",
            rows=await read_rows(self.inner, "r"),
            head=await self.inner.head("r"),
            effects=tuple(self.effects.read()),
            answers=tuple(self.answers.read()),
            tools=TOOLS,
        )
        found = check(evidence)
        assert not found, report(found)
        assert EXPECTED == result.output
        assert 4 == len(self.effects.effects()) + 1  # upsert a, notify a, notify b
        assert not any(b"fault:" in row.body for row in evidence.rows)


@pytest.fixture(params=["memory", "sqlite"])
def make_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Rig]:
    """Makes rigs, each on a store of its own."""

    def make(number: int) -> Rig:
        path = tmp_path / str(number)
        path.mkdir()
        if request.param == "memory":
            return Rig(InMemoryCheckpointStore(), path)
        return Rig(SqliteCheckpointStore(path / "runs.db"), path)

    return make


@pytest.mark.parametrize("kind", ["before", "after", "twice", "delay"])
async def test_f051_f072_one_fault_on_any_call_leaves_the_run_as_it_is_or_resumable(
    make_rig: Callable[[int], Rig], kind: FaultKind
) -> None:
    """F051, F072: the n-th call of the store goes wrong, for every n: the run ends as it would
    have, at once or with the next worker, with each effect once; the fault is nobody's outcome.
    """
    stopped, number = 0, 0
    while True:
        number += 1
        rig = make_rig(number)
        store = FaultyStore(rig.inner, Fault(kind, call=number, seconds=0.01))
        try:
            result = await rig.run(store)
        except StoreError:
            stopped += 1
            result = await rig.resumed()
        await rig.assert_sound(result)
        await rig.inner.aclose()
        if not store.fired:
            break
        assert {kind: 1} == store.fired
    assert number > 8
    assert kind in {"before", "after"} or not stopped


@pytest.mark.parametrize("kind", ["before", "after"])
async def test_f072_an_outage_at_any_append_stops_the_worker_and_not_the_run(
    make_rig: Callable[[int], Rig], kind: FaultKind
) -> None:
    """F072: from the n-th append on nothing goes through (or goes through and says that it did
    not): the worker stops with the store's error, and the next one ends the run.
    """
    number = 0
    while True:
        number += 1
        rig = make_rig(number)
        outage = Fault(kind, "append", call=number, times=MOST_CALLS)
        store = FaultyStore(rig.inner, outage)
        try:
            result = await rig.run(store)
        except StoreUnreachable:
            assert store.fired[kind] > 1
            result = await rig.resumed()
        await rig.assert_sound(result)
        await rig.inner.aclose()
        if not store.fired:
            break
    assert number > 5


@pytest.mark.parametrize("kind", ["before", "after"])
async def test_f072_a_failing_acquire_writes_nothing(
    make_rig: Callable[[int], Rig], kind: FaultKind
) -> None:
    """F072: the worker gets the error, and the next one has the run."""
    rig = make_rig(1)
    store = FaultyStore(rig.inner, Fault(kind, "acquire"))

    with pytest.raises(StoreUnreachable):
        await rig.run(store)

    assert {kind: 1} == store.fired
    assert () == await read_rows(rig.inner, "r")
    await rig.assert_sound(await rig.run(rig.inner))


class Till:
    """A run whose tools pay in the transaction of their outcome, and mail once per address."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path / "runs.db"
        self.store = SqliteCheckpointStore(self.path)
        self.mails: list[str] = []

        @tool(side_effecting=True, transactional=True)
        def pay(cents: int, transaction: Transaction) -> str:
            transaction.execute("CREATE TABLE IF NOT EXISTS payment (cents)")
            transaction.execute("INSERT INTO payment VALUES (?)", (cents,))
            return f"paid {cents}"

        @tool(side_effecting=True, idempotent=True)
        async def mail(to: str, context: ToolContext) -> JSON:
            return await context.once(to, 60.0, lambda: self.mails.append(to))

        self.agent = Agent("clerk", cognition=ReActCognition([pay, mail]))

    async def run(self, store: JournalPort) -> AgentResult:
        """Pay twice in one turn, mail in the next."""
        turns = [
            Turn(tool_calls=(_call("pay", 1, cents=500), _call("pay", 2, cents=700))),
            Turn(tool_calls=(_call("mail", 3, to="ann"),)),
            Turn("done"),
        ]
        llm = FakeLLM(lambda messages: turns[sum(one.role == "assistant" for one in messages)])
        services = Services(
            invoker=Invoker(llm), checkpointer=Checkpointer(port=store), clock=Impatient()
        )
        return await self.agent.run(TASK, RunContext(correlation_id="r", services=services))

    def payments(self) -> list[object]:
        """What was paid, as another program sees it."""
        other = apsw.Connection(str(self.path))
        try:
            return [cents for (cents,) in other.execute("SELECT cents FROM payment ORDER BY cents")]
        finally:
            other.close()


def _call(name: str, number: int, **arguments: JSON) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments)


@pytest.mark.parametrize("operation", ["transact", "claim_value", "settle_value", None])
@pytest.mark.parametrize("kind", ["before", "after", "twice", "delay"])
async def test_f045_one_fault_leaves_no_transactional_call_in_doubt(
    tmp_path: Path, kind: FaultKind, operation: Operation | None
) -> None:
    """F045: the n-th transaction, claim or settling (or any call of the store) goes wrong, or its
    answer is lost: each payment is made once and the mail once, and nobody is asked.
    """
    number, fired = 0, 0
    while True:
        number += 1
        till = Till(tmp_path / str(number))
        store = FaultyStore(till.store, Fault(kind, operation, call=number, seconds=0.01))
        try:
            result = await till.run(store)
        except StoreError:
            assert operation is None
            result = await till.run(till.store)
        assert ("done", None) == (result.output, result.suspended)
        assert [500, 700] == till.payments()
        assert ["ann"] == till.mails
        await till.store.aclose()
        if not store.fired:
            break
        fired += store.fired[kind]
    assert fired == (number - 1 if operation is None else 1 + (operation == "transact"))


@pytest.mark.parametrize("kind", ["before", "after"])
async def test_f045_an_outage_at_any_transaction_leaves_both_or_neither(
    tmp_path: Path, kind: FaultKind
) -> None:
    """F045: no transaction goes through any more, or each says that it did not, and after the
    first of them nothing can be read: the next worker makes the calls that were not made.
    """
    for number in (1, 2):
        till = Till(tmp_path / str(number))
        outage = Fault(kind, "transact", call=number, times=MOST_CALLS)
        unread = Fault("before", "read", call=2, times=MOST_CALLS)
        store = FaultyStore(till.store, outage, unread)
        with pytest.raises(StoreUnreachable):
            await till.run(store)
        assert store.fired[kind] > 0

        result = await till.run(till.store)

        assert ("done", None) == (result.output, result.suspended)
        assert [500, 700] == till.payments()
        assert ["ann"] == till.mails
        await till.store.aclose()
