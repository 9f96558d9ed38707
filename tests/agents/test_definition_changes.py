"""An agent that changed between two workers of a run: what was recorded is what is sent."""

import warnings

import pytest

from agentkit.agents import Agent, record_decisions
from agentkit.agents.checking import DefinitionChangedWarning
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.testing import FakeLLM
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
    messages_of,
    then,
)


@tool(side_effecting=False)
async def look(what: str = "") -> str:
    """Look at something."""
    return "seen"


@tool(side_effecting=False, name="look", description="Quite another description.")
async def look_closer(what: str = "", *, closely: bool = True) -> str:
    """Look closer."""
    return "seen closely"


@tool(side_effecting=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool(side_effecting=False)
async def listen() -> str:
    """Listen."""
    return "heard"


def _agent(model: str = "m", prompt: str = "Work.", tools: object = (look,)) -> Agent:
    return Agent("worker", model, prompt, cognition=ReActCognition(tools=tools))  # type: ignore[arg-type]  # tools


@pytest.mark.parametrize(
    "changed",
    [
        _agent(prompt="Work better."),
        _agent(tools=(look, listen)),
        _agent(tools=(look_closer,)),
        _agent(tools=()),
        _agent(model="other"),
    ],
    ids=["prompt", "tool added", "tool changed", "tool removed", "model"],
)
async def test_f123_the_recorded_definition_is_sent_and_the_change_is_told(changed: Agent) -> None:
    """System prompt, tools and model of the request are those of the start; one warning says so."""
    first = then(calls(call("look")))
    store = await died_after(e.StepCompleted, _agent(), first)
    second = then(calls(call("look")))

    with pytest.warns(DefinitionChangedWarning, match="has changed since the run was started"):
        result = await changed.run(TASK, context(second, store))

    sent = [(one.model, one.system, one.tools) for one in (first.requests[0], second.requests[0])]
    assert "done" == result.output
    assert sent[0] == sent[1]
    assert ("m", "Work.") == sent[0][:2]


async def test_f093_a_change_of_settings_leaves_what_was_sent_before_as_it_was() -> None:
    """The second worker's request begins with the very messages of the first worker's last one."""
    first = then([calls(call("look")), calls(call("look", call_id="c2"))])
    store = await died_after(e.StepCompleted, _agent(), first, count=2)
    second = then([calls(call("look")), calls(call("look", call_id="c2"))])

    with pytest.warns(DefinitionChangedWarning):
        await _agent(prompt="New.", tools=(look, listen)).run(TASK, context(second, store))

    earlier, later = list(first.requests[1].messages), list(second.requests[0].messages)
    assert earlier == later[: len(earlier)]


async def test_a_definition_that_only_raises_a_limit_has_not_changed() -> None:
    """`max_iterations` is no part of what is sent."""
    agent = agent_of(look, max_iterations=7)
    store = await died_after(e.StepCompleted, agent, then(calls(call("look"))))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await agent_of(look, max_iterations=8).run(
            TASK, context(then(calls(call("look"))), store)
        )

    assert "done" == result.output


async def test_a_refused_change_leaves_the_run_free() -> None:
    """A program that turns the warning into an error holds no lease, and has written nothing but
    that it took the run from a worker that died.
    """
    store = await died_after(e.StepCompleted, _agent(), then(calls(call("look"))))
    before = await store.read("r")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DefinitionChangedWarning):
            await _agent(prompt="New.").run(TASK, context(FakeLLM("x"), store))
    result = await _agent().run(TASK, context(then(calls(call("look"))), store))

    assert before == (await store.read("r"))[: len(before)]
    taken = [one.why for one in await bodies_of(store, e.LeaseTaken)]
    assert ("done", ["start", "takeover", "resume"]) == (result.output, taken)


