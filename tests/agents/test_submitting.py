"""Runs that are asked for and begun later, by whoever has their agent."""

import asyncio
from typing import Literal

import pytest

from agentkit.agents import add_message, cancel, pause, submit, unpark
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidId,
    InvalidSpec,
    RunError,
    RunIdReused,
    RunSuspended,
)
from agentkit.core.contracts.heads import Claimable
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    kinds_of,
    messages_of,
    then,
)


@tool(side_effecting=False)
async def who(ctx: ToolContext) -> str:
    """Say who asked."""
    return f"for {ctx.identity}"


@tool(side_effecting=True)
async def send() -> str:
    """Send something."""
    return "sent"


async def test_a_submission_is_on_record_and_wants_a_worker() -> None:
    """It is listed as submitted, belongs to its scope, and nothing of it has been done."""
    store = InMemoryCheckpointStore()
    scope = Scope("acme")

    made = await submit(store.scoped(scope), RUN, TASK, agent="worker", identity="ann")

    assert not made.repeated
    assert ["RunSubmitted"] == await kinds_of(store.scoped(scope))
    [due] = await store.claimable(agents=["worker"])
    assert Claimable("acme", RUN, "worker", 0) == due
    [listed], _ = await store.scoped(scope).list_runs(status="submitted")
    assert (RUN, "worker") == (listed.run, listed.summary.agent)
    assert ([], "") == await store.list_runs()


async def test_f070_of_twenty_submissions_at_once_one_counts() -> None:
    """The others are told that it was there; the run has one start."""
    store = InMemoryCheckpointStore()

    made = await asyncio.gather(*(submit(store, RUN, TASK, agent="worker") for _ in range(20)))

    assert [False] + [True] * 19 == sorted(one.repeated for one in made)
    assert ["RunSubmitted"] == await kinds_of(store)


async def test_a_submission_again_is_a_no_op_for_the_life_of_the_run() -> None:
    """While it waits, when it was begun, and when only its tombstone is left."""
    store, agent = InMemoryCheckpointStore(), agent_of()
    agent.reference = "shop:agent"
    await submit(store, RUN, TASK, agent="shop:agent")
    waiting = await submit(store, RUN, TASK, agent="shop:agent")
    await agent.resume(RUN, {}, context(FakeLLM("done"), store))
    by_reference = await submit(store, RUN, TASK, agent="shop:agent")
    by_name = await submit(store, RUN, TASK, agent="worker")
    head = await store.head(RUN)
    assert head is not None
    assert head.summary is not None
    await store.entomb(RUN, updated_at=head.summary.updated_at)
    gone = await submit(store, RUN, TASK, agent="worker")

    told = [waiting, by_reference, by_name, gone]
    assert [(True, "submitted"), *[(True, "done")] * 3] == [
        (one.repeated, one.state.status) for one in told
    ]
    with pytest.raises(RunIdReused, match="another task"):
        await submit(store, RUN, "something else", agent="worker")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("task", {"task": "something else"}),
        ("agent", {"agent": "somebody"}),
        ("identity", {"identity": "bob"}),
        ("autonomy", {"autonomy": "manual"}),
    ],
)
async def test_the_id_of_another_run_is_refused(
    what: str, other: dict[str, str], *, begun: bool
) -> None:
    """Whatever differs, the run stays what it was."""
    store = InMemoryCheckpointStore()
    given = {"task": TASK, "agent": "worker", "identity": "ann", "autonomy": "auto"}
    await _submit(store, given)
    if begun:
        await agent_of().resume(RUN, {}, context(FakeLLM("done"), store))
    before = await kinds_of(store)

    with pytest.raises(RunIdReused, match=f"another {what}"):
        await _submit(store, given | other)

    assert before == await kinds_of(store)


