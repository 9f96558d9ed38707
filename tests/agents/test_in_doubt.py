"""Calls that were in flight when their worker died, and what people decide about them."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from agentkit.agents import Agent, AgentResult
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, OutcomeUnknown
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.core.contracts.values import encode_value
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.lease import ThreadHeartbeat
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    Borders,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    died_after,
    entries_of,
    events_of,
    messages_of,
    then,
    told,
)


class World:
    """Tools of each row of the in-doubt table, and what they did."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: list[str] = []

    def agent(self, **options: int) -> Agent:
        """An agent with one tool of each kind."""

        @tool(side_effecting=False)
        async def read(what: str = "") -> str:
            self.log.append(f"read {what}".strip())
            return f"read {what}".strip()

        @tool(side_effecting=True, idempotent=True)
        async def put(ctx: ToolContext, what: str = "") -> str:
            self.log.append(f"put {what}".strip())
            self.keys.append(ctx.idempotency_key)
            return f"put {what} at attempt {ctx.attempt}"

        @tool(side_effecting=True)
        async def send(what: str = "") -> str:
            self.log.append(f"send {what}".strip())
            return f"sent {what}".strip()

        return agent_of(read, put, send, **options)  # type: ignore[arg-type]  # max_iterations alone


def asked(*names: str) -> FakeLLM:
    """A model that asks for these calls in one turn, then says done."""
    return then(calls(*(call(name, call_id=f"c{n}", what=str(n)) for n, name in enumerate(names))))


async def _questions(
    names: Sequence[str],
) -> tuple[World, InMemoryCheckpointStore, FakeLLM, tuple[Question, ...]]:
    """A run whose worker died with these calls in flight, as far as it goes by itself."""
    world, llm = World(), asked(*names)
    store = await died_after(e.ToolStarted, World().agent(), llm)
    result = await world.agent().run(TASK, context(llm, store))
    assert result.suspended is not None
    return world, store, llm, result.suspended.questions


# --- why nobody knows -----------------------------------------------------------------------------


async def _why(store: InMemoryCheckpointStore, agent: Agent, llm: FakeLLM) -> str:
    """What the question says between what was done and that it may have taken effect."""
    result = await agent.run(TASK, context(llm, store))
    assert result.suspended is not None
    [question] = result.suspended.questions
    said = question.prompt.removeprefix("send was started (attempt 1) and ")
    return said[: said.index(", so it may or may not have taken effect")]


async def test_a_question_says_that_the_worker_died() -> None:
    """Its lease was taken over."""
    store = await died_after(e.ToolStarted, World().agent(), asked("send"))

    why = await _why(store, World().agent(), asked("send"))

    assert "its worker died or lost its lease before the outcome was recorded" == why


async def test_a_question_says_that_the_worker_was_stopped() -> None:
    """It gave the run back while the tool was at it."""
    entered = asyncio.Event()

    @tool(side_effecting=True)
    async def send(what: str) -> str:
        entered.set()
        await asyncio.Event().wait()
        return what

    store = InMemoryCheckpointStore()
    worker = asyncio.create_task(agent_of(send).run(TASK, context(asked("send"), store)))
    await entered.wait()
    worker.cancel()
    await asyncio.wait({worker})

    why = await _why(store, agent_of(send), asked("send"))

    assert "its worker was stopped before the outcome was recorded" == why


@pytest.mark.parametrize("ends", ["unknown", "too late"])
async def test_a_question_says_what_the_tool_itself_said(ends: str) -> None:
    """That it cannot tell, in its own words, or that its time was over."""

    @tool(side_effecting=True, timeout=300.0 if ends == "unknown" else 0.01)
    async def send(what: str) -> str:
        if ends == "unknown":
            raise OutcomeUnknown("the gateway answered 504")
        await asyncio.Event().wait()
        return what

    why = await _why(InMemoryCheckpointStore(), agent_of(send), asked("send"))

    said = {
        "unknown": "OutcomeUnknown: the gateway answered 504",
        "too late": "Tool 'send' timed out after 0.01 seconds; whether it took effect is not known",
    }
    assert f"its outcome is not known ({said[ends]})" == why


