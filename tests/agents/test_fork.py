"""A fork goes on as a run of its own: nothing of the copied past happens or is paid again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, OutcomeUnknown
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, JSONObject
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.testing import read_rows
from agentkit.testing.crash.scenario import promise
from agentkit.testing.invariants import Evidence, ToolKind, check
from agentkit.tools import Tool, ToolContext, tool
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
    events_of,
    messages_of,
    then,
)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalPort]:
    """An empty store of either kind."""
    if request.param == "memory":
        yield InMemoryCheckpointStore()
        return
    sqlite = SqliteCheckpointStore(str(tmp_path / "runs.db"))
    yield sqlite
    await sqlite.aclose()


def _buying(*, idempotent: bool = False) -> tuple[Agent, list[tuple[str, str]]]:
    """An agent that buys, and what it bought: run and key of each effect."""
    effects: list[tuple[str, str]] = []

    @tool(side_effecting=True, idempotent=idempotent)
    async def buy(item: str, ctx: ToolContext) -> str:
        """Buy."""
        effects.append((ctx.run_id, ctx.idempotency_key))
        return f"bought {item}"

    return agent_of(buy), effects


def _asked_for(*items: str) -> FakeLLM:
    return then([calls(call("buy", item=item)) for item in items], "all bought")


async def _sound(port: JournalPort, run: str) -> None:
    """The checker finds nothing in this run."""
    assert [] == check(Evidence(run=run, rows=await read_rows(port, run)))


async def test_a_fork_goes_on_without_doing_the_past_again(store: JournalPort) -> None:
    """Tools of the prefix are not run, its answers not bought, and its tokens not counted."""
    agent, effects = _buying()
    llm = _asked_for("a", "b", "c")
    first = await agent.run(TASK, context(llm, store))
    asked = len(llm.requests)
    await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")

    result = await agent.resume("f", {}, context(llm, store, run_id="f"))

    assert [RUN, RUN, RUN, "f"] == [run for run, _ in effects]
    assert 2 == len(llm.requests) - asked
    assert (4, 2) == (first.usage.requests, result.usage.requests)
    assert "all bought" == result.output
    assert_valid(await messages_of(store, "f"))
    await _sound(store, "f")
    await _sound(store, RUN)


async def test_later_calls_have_other_keys_than_those_of_the_same_place(
    store: JournalPort,
) -> None:
    """Turn 3, call 0 was made by the source too, for something that is paid once per key."""
    agent, effects = _buying()
    llm = _asked_for("a", "b", "c")
    await agent.run(TASK, context(llm, store))
    checkpointer = Checkpointer(port=store)
    for name in ("f", "g"):
        await checkpointer.fork(RUN, version=2, new_run_id=name)
        await agent.resume(name, {}, context(llm, store, run_id=name))

    keys = [key for _, key in effects]

    assert 5 == len(keys) == len(set(keys))
    intents = [one.key for one in await bodies_of(store, e.ToolStarted, "f")]
    assert keys[:2] + keys[3:4] == intents


async def test_a_fork_under_the_id_of_a_run_that_is_gone_has_keys_of_its_own(
    store: JournalPort,
) -> None:
    """The key does not follow from run id, turn and index alone."""
    agent, effects = _buying()
    llm = _asked_for("a", "b")
    await agent.run(TASK, context(llm, store))
    checkpointer = Checkpointer(port=store)
    for _ in range(2):
        await checkpointer.fork(RUN, version=1, new_run_id="f")
        await agent.resume("f", {}, context(llm, store, run_id="f"))
        await store.delete_run("f")

    assert 4 == len({key for _, key in effects})


async def test_the_checker_looks_for_effects_and_costs_of_the_past_with_the_source() -> None:
    """A fork's own log has neither; what it did itself must be in it."""
    agent, _ = _buying()
    llm = _asked_for("a", "b", "c")
    store = InMemoryCheckpointStore()
    await agent.run(TASK, context(llm, store))
    await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")
    tools: dict[str, ToolKind] = {"buy": "plain"}
    bought: tuple[JSONObject, ...] = tuple({"kind": "bought", "turn": n} for n in (3, 4))
    before = check(Evidence(run="f", rows=await read_rows(store, "f"), tools=tools))

    await agent.resume("f", {}, context(llm, store, run_id="f"))

    rows = await read_rows(store, "f")
    assert [] == before == check(Evidence(run="f", rows=rows, answers=bought))
    found = check(Evidence(run="f", rows=rows, tools=tools, answers=bought[:1]))
    assert ["I9", "I8"] == [one.invariant for one in found]