async def _submit(store: InMemoryCheckpointStore, given: dict[str, str]) -> None:
    autonomy: Literal["auto", "manual"] = "auto" if given["autonomy"] == "auto" else "manual"
    await submit(
        store,
        RUN,
        given["task"],
        agent=given["agent"],
        identity=given["identity"],
        autonomy=autonomy,
    )


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (InvalidId, {"run_id": ""}),
        (InvalidId, {"agent": "\x00"}),
        (InvalidId, {"identity": "a\nb"}),
        (InvalidSpec, {"task": " "}),
        (InvalidSpec, {"task": "\udc97"}),
        (InvalidSpec, {"autonomy": "free"}),
    ],
)
async def test_what_cannot_be_kept_is_refused(error: type, wrong: dict[str, str]) -> None:
    """Before anything is written."""
    store = InMemoryCheckpointStore()
    given = {"run_id": RUN, "task": TASK, "agent": "worker", "autonomy": "gated"} | wrong

    with pytest.raises(error):
        await submit(store, given.pop("run_id"), given.pop("task"), **given)  # type: ignore[arg-type]

    assert await store.head(RUN) is None


@pytest.mark.parametrize("by", ["name", "reference"])
@pytest.mark.parametrize("door", ["run", "resume"])
async def test_whoever_has_the_agent_begins_it(by: str, door: str) -> None:
    """The start keeps what the submission said; tools are told who asked."""
    store, agent, llm = InMemoryCheckpointStore(), agent_of(who), then(calls(call("who")))
    agent.reference = "shop:agent"
    named = "shop:agent" if by == "reference" else "worker"
    await submit(store, RUN, TASK, agent=named, identity="ann", autonomy="manual")

    if door == "run":
        await agent.run(TASK, context(llm, store))
    else:
        await agent.resume(RUN, {}, context(llm, store))

    [started] = await bodies_of(store, e.RunStarted)
    assert (TASK, "worker", "ann", "manual") == (
        started.task,
        started.agent,
        started.identity,
        started.autonomy,
    )
    assert ["RunSubmitted", "RunStarted", "LeaseTaken"] == (await kinds_of(store))[:3]
    assert ["do it", "", "for ann", "done"] == [m.content for m in await messages_of(store)]


async def test_a_submission_cannot_be_begun_as_another_run() -> None:
    """With another task, or by another agent, it is refused and still wants its worker."""
    store = InMemoryCheckpointStore()
    ctx = context(FakeLLM("done"), store)
    await submit(store, RUN, TASK, agent="worker")

    with pytest.raises(RunIdReused, match="another task"):
        await agent_of().run("something else", ctx)
    with pytest.raises(RunIdReused, match="belongs to agent 'worker'"):
        await agent_of(name="other").run(TASK, ctx)
    with pytest.raises(RunIdReused, match="belongs to agent 'worker'"):
        await agent_of(name="other").resume(RUN, {}, ctx)

    assert ["RunSubmitted"] == await kinds_of(store)


class Overtaken(InMemoryCheckpointStore):
    """Just before the first append of a lease holder somebody submits."""

    task = TASK

    async def append(self, run, rows, *, after, lease, summary, release=False):  # type: ignore[no-untyped-def]
        if lease is not None and after == 0 and rows:
            await submit(self, run, self.task, agent="worker", identity="ann")
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


async def test_a_submission_that_comes_as_the_run_begins_is_one_run_with_it() -> None:
    """Of the same task it is that run's; of another one the run that was about to begin is not."""
    same, other = Overtaken(), Overtaken()
    other.task = "something else"

    result = await agent_of().run(TASK, context(FakeLLM("done"), same))
    with pytest.raises(RunIdReused, match="another task"):
        await agent_of().run(TASK, context(FakeLLM("done"), other))

    assert "done" == result.output
    assert 1 == len(await bodies_of(same, e.RunStarted))
    assert ["RunSubmitted"] == await kinds_of(other)
    assert ("submitted", "") == await _status_and_owner(other)


async def _status_and_owner(store: InMemoryCheckpointStore) -> tuple[str, str]:
    head = await store.head(RUN)
    return ("", "") if head is None else ((await load(store, RUN)).status, head.owner)