# --- what is automatic ----------------------------------------------------------------------------


async def test_a_read_in_doubt_runs_again() -> None:
    """Row 1: it changes nothing outside, so nobody is asked."""
    world, llm = World(), asked("read")
    store = await died_after(e.ToolStarted, World().agent(), llm)

    result = await world.agent().run(TASK, context(llm, store))

    assert ("done", ["read 0"]) == (result.output, world.log)
    assert [1, 2] == [one.attempt for one in await bodies_of(store, e.ToolStarted)]


async def test_an_idempotent_call_in_doubt_runs_again_with_the_same_key_and_arguments() -> None:
    """Row 2: the sink sees one key, whichever worker calls."""
    world, llm = World(), asked("put")
    store = await died_after(e.ToolStarted, World().agent(), llm)
    intents = await bodies_of(store, e.ToolStarted)

    result = await world.agent().run(TASK, context(llm, store))

    both = await bodies_of(store, e.ToolStarted)
    assert ("done", ["put 0"]) == (result.output, world.log)
    assert [intents[0].key, intents[0].key] == [one.key for one in both]
    assert [intents[0].key] == world.keys
    assert 1 == len({one.digest for one in both})


async def test_any_other_effect_in_doubt_is_asked_about() -> None:
    """Row 4: nothing runs; the question shows the tool, its final arguments and the answers."""
    world, store, _, questions = await _questions(["send"])

    [question] = questions
    assert [] == world.log
    assert ("in_doubt", "send", "c0", '{"what":"0"}') == (
        question.kind,
        question.tool,
        question.call_id,
        question.arguments,
    )
    assert ("done", "failed", "run_again", "skip") == question.answers
    assert "suspended" == (await store.list_runs())[0][0].summary.status


async def test_every_mix_of_calls_in_flight_moves_as_far_as_it_may() -> None:
    """F013, F019: for each mix of tools and each subset that had ended, no ended call runs again.

    What may run again does so once, what may not is asked about, and nothing is lost.
    """
    world = World()
    agent = world.agent()
    for names in itertools.product(["read", "put", "send"], repeat=3):
        llm = asked(*names)
        recorded = InMemoryCheckpointStore()
        await agent.run(TASK, context(llm, recorded))
        entries = await entries_of(recorded)
        for ended in itertools.product([False, True], repeat=3):
            store = await dead_worker(_three_in_flight(entries, ended))
            world.log.clear()

            result = await agent.run(TASK, context(llm, store))

            numbered = list(enumerate(zip(names, ended, strict=True)))
            again = [f"{name} {n}" for n, (name, over) in numbered if not over and name != "send"]
            open_calls = [f"c{n}" for n, (name, over) in numbered if not over and name == "send"]
            waiting = () if result.suspended is None else result.suspended.questions
            assert sorted(again) == sorted(world.log)
            assert open_calls == [question.call_id for question in waiting]
            assert ("suspended" if open_calls else "completed") == result.stop_reason
            if open_calls:
                skip = {question.id: "skip" for question in waiting}
                result = await agent.resume(RUN, skip, context(llm, store))
            assert "done" == result.output
            messages = await messages_of(store)
            assert_valid(messages)
            results = [message.content for message in messages if message.role == "tool"]
            assert 3 == len(results)
            for n, (name, over) in numbered:
                skipped = name == "send" and not over
                begins = "A person decided" if skipped else {"send": "sent"}.get(name, name)
                assert results[n].startswith(begins)


def _three_in_flight(entries: Sequence[e.Entry], ended: Sequence[bool]) -> list[e.Entry]:
    """The journal of a worker that died when just the `ended` calls had their outcomes."""
    asking = next(entry.seq for entry in entries if isinstance(entry.body, e.ModelAnswered))
    intents = [entry for entry in entries if isinstance(entry.body, e.ToolStarted)]
    outcomes = [
        entry
        for entry in entries
        if isinstance(entry.body, e.ToolFinished) and ended[entry.body.index]
    ]
    assert (3, sum(ended)) == (len(intents), len(outcomes))
    return [*entries[:asking], *intents, *outcomes]