async def test_a_fork_can_be_started_by_its_task_too(store: JournalPort) -> None:
    """As a redelivered message does; the stored result is given again afterwards."""
    agent, effects = _buying()
    llm = _asked_for("a", "b")
    await agent.run(TASK, context(llm, store))
    await Checkpointer(port=store).fork(RUN, version=1, new_run_id="f")

    one = await agent.run(TASK, context(llm, store, run_id="f"))
    two = await agent.run(TASK, context(llm, store, run_id="f"))

    assert one == two
    assert [RUN, RUN, "f"] == [run for run, _ in effects]


async def test_the_model_sees_the_edit_and_the_message_and_may_decide_otherwise(
    store: JournalPort,
) -> None:
    """What it does then is its own: the source's third purchase is not made."""
    agent, effects = _buying()
    llm = _asked_for("a", "b", "c")
    await agent.run(TASK, context(llm, store))
    await Checkpointer(port=store).fork(
        RUN, version=2, new_run_id="f", edits={(2, 0): "sold out"}, message="Then stop."
    )
    stopping = FakeLLM("stopped")

    result = await agent.resume("f", {}, context(stopping, store, run_id="f"))

    seen = [(one.role, one.content) for one in stopping.requests[0].messages]
    assert [("tool", "sold out"), ("user", "Then stop.")] == seen[-2:]
    assert ("tool", "bought a") == seen[2]
    assert "stopped" == result.output
    assert [RUN] * 3 == [run for run, _ in effects]
    await _sound(store, "f")


# --- questions, doubts, decisions -----------------------------------------------------------------


async def _in_doubt(agent: Agent, llm: FakeLLM) -> tuple[InMemoryCheckpointStore, str]:
    """A run that asks about a call which may have happened; the question's id."""
    store = await died_after(e.ToolStarted, agent, llm)
    waiting = await agent.run(TASK, context(llm, store))
    assert waiting.suspended is not None
    return store, waiting.suspended.questions[0].id


async def test_a_decision_given_after_the_fork_is_not_the_forks() -> None:
    """Each run's question is decided in that run; the other one stays open."""
    agent, effects = _buying()
    llm = _asked_for("a")
    store, question = await _in_doubt(agent, llm)
    effects.clear()
    made = await Checkpointer(port=store).fork(RUN, new_run_id="f")
    await agent.resume(RUN, {question: Decision("done", "bought a")}, context(llm, store))

    waiting = await agent.resume("f", {}, context(llm, store, run_id="f"))

    assert [question] == [one.id for one in made.questions]
    assert waiting.suspended is not None
    assert made.questions == waiting.suspended.questions
    assert [] == effects
    result = await agent.resume("f", {question: "skip"}, context(llm, store, run_id="f"))
    assert "completed" == result.stop_reason
    assert [] == effects
    await _sound(store, "f")


async def test_a_decision_applied_before_the_version_is_history() -> None:
    """It stands in the copied entries; sent again it means nothing, another one is refused."""
    agent, effects = _buying()
    llm = _asked_for("a", "b")
    store, question = await _in_doubt(agent, llm)
    await agent.resume(RUN, {question: Decision("done", "bought a")}, context(llm, store))
    effects.clear()
    await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")
    here = context(llm, store, run_id="f")

    with pytest.raises(InvalidDecision, match="already decided"):
        await agent.resume("f", {question: "run_again"}, here)
    result = await agent.resume("f", {question: Decision("done", "bought a")}, here)

    assert "completed" == result.stop_reason
    assert ["f"] == [run for run, _ in effects]


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_call_in_doubt_keeps_its_key_in_the_fork_and_is_not_run_by_itself(
    idempotent: bool,
) -> None:
    """Whether it took effect does not depend on who looks, so a sink sees one purchase.

    Idempotent or not: the question that was open at the version is open here.
    """
    agent, effects = _buying(idempotent=idempotent)
    policy, _ = _buying()
    llm = _asked_for("a")
    store, question = await _in_doubt(policy, llm)
    [intent] = await bodies_of(store, e.ToolStarted)
    await Checkpointer(port=store).fork(RUN, new_run_id="f")

    waiting = await agent.resume("f", {}, context(llm, store, run_id="f"))
    ran = list(effects)
    result = await agent.resume("f", {question: "run_again"}, context(llm, store, run_id="f"))

    assert ("suspended", []) == (waiting.stop_reason, ran)
    assert "completed" == result.stop_reason
    assert [("f", intent.key)] == effects
    await _sound(store, "f")


async def test_a_call_in_doubt_is_not_dispatched_where_the_clock_stepped_back() -> None:
    """Epochs follow the store's clock, and the source's is never taken for the fork's own."""
    agent, effects = _buying()
    llm = _asked_for("a")
    died = await died_after(e.ToolStarted, agent, llm)
    head = await died.head(RUN)
    assert head is not None
    clock = FakeClock(head.epoch / 1000 + 0.01)
    store = InMemoryCheckpointStore(clock=clock)
    store.restore(head, await read_rows(died, RUN))
    await agent.run(TASK, context(llm, store))
    effects.clear()

    for back in range(5):
        clock.set_now((head.epoch - back) / 1000)
        made = await Checkpointer(port=store).fork(RUN)
        await agent.resume(made.run_id, {}, context(llm, store, run_id=made.run_id))

    assert [] == effects


