"""Calling for a run that exists already: finished, unfinished, waiting, parked, somebody else's."""

import asyncio
from pathlib import Path

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidSpec,
    ModelError,
    RunIdReused,
    RunNotFound,
    RunParked,
    RunSuspended,
)
from agentkit.core.contracts.model import FailureKind
from agentkit.core.contracts.types import Usage
from agentkit.core.runtime import RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    died_after,
    entries_of,
    events_of,
    kinds_of,
    then,
    told,
)


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    return "sent"


async def test_a_finished_run_gives_its_stored_result_without_calling_anything() -> None:
    """Redelivered work costs nothing: no model, no tool, no entry."""
    store = InMemoryCheckpointStore()
    llm = then(calls(call("look")))
    first = await agent_of(look).run(TASK, context(llm, store))
    before = await entries_of(store)
    untouched = FakeLLM.script([])

    again = await agent_of(look).run(TASK, context(untouched, store))
    resumed = await agent_of(look).resume(RUN, {}, context(untouched, store))
    streamed = await events_of(agent_of(look).stream(TASK, context(untouched, store)))

    assert [first, first, first] == [again, resumed, streamed[-1].result]
    assert ["final completed"] == told(streamed)
    assert ([], before) == (untouched.requests, await entries_of(store))


async def test_a_finished_run_gives_its_result_where_no_model_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing key is no reason to hide an answer that was paid for."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    store = InMemoryCheckpointStore()
    agent = Agent("worker", model="openai:some-model", prompt="Work.")
    await agent.run(TASK, context(FakeLLM("answer"), store))
    services = Services(checkpointer=Checkpointer(port=store))

    result = await agent.run(TASK, RunContext(correlation_id=RUN, services=services))

    assert "answer" == result.output


@pytest.mark.parametrize("finished", [True, False])
async def test_f128_a_run_keeps_its_task(finished: bool) -> None:
    """The same id with another task is refused, on a finished and on an unfinished run."""
    agent, llm = agent_of(look), then(calls(call("look")))
    store = await died_after(e.StepCompleted, agent, llm)
    if finished:
        await agent.run(TASK, context(llm, store))
    before = await entries_of(store)

    with pytest.raises(RunIdReused, match="another task"):
        await agent.run("something else", context(llm, store))

    assert before == await entries_of(store)


@pytest.mark.parametrize("finished", [True, False])
async def test_a_run_keeps_its_agent(finished: bool) -> None:
    """Another agent can neither run nor resume it, and nothing is written."""
    agent, llm = agent_of(look), then(calls(call("look")))
    store = await died_after(e.StepCompleted, agent, llm)
    if finished:
        await agent.run(TASK, context(llm, store))
    before = await entries_of(store)
    other = agent_of(look, name="other")

    with pytest.raises(RunIdReused, match="belongs to agent 'worker'"):
        await other.run(TASK, context(llm, store))
    with pytest.raises(RunIdReused, match="belongs to agent 'worker'"):
        await other.resume(RUN, {}, context(llm, store))

    assert before == await entries_of(store)


async def test_a_decision_through_another_agent_is_not_taken() -> None:
    """The agent is checked before the decision is written."""
    agent, llm = agent_of(send), then(calls(call("send")))
    store = await died_after(e.ToolStarted, agent, llm)
    result = await agent.run(TASK, context(llm, store))
    assert result.suspended is not None
    skip = {question.id: "skip" for question in result.suspended.questions}

    with pytest.raises(RunIdReused):
        await agent_of(send, name="other").resume(RUN, skip, context(llm, store))

    assert [] == await bodies_of(store, e.Decided)


async def test_a_suspended_run_is_not_started_again() -> None:
    """`run` names the open questions and writes nothing."""
    agent, llm = agent_of(send), then(calls(call("send")))
    store = await died_after(e.ToolStarted, agent, llm)
    suspended = await agent.run(TASK, context(llm, store))
    before = await entries_of(store)

    with pytest.raises(RunSuspended, match=r"waits for decisions on q\d+") as raised:
        await agent.run(TASK, context(llm, store))

    assert suspended.suspended is not None
    assert suspended.suspended.questions == raised.value.questions
    assert before == await entries_of(store)


async def test_a_run_that_does_not_exist_is_not_resumed() -> None:
    """Nothing is created by asking for it."""
    store = InMemoryCheckpointStore()

    with pytest.raises(RunNotFound, match="'r' does not exist"):
        await agent_of().resume(RUN, {}, context(FakeLLM("x"), store))

    assert await store.head(RUN) is None


async def test_resume_refuses_the_context_of_another_run() -> None:
    """Which run is meant must not be guessed."""
    ctx = context(FakeLLM("x"), InMemoryCheckpointStore())

    with pytest.raises(InvalidSpec, match="context of another run"):
        await agent_of().resume("other", {}, ctx)


async def test_run_refuses_a_run_id_beside_the_context_of_another_run() -> None:
    """As above, for `run`."""
    ctx = context(FakeLLM("x"), InMemoryCheckpointStore())

    with pytest.raises(InvalidSpec, match="context of another run"):
        await agent_of().run(TASK, ctx, run_id="other")