async def test_what_the_user_adds_before_it_begins_stands_behind_the_task() -> None:
    """Nothing that was said is lost, and nothing is said twice."""
    store, llm = InMemoryCheckpointStore(), then((), "done")
    await submit(store, RUN, TASK, agent="worker")
    await add_message(store, RUN, "and quickly", message_id="m1")
    await add_message(store, RUN, "and quickly", message_id="m1")
    await add_message(store, RUN, "please")

    await agent_of().resume(RUN, {}, context(llm, store))

    [asked] = llm.requests
    assert [TASK, "and quickly", "please"] == [m.content for m in asked.messages]


async def test_a_submission_can_be_cancelled_before_it_begins() -> None:
    """It has ended, wants no worker, and never begins."""
    store, llm = InMemoryCheckpointStore(), FakeLLM("done")
    await submit(store, RUN, TASK, agent="worker")

    state = await cancel(store, RUN, reason="not needed")
    result = await agent_of().run(TASK, context(llm, store))

    assert "cancelled" == state.status
    assert [] == await store.claimable()
    assert ("cancelled", []) == (result.stop_reason, llm.requests)
    assert (await submit(store, RUN, TASK, agent="worker")).repeated


async def test_a_paused_submission_waits_until_it_is_unparked() -> None:
    """It is not due meanwhile."""
    store = InMemoryCheckpointStore()
    await submit(store, RUN, TASK, agent="worker")
    await pause(store, RUN)
    paused = await store.claimable()
    parked = await agent_of().carry_on(context(FakeLLM("done"), store))
    await unpark(store, RUN)

    assert [] == paused
    assert "paused" == parked.parked
    assert [RUN] == [one.run for one in await store.claimable()]
    assert "done" == (await agent_of().carry_on(context(FakeLLM("done"), store))).output


async def test_only_who_resumes_wakes_a_parked_run() -> None:
    """A worker that carries on what wants one leaves it; a person who resumes it does not."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("who")))
    impatient = agent_of(who, max_iterations=1)
    await impatient.run(TASK, context(llm, store))
    before = await kinds_of(store)

    left = await agent_of(who).carry_on(context(llm, store))
    after = await kinds_of(store)
    resumed = await agent_of(who).resume(RUN, {}, context(llm, store))

    assert ("max_iterations", before) == (left.stop_reason, after)
    assert "done" == resumed.output


async def test_carrying_on_returns_what_a_run_waits_for() -> None:
    """Also again, when there is nothing to do; a `run` would raise."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("send")))
    await submit(store, RUN, TASK, agent="worker", autonomy="manual")
    claimed: list[int] = []
    agent, ctx = agent_of(send), context(llm, store)

    first = await agent.carry_on(ctx, on_claimed=lambda lease: claimed.append(lease.epoch))
    again = await agent.carry_on(ctx, on_claimed=lambda lease: claimed.append(lease.epoch))

    assert first == again
    assert first.suspended is not None
    assert 1 == len(first.suspended.questions)
    assert 1 == len(claimed)
    with pytest.raises(RunSuspended):
        await agent.run(TASK, context(llm, store))


async def test_a_run_keeps_who_asked_for_it() -> None:
    """A later worker that names nobody works for the same person; one that does, for that one."""
    store, llm = InMemoryCheckpointStore(), then([calls(call("who")), calls(call("who"))])
    impatient = agent_of(who, max_iterations=1)
    await impatient.run(TASK, context(llm, store, identity="ann"))

    await agent_of(who, max_iterations=2).resume(RUN, {}, context(llm, store))
    await agent_of(who).resume(RUN, {}, context(llm, store, identity="bob"))

    results = [m.content for m in await messages_of(store) if m.role == "tool"]
    assert ["for ann", "for ann"] == results


async def test_the_errors_name_the_run() -> None:
    """So that a caller can tell which of its submissions it was."""
    store = InMemoryCheckpointStore()
    await submit(store, RUN, TASK, agent="worker")

    with pytest.raises(RunError) as raised:
        await submit(store, RUN, "else", agent="worker")

    assert RUN == raised.value.run_id
