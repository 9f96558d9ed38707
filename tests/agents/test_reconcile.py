"""Calls in doubt whose tools can find out, or chose what happens where nobody can."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.types import Decision
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import CannotHappen, Done, Reconciled, Tool, ToolContext, Unknown, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    died_after,
    messages_of,
    then,
)

Look = Callable[[str], Reconciled]


class Bank:
    """Payments, and a way to ask about them."""

    def __init__(self, look: Look = lambda order: Unknown()) -> None:
        self.paid: list[str] = []
        self.looked: list[tuple[str, str]] = []
        self.look = look

    def find(self, order: str, ctx: ToolContext) -> Reconciled:
        """What became of an order's payment."""
        self.looked.append((order, ctx.idempotency_key))
        return self.look(order)

    def pay(self, **options: object) -> Tool:
        """The tool, with these options beside `side_effecting=True`."""

        async def pay(order: str, ctx: ToolContext) -> str:
            self.paid.append(order)
            return f"paid {order}, attempt {ctx.attempt}"

        return tool(side_effecting=True, **{"reconcile": self.find, **options})(pay)  # type: ignore[arg-type]  # drawn from a table


def asked(*orders: str) -> FakeLLM:
    """A model that asks for these payments in one turn, then says done."""
    return then(calls(*(call("pay", call_id=f"c{n}", order=n) for n in orders)))


async def _killed(*orders: str, **options: object) -> tuple[InMemoryCheckpointStore, FakeLLM]:
    """A store whose worker died with these payments in flight."""
    llm = asked(*orders)
    return await died_after(e.ToolStarted, agent_of(Bank().pay(**options)), llm), llm


# --- reconcile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_done_is_the_outcome_and_nothing_runs(is_async: bool) -> None:
    """Its result is what the model sees, and the journal says who settled the call."""
    store, llm = await _killed("1")
    bank = Bank(lambda order: Done({"receipt": order}))

    async def find(order: str, ctx: ToolContext) -> Reconciled:
        return bank.find(order, ctx)

    agent = agent_of(bank.pay(reconcile=find) if is_async else bank.pay())
    [intent] = await bodies_of(store, e.ToolStarted)
    result = await agent.run(TASK, context(llm, store))

    assert ("done", []) == (result.output, bank.paid)
    assert [("1", intent.key)] == bank.looked
    assert [e.ToolFinished(1, 0, "ok", '{"receipt":"1"}', 1, "reconcile")] == await bodies_of(
        store, e.ToolFinished
    )


async def test_cannot_happen_makes_the_call_again() -> None:
    """With the same key, as the next attempt, and the journal says on whose word."""
    store, llm = await _killed("1")
    bank = Bank(lambda order: CannotHappen())

    result = await agent_of(bank.pay()).run(TASK, context(llm, store))

    first, second = await bodies_of(store, e.ToolStarted)
    assert ("done", ["1"]) == (result.output, bank.paid)
    assert (first.key, 2, "reconcile") == (second.key, second.attempt, second.by)


async def _raises(order: str) -> Reconciled:
    raise ConnectionError("the bank is closed")


async def _hangs(order: str) -> Reconciled:
    await asyncio.Event().wait()
    return Unknown()


async def _unsure(order: str) -> Reconciled:
    return Unknown("the statement comes at noon")


async def _wrong(order: str) -> Reconciled:
    return "not there"  # type: ignore[return-value]  # what a user may write


@pytest.mark.parametrize(
    ("find", "why"),
    [
        (_unsure, "the statement comes at noon"),
        (_raises, "ConnectionError: the bank is closed"),
        (_hangs, "took longer than 0.05 seconds"),
        (_wrong, "returned a str instead of Done, CannotHappen or Unknown"),
    ],
)
async def test_whatever_cannot_tell_is_asked_about(
    find: Callable[[str], Reconciled], why: str
) -> None:
    """Unknown, an error, no answer in time, anything else: a person decides, and sees why."""
    store, llm = await _killed("1", reconcile=find)
    bank = Bank()

    result = await agent_of(bank.pay(reconcile=find, timeout=0.05)).run(TASK, context(llm, store))

    assert result.suspended is not None
    [question] = result.suspended.questions
    assert [] == bank.paid
    assert why in question.prompt


async def test_the_tool_is_asked_again_where_its_worker_died_while_it_looked() -> None:
    """A look changes nothing, so it needs no record of its own."""
    store, llm = await _killed("1")
    looking = asyncio.Event()

    async def hang(order: str) -> Reconciled:
        looking.set()
        await asyncio.Event().wait()
        return Unknown()

    first = agent_of(Bank().pay(reconcile=hang))
    task = asyncio.create_task(first.run(TASK, context(llm, store)))
    await looking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bank = Bank(Done)
    result = await agent_of(bank.pay()).run(TASK, context(llm, store))

    assert ("done", [], 1) == (result.output, bank.paid, len(bank.looked))