async def test_f053_a_recovery_counts_as_an_attempt() -> None:
    """A read that may be tried once is not tried again after its worker died; the model is told."""
    reads = []

    @tool(side_effecting=False, max_attempts=1)
    async def read() -> str:
        reads.append(1)
        return "text"

    llm = then(calls(call("read")))
    store = await died_after(e.ToolStarted, agent_of(read), llm)
    reads.clear()

    result = await agent_of(read).run(TASK, context(llm, store))

    [finished] = await bodies_of(store, e.ToolFinished)
    assert ("done", []) == (result.output, reads)
    assert ("error", 1) == (finished.outcome, finished.attempt)
    assert "no attempts left" in finished.content


async def test_an_idempotent_call_without_attempts_left_is_asked_about() -> None:
    """It had an effect, perhaps, so the model is not told that nothing came of it."""

    @tool(side_effecting=True, idempotent=True, max_attempts=1)
    async def put() -> str:
        return "put"

    llm = then(calls(call("put")))
    store = await died_after(e.ToolStarted, agent_of(put), llm)

    result = await agent_of(put).run(TASK, context(llm, store))

    assert "suspended" == result.stop_reason


async def test_a_tool_that_cannot_tell_is_asked_about() -> None:
    """`OutcomeUnknown` of a plain effect suspends at once, without any crash."""

    @tool(side_effecting=True)
    async def send() -> str:
        raise OutcomeUnknown("the line went dead")

    store = InMemoryCheckpointStore()
    stream = agent_of(send).stream(TASK, context(then(calls(call("send"))), store))

    events = await events_of(stream)

    assert ["tool_call send", "interrupt send", "final suspended"] == told(events)
    assert [True] == [event.id is not None for event in events if event.type == "interrupt"]


async def test_a_suspended_run_is_not_lost_to_a_slow_reader() -> None:
    """The lease goes with the suspension; a heartbeat that then finds it gone disturbs nobody."""

    @tool(side_effecting=False)
    async def read() -> str:
        return "text"

    @tool(side_effecting=True)
    async def send() -> str:
        raise OutcomeUnknown("the line went dead")

    store = InMemoryCheckpointStore()
    llm = then(calls(call("read"), call("send", call_id="c2")))
    heartbeat = ThreadHeartbeat(start=lambda _: None)
    events = []

    async for event in agent_of(read, send).stream(TASK, context(llm, store, heartbeat=heartbeat)):
        events.append(event)
        heartbeat.tick()

    assert "final suspended" == told(events)[-1]


# --- what people decide ---------------------------------------------------------------------------


async def _decided(
    decision: Decision | str, *, name: str = "send"
) -> tuple[World, AgentResult, str]:
    world, store, llm, [question] = await _questions([name])
    result = await world.agent().resume(RUN, {question.id: decision}, context(llm, store))
    results = [message for message in await messages_of(store) if message.role == "tool"]
    assert 1 == len(results)
    return world, result, f"{results[0].content}{' (error)' if results[0].is_error else ''}"


async def test_done_records_what_the_tool_returned() -> None:
    """The person saw that it happened: the model gets the value, the tool is not called."""
    world, result, shown = await _decided(Decision("done", value="sent at noon", actor="ann"))

    assert ([], "done", "sent at noon") == (world.log, result.output, shown)


async def test_failed_records_why() -> None:
    """The person saw that it did not happen: the model gets an error, the tool is not called."""
    world, result, shown = await _decided(Decision("failed", value="refused by the bank"))

    assert ([], "done", "refused by the bank (error)") == (world.log, result.output, shown)