async def test_a_tool_that_vanished_is_an_error_for_the_model() -> None:
    """A call that had not begun is answered, not run and not stuck."""
    llm = then([calls(call("look")), calls(call("look", call_id="c2"))])
    store = await died_after(e.StepCompleted, _agent(), llm)

    with pytest.warns(DefinitionChangedWarning):
        await _agent(tools=()).run(TASK, context(llm, store))

    last = (await bodies_of(store, e.ToolFinished))[-1]
    assert ("error", "There is no tool 'look'. Available: none.") == (last.outcome, last.content)


async def test_a_tool_that_vanished_before_its_call_was_made_is_an_error_for_the_model() -> None:
    """An intent that an orderly stop left undispatched is answered when its tool is gone."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("pay")))
    stream = agent_of(pay).stream(TASK, context(llm, store))
    async for event in stream:
        if event.type == "tool_call":
            break
    await stream.aclose()

    with pytest.warns(DefinitionChangedWarning):
        result = await agent_of(look).run(TASK, context(llm, store))

    outcomes = [one.outcome for one in await bodies_of(store, e.ToolFinished)]
    assert ("done", ["not_started", "error"]) == (result.output, outcomes)


async def test_f124_an_in_doubt_call_whose_tool_vanished_waits_until_it_is_back() -> None:
    """Told to run a call whose tool is missing, the run says so and waits on."""
    llm = then(calls(call("pay")))
    store = await died_after(e.ToolStarted, agent_of(pay), llm)
    question = (await agent_of(pay).resume("r", {}, context(llm, store))).suspended
    assert question is not None

    with pytest.warns(DefinitionChangedWarning):
        waiting = await agent_of(look).resume(
            "r", {question.questions[0].id: "run_again"}, context(llm, store)
        )

    assert waiting.suspended is not None
    [again] = waiting.suspended.questions
    assert "cannot be run again now: There is no tool 'pay'" in again.prompt
    result = await agent_of(pay).resume("r", {again.id: "run_again"}, context(llm, store))
    assert "done" == result.output
    assert ["paid"] == [one.content for one in await bodies_of(store, e.ToolFinished)]


async def test_a_new_run_uses_the_new_definition() -> None:
    """What is pinned is the run, not the agent."""
    store, llm = InMemoryCheckpointStore(), FakeLLM("x")

    for number, prompt in enumerate(["Old.", "New."]):
        await _agent(prompt=prompt).run(TASK, context(llm, store, run_id=f"r{number}"))

    assert ["Old.", "New."] == [request.system for request in llm.requests]


def _payer(default: int, paid: list[int]) -> Agent:
    @tool(side_effecting=True, requires_approval=True, name="pay")
    async def pay_some(invoice: str, cents: int = default) -> str:
        paid.append(cents)
        return "paid"

    return agent_of(pay_some)


@pytest.mark.filterwarnings("ignore::agentkit.agents.checking.DefinitionChangedWarning")
async def test_f040_an_approval_covers_the_defaults_that_were_shown() -> None:
    """A default that another release of the tool has changed is asked about again; what the tool
    gets is what was shown, and the model's own arguments stay what it reads.
    """
    paid: list[int] = []
    store, llm = InMemoryCheckpointStore(), then(calls(call("pay", invoice="A")))
    first = await _payer(100, paid).run(TASK, context(llm, store))
    assert first.suspended is not None
    [question] = first.suspended.questions
    await record_decisions(store, RUN, {question.id: "approve"})

    again = await _payer(777, paid).resume(RUN, {}, context(llm, store))
    assert again.suspended is not None
    [other] = again.suspended.questions
    assert [] == paid
    last = await _payer(777, paid).resume(RUN, {other.id: "approve"}, context(llm, store))

    shown = ['{"cents":100,"invoice":"A"}', '{"cents":777,"invoice":"A"}']
    assert shown == [question.arguments, other.arguments]
    assert ("done", [777]) == (last.output, paid)
    assert {"invoice": "A"} == (await messages_of(store))[1].tool_calls[0].arguments
