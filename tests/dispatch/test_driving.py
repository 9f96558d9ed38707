"""One run, one tenure: the door for queues."""

import asyncio

import pytest

from agentkit.agents import add_message, cancel, pause, record_decisions, submit
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, RunInUse, RunNotFound
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import Invoker, Services
from agentkit.core.runtime.context import Autonomy
from agentkit.core.testing import FakeLLM
from agentkit.dispatch import Driven, UnknownAgent, agents_by_name, drive_run
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, died_after, kinds_of, then


@tool(side_effecting=True)
async def send() -> str:
    """Send something."""
    return "sent"


AGENT = agent_of(send)


async def _drive(
    store: InMemoryCheckpointStore, llm: FakeLLM, *, scope: Scope | None = None
) -> tuple[Driven, list[Lease]]:
    claimed: list[Lease] = []
    driven = await drive_run(
        RUN,
        agents=agents_by_name([AGENT]),
        store=store,
        scope=scope or Scope(),
        services=Services(invoker=Invoker(llm)),
        on_claimed=claimed.append,
    )
    return driven, claimed


async def test_a_submitted_run_is_driven_until_it_waits_and_on_from_there() -> None:
    """Each call takes it as far as it goes; between two of them nobody holds it."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("send")))
    scope = Scope("acme")
    port = store.scoped(scope)
    await submit(port, RUN, TASK, agent="worker", autonomy="manual")

    waits, first = await _drive(store, llm, scope=scope)
    idle, none = await _drive(store, llm, scope=scope)
    assert waits.result.suspended is not None
    [question] = waits.result.suspended.questions
    await record_decisions(port, RUN, {question.id: "approve"})
    done, second = await _drive(store, llm, scope=scope)
    again, nothing = await _drive(store, llm, scope=scope)

    told = [(one.worked, one.result.stop_reason) for one in (waits, idle, done, again)]
    assert [
        (True, "suspended"),
        (False, "suspended"),
        (True, "completed"),
        (False, "completed"),
    ] == told
    assert [1, 0, 1, 0] == [len(one) for one in (first, none, second, nothing)]
    assert (RUN, "worker", "done") == (done.run_id, done.agent, done.result.output)


@tool(side_effecting=True, requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize(("autonomy", "reason"), [("auto", "completed"), ("gated", "suspended")])
async def test_what_the_run_was_submitted_with_decides_what_needs_approval(
    autonomy: Autonomy, reason: str
) -> None:
    """A worker is neither stricter nor laxer than that."""
    store, llm, agent = InMemoryCheckpointStore(), then(calls(call("pay"))), agent_of(pay)
    await submit(store, RUN, TASK, agent="worker", autonomy=autonomy)

    driven = await drive_run(
        RUN,
        agents=agents_by_name([agent]),
        store=store,
        services=Services(invoker=Invoker(llm)),
    )

    assert reason == driven.result.stop_reason


async def test_a_run_whose_worker_died_is_taken_over() -> None:
    """The lease tells that it was."""
    llm = then(calls(call("send")))
    store = await died_after(e.ModelAnswered, AGENT, llm)

    driven, [lease] = await _drive(store, llm)

    assert lease.took_over
    assert "suspended" == driven.result.stop_reason


async def test_what_somebody_has_stopped_is_let_be() -> None:
    """A paused run stays paused, and one that is cancelled ends."""
    store, llm = InMemoryCheckpointStore(), FakeLLM("done")
    await submit(store, RUN, TASK, agent="worker")
    await pause(store, RUN)
    before = await kinds_of(store)

    paused, _ = await _drive(store, llm)
    after = await kinds_of(store)
    await cancel(store, RUN)
    ended, _ = await _drive(store, llm)

    assert (False, "paused", before) == (paused.worked, paused.result.parked, after)
    assert (False, "cancelled", []) == (ended.worked, ended.result.stop_reason, llm.requests)


async def test_a_run_that_is_not_there_or_of_an_agent_that_is_not_is_refused() -> None:
    """Nothing is written; the error names the agent."""
    store, llm = InMemoryCheckpointStore(), FakeLLM("done")

    with pytest.raises(RunNotFound):
        await _drive(store, llm)
    await submit(store, RUN, TASK, agent="somebody")
    with pytest.raises(UnknownAgent) as raised:
        await _drive(store, llm)
    with pytest.raises(RunNotFound):
        await _drive(store, llm, scope=Scope("other"))

    assert (RUN, "somebody") == (raised.value.run_id, raised.value.agent)
    assert ["RunSubmitted"] == await kinds_of(store)


async def test_two_calls_at_once_make_one_run() -> None:
    """The other one is told who has it, and may be repeated."""
    store, llm = InMemoryCheckpointStore(), FakeLLM("done")
    await submit(store, RUN, TASK, agent="worker")

    made = await asyncio.gather(_drive(store, llm), _drive(store, llm), return_exceptions=True)

    errors = [one for one in made if isinstance(one, BaseException)]
    assert all(isinstance(one, RunInUse) for one in errors), errors
    assert 1 == len(llm.requests)
    assert "done" == (await _drive(store, llm))[0].result.output


async def test_a_run_that_kills_its_workers_is_parked_by_the_door() -> None:
    """That counts as work done, and the next call finds nothing to do."""
    llm = then(calls(call("send")))
    store = await died_after(e.ModelAnswered, AGENT, llm)
    for number in range(6):
        head = await store.head(RUN)
        assert head is not None
        await store.acquire(RUN, f"{head.owner}{number}", 15.0, supersede=head.epoch)

    parked, _ = await _drive(store, llm)
    await add_message(store, RUN, "and?")
    again, _ = await _drive(store, llm)

    assert (True, "recoveries") == (parked.worked, parked.result.parked)
    assert (False, "recoveries") == (again.worked, again.result.parked)


def test_agents_go_by_name_and_reference() -> None:
    """Two of one name, or none at all, are refused: a run could not tell them."""
    one, other = agent_of(), agent_of()
    one.reference = "shop:one"

    assert {"worker": one, "shop:one": one} == agents_by_name([one, one])
    with pytest.raises(InvalidSpec, match="go by the name 'worker'"):
        agents_by_name([one, other])
    with pytest.raises(InvalidSpec, match="needs an agent"):
        agents_by_name([])