async def test_run_again_calls_the_tool_once() -> None:
    """On the person's word the call is made as its second attempt."""
    world, result, shown = await _decided("run_again")

    assert (["send 0"], "done", "sent 0") == (world.log, result.output, shown)


async def test_skip_tells_the_model_that_a_person_said_so() -> None:
    """The call is not made, and its reason is passed on."""
    world, result, shown = await _decided(Decision("skip", reason="too late now"))

    assert ([], "done") == (world.log, result.output)
    assert "A person decided not to run this call again" in shown
    assert "too late now" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(False, "false"), (0, "0"), ("", ""), ([], "[]"), ({}, "{}"), (None, ""), (0.0, "0.0")],
)
@pytest.mark.parametrize("answer", ["done", "failed"])
async def test_f033_a_falsy_value_is_a_value(value: JSON, shown: str, answer: str) -> None:
    """No, nothing and zero are delivered as they are."""
    _, result, seen = await _decided(Decision(answer, value=value))

    assert ("done", shown) == (result.output, seen.removesuffix(" (error)"))


@pytest.mark.parametrize(
    ("decisions", "says"),
    [
        ({"q999": "skip"}, "has no open question 'q999'"),
        ({"send": "skip"}, "has no open question 'send'"),
        ({"": "skip"}, "has no open question ''"),
        ({"Q": "yes"}, "'yes' is no answer"),
        ({"Q": Decision("approve")}, "'approve' is no answer"),
        ({"Q": "done"}, "needs a value"),
        ({"Q": "failed"}, "needs a value"),
        ({"Q": True}, "not bool"),
        ({"Q": None}, "not NoneType"),
        ({"Q": "skip", "q999": "skip"}, "has no open question 'q999'"),
    ],
)
async def test_f022_decisions_that_do_not_fit_change_nothing(
    decisions: dict[str, Decision | str], says: str
) -> None:
    """The error names what is open; nothing is executed, nothing consumed, nothing written."""
    world, store, llm, [question] = await _questions(["send"])
    before = await entries_of(store)
    given = {question.id if key == "Q" else key: value for key, value in decisions.items()}

    with pytest.raises(InvalidDecision, match=says):
        await world.agent().resume(RUN, given, context(llm, store))

    assert ([], before) == (world.log, await entries_of(store))


async def test_resume_without_decisions_stays_suspended_with_the_same_questions() -> None:
    """Asking again never renames, answers or loses a question."""
    world, store, llm, questions = await _questions(["send", "send"])

    results = [await world.agent().resume(RUN, {}, context(llm, store)) for _ in range(3)]

    assert [questions] * 3 == [one.suspended.questions for one in results if one.suspended]
    assert [] == world.log


async def test_f015_part_of_the_decisions_leaves_the_rest_open() -> None:
    """What is decided is done at once, and once; the other question keeps its id."""
    world, store, llm, (first, second) = await _questions(["send", "send"])

    partly = await world.agent().resume(RUN, {second.id: "run_again"}, context(llm, store))
    done_by_then = list(world.log)
    repeated = await world.agent().resume(RUN, {second.id: "run_again"}, context(llm, store))
    result = await world.agent().resume(RUN, {first.id: "run_again"}, context(llm, store))

    assert partly.suspended is not None
    assert repeated.suspended is not None
    assert [(first,), (first,)] == [partly.suspended.questions, repeated.suspended.questions]
    assert (["send 1"], ["send 1", "send 0"]) == (done_by_then, world.log)
    assert "done" == result.output


async def test_f021_each_call_gets_its_own_answer() -> None:
    """Two calls of one tool, answered together in swapped order."""
    world, store, llm, (first, second) = await _questions(["send", "send"])
    decisions = {second.id: Decision("done", value="two"), first.id: Decision("done", value="one")}

    await world.agent().resume(RUN, decisions, context(llm, store))

    results = [message.content for message in await messages_of(store) if message.role == "tool"]
    assert ["one", "two"] == results


