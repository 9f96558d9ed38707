"""F115: a run of another scope is not there, by any way of asking."""

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidId, RunNotFound
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeLLM
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
    dead_worker,
    entries_of,
    then,
)

OWNER = Scope(tenant="a", user="u")
OTHERS = [
    Scope(),
    Scope(tenant="a"),
    Scope(tenant="b", user="u"),
    Scope(tenant="a/u"),
    Scope(user="u"),
    Scope(tenant="a", user="u/"),
    Scope(tenant="a%2Fu"),
    Scope(tenant="A", user="u"),
]


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    return "sent"


AGENT = agent_of(send)
LLM = then(calls(call("send")))


async def _suspended() -> InMemoryCheckpointStore:
    recorded = InMemoryCheckpointStore()
    await AGENT.run(TASK, context(LLM, recorded))
    left = (await entries_of(recorded))[:4]
    assert isinstance(left[-1].body, e.ToolStarted)
    store = await dead_worker(left, scope=OWNER)
    result = await AGENT.run(TASK, context(LLM, store, scope=OWNER))
    assert "suspended" == result.stop_reason
    return store


@pytest.mark.parametrize("scope", OTHERS, ids=lambda scope: scope.key or "empty")
async def test_f115_no_other_scope_sees_decides_or_resumes_a_run(scope: Scope) -> None:
    """Reading, listing, resuming with and without a decision, deleting: not found, no trace."""
    store = await _suspended()
    own = store.scoped(OWNER)
    before = await entries_of(own)
    other = store.scoped(scope)
    ctx = context(LLM, store, scope=scope)
    checkpointer = Checkpointer(port=other)

    seen = [
        await other.head(RUN),
        await other.read(RUN) or None,
        (await other.list_runs())[0] or None,
        await checkpointer.resume(RUN, include_terminal=True),
        await checkpointer.list_versions(f"{RUN}:agent:worker") or None,
        await checkpointer.at_version(f"{RUN}:agent:worker", 1),
        await other.delete_run(RUN) or None,
    ]
    for decisions in ({}, {"q6": "skip"}):
        with pytest.raises(RunNotFound, match="does not exist"):
            await AGENT.resume(RUN, decisions, ctx)
    await checkpointer.delete(f"{RUN}:agent:worker")

    assert [None] * 7 == seen
    assert before == await entries_of(own)
    assert await other.head(RUN) is None


async def test_f115_the_same_id_in_two_scopes_is_two_runs() -> None:
    """Other task, other agent, other result: nothing collides and nothing leaks."""
    store = InMemoryCheckpointStore()
    answers = {}
    for scope in (OWNER, *OTHERS):
        agent = agent_of(name=f"agent of {scope.key}")
        ctx = context(FakeLLM(scope.key or "empty"), store, scope=scope)
        answers[scope.key] = (await agent.run(f"task of {scope.key}", ctx)).output

    assert {scope.key: scope.key or "empty" for scope in (OWNER, *OTHERS)} == answers
    assert 1 + len(OTHERS) == len(answers)
    [started] = await bodies_of(store.scoped(OWNER), e.RunStarted)
    assert ("a/u", "task of a/u") == (started.scope, started.task)


@pytest.mark.parametrize("part", ["a\nb", "\x00", "\ud800"])
async def test_f115_a_scope_that_is_no_text_is_refused(part: str) -> None:
    """It could be mistaken for another one by something that strips it."""
    ctx = context(FakeLLM("x"), InMemoryCheckpointStore(), scope=Scope(tenant=part))

    with pytest.raises(InvalidId, match="scope part"):
        await agent_of().run(TASK, ctx)