async def test_the_same_place_with_other_arguments_is_asked_about_anew() -> None:
    """A decision about the source's call does not reach the fork's, whose digest is another."""
    agent, _ = _buying()
    llm = _asked_for("a", "b")
    store, question = await _in_doubt(agent, llm)
    await agent.resume(RUN, {question: Decision("done", "bought a")}, context(llm, store))
    await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f", message="Rather c.")
    other = _doubting()
    script = _asked_for("a", "c")

    waiting = await other.resume("f", {}, context(script, store, run_id="f"))

    assert waiting.suspended is not None
    [asked] = waiting.suspended.questions
    assert {"item": "c"} == json.loads(asked.arguments)
    state = await load(store, "f")
    assert asked.id not in state.decided
    assert asked.digest not in {one.digest for one in await bodies_of(store, e.Decided, "f")}


def _doubting(*others: Tool) -> Agent:
    """An agent whose purchases never say how they ended."""

    @tool(side_effecting=True)
    async def buy(item: str) -> str:
        """Buy."""
        raise OutcomeUnknown(item)

    return agent_of(*others, buy)


async def test_the_fork_tells_edited_results_of_an_open_turn() -> None:
    """As `replayed`, and of the attempt that gave them: the call was made by the source."""

    @tool(side_effecting=False)
    async def look() -> str:
        """Look."""
        return "seen"

    doubting = _doubting(look)
    llm = then(calls(call("look", call_id="a"), call("buy", call_id="b", item="x")))
    store, question = await _in_doubt(doubting, llm)
    made = await Checkpointer(port=store).fork(RUN, new_run_id="f", edits={(1, 0): "other"})
    here = context(llm, store, run_id="f")

    events = await events_of(doubting.resume_stream("f", {question: "skip"}, here))

    [first, *_] = [one for one in events if one.type == "tool_result"]
    assert ("other", True, made.seq + 1) == (first.text, first.replayed, first.id)
    assert 2 == first.attempt
    promises = tuple(promise("f", event) for event in events)
    assert [] == check(Evidence(run="f", rows=await read_rows(store, "f"), promises=promises))
    forged = tuple({**one, "text": "forged"} for one in promises if one["event"] == "tool_result")
    found = check(Evidence(run="f", rows=await read_rows(store, "f"), promises=forged))
    assert {"I3"} == {one.invariant for one in found}
    assert_valid(await messages_of(store, "f"))


# --- what stopped the source does not stop the fork -----------------------------------------------


async def test_the_fork_of_a_run_that_is_out_of_iterations_needs_more_of_them(
    store: JournalPort,
) -> None:
    """Iterations count over the copied past, since they bound a transcript; usage does not."""

    def agent(max_iterations: int) -> Agent:
        return agent_of(_look, max_iterations=max_iterations)

    llm = then([calls(call("look"))] * 4)
    parked = await agent(2).run(TASK, context(llm, store))
    await Checkpointer(port=store).fork(RUN, new_run_id="f")
    here = context(llm, store, run_id="f")

    same = await agent(2).resume("f", {}, here)
    more = await agent(9).resume("f", {}, here)

    assert ["max_iterations", "max_iterations", "completed"] == [
        one.stop_reason for one in (parked, same, more)
    ]
    assert (2, 0, 3) == (parked.usage.requests, same.usage.requests, more.usage.requests)


@tool(side_effecting=False, name="look")
async def _look() -> str:
    """Look."""
    return "seen"


async def test_a_fork_of_a_fork_keeps_its_edits_and_its_message() -> None:
    """They belong to the version that the first fork began with; those of the second come behind
    them, and a result that both change is the second's.
    """

    @tool(side_effecting=False)
    async def look() -> str:
        return "seen"

    agent, llm, store = agent_of(look), then(calls(call("look"))), InMemoryCheckpointStore()
    await agent.run(TASK, context(llm, store))
    checkpointer = Checkpointer(port=store)
    edited = {(1, 0): "edited"}
    await checkpointer.fork(RUN, version=1, new_run_id="f", edits=edited, message="One.")

    await checkpointer.fork("f", new_run_id="g", message="Two.")
    await checkpointer.fork("g", new_run_id="h", edits={(1, 0): "edited again"})

    for name, result in (("g", "edited"), ("h", "edited again")):
        messages = await messages_of(store, name)
        assert_valid(messages)
        shown = [one.content for one in messages if one.role != "assistant"]
        assert [TASK, result, "One.", "Two."] == shown