async def test_f023_a_repeated_decision_is_a_no_op_and_another_one_is_refused() -> None:
    """Also after the run has ended: the stored result comes back, or the error says who decided."""
    world, store, llm, [question] = await _questions(["send"])
    decision = Decision("done", value="x", actor="ann")
    first = await world.agent().resume(RUN, {question.id: decision}, context(llm, store))

    again = await world.agent().resume(RUN, {question.id: decision}, context(llm, store))
    with pytest.raises(InvalidDecision, match=r"already decided \('done' by ann\)"):
        await world.agent().resume(RUN, {question.id: "run_again"}, context(llm, store))
    other = Decision("done", value="y")
    with pytest.raises(InvalidDecision, match="already decided"):
        await world.agent().resume(RUN, {question.id: other}, context(llm, store))

    assert (first.output, (question.id,)) == (again.output, again.already_decided)
    assert (1, []) == (len(await bodies_of(store, e.Decided)), world.log)


async def test_f038_a_decision_applies_once_across_a_further_crash() -> None:
    """The worker that applied it died with the call in flight: that is a new doubt, a new question.

    The old decision does not answer it.
    """
    world, store, llm, [question] = await _questions(["send"])
    recorded = Borders(store)
    await world.agent().resume(RUN, {question.id: "run_again"}, context(llm, recorded))
    entries = await entries_of(store)
    second_start = [one.seq for one in entries if isinstance(one.body, e.ToolStarted)][1]
    moved = await dead_worker(entries[:second_start])
    world.log.clear()

    still = await world.agent().run(TASK, context(llm, moved))
    repeated = await world.agent().resume(RUN, {question.id: "run_again"}, context(llm, moved))

    assert still.suspended is not None
    assert repeated.suspended is not None
    assert still.suspended.questions == repeated.suspended.questions
    assert question.id != still.suspended.questions[0].id
    assert [] == world.log


async def test_a_decision_survives_a_crash_before_it_was_applied() -> None:
    """It is durable before anything is done; any later start applies it."""
    world, store, llm, [question] = await _questions(["send"])
    await world.agent().resume(RUN, {question.id: "run_again"}, context(llm, store))
    entries = await entries_of(store)
    decided = next(one.seq for one in entries if isinstance(one.body, e.Decided))
    moved = await dead_worker(entries[:decided])
    world.log.clear()

    result = await world.agent().run(TASK, context(llm, moved))

    assert ("done", ["send 0"]) == (result.output, world.log)


async def test_a_decision_about_other_arguments_decides_nothing() -> None:
    """It holds for what was shown. One that names another digest leaves the question open."""
    world, store, llm, [question] = await _questions(["send"])
    other = e.Decided(question.id, "run_again", "another digest", encode_value(None))
    moved = await dead_worker(
        [*await entries_of(store), e.Entry(0, "", 0, "agent:worker", 0, other)]
    )

    result = await world.agent().resume(RUN, {}, context(llm, moved))

    assert result.suspended is not None
    assert (question,) == result.suspended.questions
    assert [] == world.log


async def test_f042_twenty_equal_decisions_at_once_execute_once() -> None:
    """Whoever wins the lease does it; nobody does it twice, and the accepted decision is done."""
    world, store, llm, [question] = await _questions(["send"])
    agent = world.agent()

    results = await asyncio.gather(
        *(
            agent.resume(RUN, {question.id: "run_again"}, context(llm, store), wait_seconds=5)
            for _ in range(20)
        ),
        return_exceptions=True,
    )

    assert {"done"} == {one.output for one in results if isinstance(one, AgentResult)}
    assert ["send 0"] == world.log
    assert 1 == len(await bodies_of(store, e.Decided))


async def test_the_tool_is_gone_when_the_call_is_in_doubt() -> None:
    """F124: an agent without the tool cannot make the call again: it asks instead of guessing."""
    llm = asked("put")
    store = await died_after(e.ToolStarted, World().agent(), llm)

    with pytest.warns(UserWarning, match="has changed since the run was started"):
        result = await agent_of().run(TASK, context(llm, store))

    assert "suspended" == result.stop_reason