async def test_each_call_of_a_turn_is_settled_by_itself() -> None:
    """One has happened, one cannot have, about the third a person is asked, and no two of them wait
    for each other; the model gets the results in call order.
    """
    store, llm = await _killed("1", "2", "3")
    answers: dict[str, Reconciled] = {"1": Done("receipt"), "2": CannotHappen(), "3": Unknown()}
    bank = Bank(answers.__getitem__)
    agent = agent_of(bank.pay())

    waiting = await agent.run(TASK, context(llm, store))
    assert waiting.suspended is not None
    [question] = waiting.suspended.questions
    paid = list(bank.paid)
    decisions = {question.id: Decision("done", "by hand")}
    result = await agent.resume(RUN, decisions, context(llm, store))

    assert (["2"], ["2"], "done") == (paid, bank.paid, result.output)
    messages = await messages_of(store)
    assert_valid(messages)
    results = [message.content for message in messages if message.role == "tool"]
    assert ["receipt", "paid 2, attempt 2", "by hand"] == results
    assert 3 == len(bank.looked)


async def test_an_unknown_outcome_of_a_live_call_is_looked_up_at_once() -> None:
    """The table is one: a timeout while the worker lives is settled like a death."""
    bank = Bank(lambda order: Done("receipt"))

    async def stuck(order: str) -> str:
        bank.paid.append(order)
        await asyncio.Event().wait()
        return "never"

    pay = tool(side_effecting=True, timeout=0.02, reconcile=bank.find, name="pay")(stuck)
    store, llm = InMemoryCheckpointStore(), asked("1")
    result = await agent_of(pay).run(TASK, context(llm, store))

    assert ("done", ["1"]) == (result.output, bank.paid)
    assert ["unknown", "ok"] == [one.outcome for one in await bodies_of(store, e.ToolFinished)]


async def test_a_result_that_cannot_be_kept_is_an_error_that_names_the_tool() -> None:
    """F073: what a look finds passes the same door as what a tool returns."""
    store, llm = await _killed("1")
    bank = Bank(lambda order: Done(object()))

    await agent_of(bank.pay()).run(TASK, context(llm, store))

    [finished] = await bodies_of(store, e.ToolFinished)
    assert ("error", []) == (finished.outcome, bank.paid)
    assert "'pay' ran, but its result cannot be kept" in finished.content


async def test_cannot_happen_does_not_exceed_the_attempts_that_a_tool_allows() -> None:
    """F053: a call that may be made once is not made twice on any word but a person's."""
    store, llm = await _killed("1", max_attempts=1)
    bank = Bank(lambda order: CannotHappen())

    result = await agent_of(bank.pay(max_attempts=1)).run(TASK, context(llm, store))

    assert result.suspended is not None
    assert [] == bank.paid


async def test_an_idempotent_tool_is_asked_before_it_is_run_again() -> None:
    """What has happened need not be done again; what nobody knows is, under the same key."""
    results = []
    for verdict in (Done("receipt"), Unknown()):
        store, llm = await _killed("1", idempotent=True)
        bank = Bank(lambda order, verdict=verdict: verdict)  # type: ignore[misc]  # bound here
        await agent_of(bank.pay(idempotent=True)).run(TASK, context(llm, store))
        results.append(bank.paid)

    assert [[], ["1"]] == results


# --- what a tool chose ----------------------------------------------------------------------------


@pytest.mark.parametrize("reconcile", [None, lambda order: Unknown()], ids=["bare", "looks"])
async def test_tell_model_says_that_it_is_not_known_and_goes_on(
    reconcile: Callable[[str], Reconciled] | None,
) -> None:
    """Nobody is asked, nothing runs again, and the model is told so as an error."""

    def look(order: str) -> Reconciled:
        return Unknown()

    options = {"on_in_doubt": "tell_model", "reconcile": look if reconcile else None}
    store, llm = await _killed("1", **options)
    bank = Bank()

    result = await agent_of(bank.pay(**options)).run(TASK, context(llm, store))

    assert ("done", []) == (result.output, bank.paid)
    told = (await messages_of(store))[2]
    assert told.is_error
    assert "pay was started and its outcome is not known" in told.content
    assert ["in_doubt"] == [one.outcome for one in await bodies_of(store, e.ToolFinished)]