# --- parked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("auth", "auth"),
        ("quota", "quota"),
        ("invalid_request", "invalid_request"),
        ("not_found", "not_found"),
        ("context_length", "context_length"),
    ],
)
async def test_what_waiting_does_not_mend_parks_the_run(kind: FailureKind, reason: str) -> None:
    """One attempt, `RunParked` with the reason, the same again when asked again; `resume` goes on.

    The work that was done before is not done again.
    """
    reads = []

    @tool(side_effecting=False)
    async def read() -> str:
        reads.append(1)
        return "text"

    store = InMemoryCheckpointStore()
    broken = FakeLLM.script(
        [calls(call("read")), Turn(error=ModelError("no", kind=kind, status=400))]
    )
    agent = agent_of(read)

    with pytest.raises(RunParked, match="'r' is parked") as first:
        await agent.run(TASK, context(broken, store))
    with pytest.raises(RunParked) as again:
        await agent.run(TASK, context(FakeLLM.script([]), store))
    streamed = await events_of(agent.stream(TASK, context(FakeLLM.script([]), store)))
    result = await agent.resume(RUN, {}, context(FakeLLM("mended"), store))

    assert [reason, reason] == [first.value.reason, again.value.reason]
    assert Usage(10, 5, 1) == first.value.usage
    assert ["final parked"] == told(streamed)
    assert ("mended", Usage(20, 10, 2), [1]) == (result.output, result.usage, reads)


async def test_max_iterations_parks_and_a_larger_limit_goes_on() -> None:
    """F121: the limit counts over the whole life of the run, and raising it is what goes on."""
    store = InMemoryCheckpointStore()
    turns = [calls(call("look")), calls(call("look")), calls(call("look"))]

    stopped = await agent_of(look, max_iterations=2).run(TASK, context(then(turns), store))
    still = await agent_of(look, max_iterations=2).resume(RUN, {}, context(then(turns), store))
    result = await agent_of(look, max_iterations=9).resume(RUN, {}, context(then(turns), store))

    assert ["max_iterations", "max_iterations"] == [stopped.stop_reason, still.stop_reason]
    assert [True, True, False] == [one.partial for one in (stopped, still, result)]
    assert ("done", 4) == (result.output, result.usage.requests)
    assert [1, 2, 3, 4] == [one.turn for one in await bodies_of(store, e.ModelAnswered)]


# --- one object, many runs ------------------------------------------------------------------------


async def test_f127_fifty_runs_go_through_one_agent_at_once() -> None:
    """An agent holds no run state: every run has its own calls, results and answer."""
    everybody = asyncio.Barrier(50)

    @tool(side_effecting=False)
    async def meet(who: str) -> str:
        await everybody.wait()
        return who

    def answer(messages: object) -> Turn:
        assert isinstance(messages, list)
        task = messages[1].content
        if messages[-1].role == "tool":
            return Turn(content=f"{task}: {messages[-1].content}")
        return calls(call("meet", who=task))

    store, agent, llm = InMemoryCheckpointStore(), agent_of(meet), FakeLLM(answer)
    names = [f"run-{number}" for number in range(50)]

    results = await asyncio.gather(
        *(agent.run(name, context(llm, store, run_id=name)) for name in names)
    )

    assert [f"{name}: {name}" for name in names] == [result.output for result in results]
    assert names == [result.run_id for result in results]


async def test_f127_a_run_that_made_no_progress_begins_as_if_new() -> None:
    """Its start was recorded and nothing else; one object serves it and the next run alike."""
    agent, llm = agent_of(look), then(calls(call("look")))
    store = await died_after(e.RunStarted, agent, llm)

    resumed = await agent.run(TASK, context(llm, store))
    fresh = await agent.run(TASK, context(llm, store, run_id="next"))

    assert ("done", "done") == (resumed.output, fresh.output)
    assert ["RunStarted", "LeaseTaken", "LeaseTaken", "ModelAnswered"] == (await kinds_of(store))[
        :4
    ]
    assert 1 == len(await bodies_of(store, e.RunStarted))


async def test_f128_the_transcript_holds_the_prompt_and_the_task_once() -> None:
    """Break after a step, build everything anew, run again with the same text."""
    store = InMemoryCheckpointStore()
    turns = [calls(call("look")), calls(call("look"))]
    for _ in range(3):
        async for event in agent_of(look).stream(TASK, context(then(turns), store)):
            if event.type in ("step", "final"):
                break
    llm = then([*turns, calls(call("look"))])

    await agent_of(look).run(TASK, context(llm, store, run_id="again"))

    request = llm.requests[-1]
    assert ("Work.", [TASK]) == (
        request.system,
        [message.content for message in request.messages if message.role == "user"],
    )


async def test_f063_runs_without_an_id_share_nothing(tmp_path: Path) -> None:
    """Two agents, one store, no run id given: two runs, each with an id of its own."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    one = Agent("a", FakeLLM("A"))
    two = Agent("b", FakeLLM("B"))

    results = [await agent.run(TASK, store=url) for agent in (one, two, one)]

    assert ["A", "B", "A"] == [result.output for result in results]
    assert 3 == len({result.run_id for result in results})