async def test_an_idempotent_tool_may_choose_to_ask() -> None:
    """What could be run again safely is still not, where its tool says so."""
    options = {"idempotent": True, "on_in_doubt": "ask", "reconcile": None}
    store, llm = await _killed("1", **options)
    bank = Bank()

    result = await agent_of(bank.pay(**options)).run(TASK, context(llm, store))

    assert result.suspended is not None
    assert [] == bank.paid


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (ConnectionResetError("gone"), "unknown"),
        (ExceptionGroup("two", [ValueError("a"), ConnectionResetError("gone")]), "unknown"),
        (ValueError("no such order"), "error"),
    ],
)
async def test_a_tool_names_the_errors_after_which_nobody_knows(
    raised: Exception, outcome: str
) -> None:
    """A connection that broke off may have carried the request; a refusal has not."""

    async def pay(order: str) -> str:
        raise raised

    made = tool(side_effecting=True, in_doubt_on=(ConnectionError, TimeoutError))(pay)
    store = InMemoryCheckpointStore()
    result = await agent_of(made).run(TASK, context(asked("1"), store))

    assert outcome == (await bodies_of(store, e.ToolFinished))[0].outcome
    assert (outcome == "unknown") == (result.suspended is not None)


def _with(**options: object) -> Callable[[], object]:
    async def pay(order: str, note: str = "") -> str:
        return order

    return lambda: tool(**{"side_effecting": True, **options})(pay)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (_with(side_effecting=False, reconcile=Unknown), "need side_effecting=True"),
        (_with(side_effecting=False, on_in_doubt="ask"), "need side_effecting=True"),
        (_with(on_in_doubt="run_again"), "could do it twice"),
        (_with(on_in_doubt="hope"), "'ask', 'run_again' or 'tell_model', not 'hope'"),
        (_with(in_doubt_on="TimeoutError"), "takes exception classes"),
        (_with(reconcile="find"), "its reconcile function: a str is not a function"),
    ],
)
def test_choices_that_make_no_sense_are_refused_at_decoration(
    make: Callable[[], object], what: str
) -> None:
    """Before any run, with what to do."""
    with pytest.raises(InvalidSpec, match=what):
        make()


def test_reconcile_takes_the_tools_own_arguments() -> None:
    """One that needs what the tool does not get, or what a call may leave out, is refused."""

    def foreign(receipt: str) -> Reconciled:
        return Unknown()

    def needs_default(note: str) -> Reconciled:
        return Unknown()

    with pytest.raises(InvalidSpec, match="takes 'receipt', which the tool does not"):
        _with(reconcile=foreign)()
    with pytest.raises(InvalidSpec, match="needs the default of 'note'"):
        _with(reconcile=needs_default)()


# --- late outcomes --------------------------------------------------------------------------------


class Slow:
    """A sync tool that is held until it is let go, far beyond its timeout."""

    def __init__(self, **options: object) -> None:
        self.let_go = threading.Event()
        self.runs = 0

        def pay(order: str) -> str:
            self.runs += 1
            self.let_go.wait(30)
            return f"paid {order}"

        made = tool(side_effecting=True, timeout=0.02, **options)(pay)  # type: ignore[arg-type]  # from a table
        self.agent: Agent = agent_of(made)


async def _until_reported(store: InMemoryCheckpointStore) -> Sequence[object]:
    while not (found := await bodies_of(store, e.OutcomeReported)):  # noqa: ASYNC110 - a store has no event
        await asyncio.sleep(0)
    return found


async def test_f048_a_late_outcome_settles_the_question_by_fact() -> None:
    """The call timed out, a person is asked; then its thread ends: the fact is recorded, nobody is
    asked any more, and the model gets it once.
    """
    slow, store, llm = Slow(), InMemoryCheckpointStore(), asked("1")

    waiting = await slow.agent.run(TASK, context(llm, store))
    assert waiting.suspended is not None
    slow.let_go.set()
    await asyncio.wait_for(_until_reported(store), 20)
    result = await slow.agent.run(TASK, context(llm, store))

    assert ("done", 1) == (result.output, slow.runs)
    messages = await messages_of(store)
    assert_valid(messages)
    assert ["paid 1"] == [message.content for message in messages if message.role == "tool"]
    assert [e.OutcomeReported(1, 0, 1, "ok", "paid 1")] == await _until_reported(store)


async def test_f048_a_decision_that_was_applied_is_not_overturned() -> None:
    """A person said what happened before the thread ended: the late fact finds the call settled."""
    slow, store, llm = Slow(), InMemoryCheckpointStore(), asked("1")

    waiting = await slow.agent.run(TASK, context(llm, store))
    assert waiting.suspended is not None
    decisions = {waiting.suspended.questions[0].id: Decision("done", "as the bank says")}
    result = await slow.agent.resume(RUN, decisions, context(llm, store))
    before = await store.read(RUN)
    slow.let_go.set()
    await asyncio.sleep(0)

    assert ("done", 1) == (result.output, slow.runs)
    assert "as the bank says" in [message.content for message in await messages_of(store)]
    assert before == await store.read(RUN)
