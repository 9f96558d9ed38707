"""Every way into doubt times every way out of it, with one call and with several in flight."""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

import pytest

from agentkit.agents import Agent, AgentResult
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, OutcomeUnknown
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.owner import owner_id
from agentkit.tools import CannotHappen, Done, Reconciled, ToolContext, Unknown, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    entries_of,
    messages_of,
    then,
)

Way = Literal["killed", "cancelled", "replaced", "timed_out", "raised"]
WAYS: tuple[Way, ...] = ("killed", "cancelled", "replaced", "timed_out", "raised")


class Row(NamedTuple):
    """One row of the table: what the tool says, and what follows from a doubt."""

    options: dict[str, object]
    runs: int
    outcome: str
    asks: bool = False


def _looks(verdict: Reconciled) -> Callable[[], Reconciled]:
    def look() -> Reconciled:
        return verdict

    return look


DONE, CANNOT, UNKNOWN = _looks(Done("found")), _looks(CannotHappen()), _looks(Unknown())
ROWS = {
    "read": Row({"side_effecting": False}, 2, "ok"),
    "idempotent": Row({"idempotent": True}, 2, "ok"),
    "idempotent, asks": Row({"idempotent": True, "on_in_doubt": "ask"}, 1, "", asks=True),
    "has happened": Row({"reconcile": DONE}, 1, "ok"),
    "cannot happen": Row({"reconcile": CANNOT}, 2, "ok"),
    "cannot tell": Row({"reconcile": UNKNOWN}, 1, "", asks=True),
    "cannot tell, but has a key": Row({"reconcile": UNKNOWN, "idempotent": True}, 2, "ok"),
    "tells the model": Row({"on_in_doubt": "tell_model"}, 1, "in_doubt"),
    "says nothing": Row({}, 1, "", asks=True),
}


class Deed:
    """A tool whose first attempt takes effect and is never heard of again."""

    def __init__(self, row: Row, way: Way) -> None:
        self.keys: list[str] = []
        self.done = asyncio.Event()
        self._way = way

        async def act(ctx: ToolContext) -> str:
            self.keys.append(ctx.idempotency_key)
            if ctx.attempt > 1:
                return f"attempt {ctx.attempt}"
            self.done.set()
            if self._way == "raised":
                raise OutcomeUnknown("the line went dead")
            await asyncio.Event().wait()
            return "never"

        @tool(side_effecting=False)
        async def look(n: int) -> str:
            return f"look {n}"

        options = {"side_effecting": True, "timeout": 0.03 if way == "timed_out" else 60.0}
        made = tool(**{**options, **row.options})(act)  # type: ignore[arg-type]  # from the table
        self.agent: Agent = agent_of(made, look)


def _model(several: bool) -> FakeLLM:
    beside = [call("look", call_id=f"c{n}", n=n) for n in (0, 2)]
    deed = call("act", call_id="c1")
    return then(calls(beside[0], deed, beside[1]) if several else calls(deed))


async def _into_doubt(
    way: Way, deed: Deed, llm: FakeLLM
) -> tuple[InMemoryCheckpointStore, AgentResult]:
    """The first attempt is lost, and the run goes as far as it goes by itself."""
    store = InMemoryCheckpointStore()
    first = asyncio.create_task(deed.agent.run(TASK, context(llm, store)))
    if way in {"timed_out", "raised"}:
        return store, await first
    await deed.done.wait()
    if way == "killed":
        left = await entries_of(store)
        first.cancel()
        await asyncio.wait([first])
        store = await dead_worker(left)
    else:
        await (_cancelled if way == "cancelled" else _replaced)(store, first)
    return store, await deed.agent.run(TASK, context(llm, store))


async def _cancelled(_: InMemoryCheckpointStore, first: asyncio.Task[AgentResult]) -> None:
    first.cancel()
    await asyncio.wait([first])


async def _replaced(store: InMemoryCheckpointStore, first: asyncio.Task[AgentResult]) -> None:
    """Another worker takes the run and dies; the first one notices at its next append."""
    head = await store.head(RUN)
    assert head is not None
    await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=head.epoch)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled() or isinstance(first.exception(), LeaseLost)


@pytest.mark.parametrize("several", [False, True], ids=["alone", "among others"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
async def test_each_doubt_ends_as_its_tool_allows(name: str, way: Way, several: bool) -> None:
    """However it came about: run again, found out, told, or asked, once, and never both; the calls
    beside it keep their results, and the model gets all of them in call order.
    """
    row, llm = ROWS[name], _model(several)
    deed = Deed(row, way)

    store, result = await _into_doubt(way, deed, llm)

    if name == "read" and way in {"timed_out", "raised"}:  # no doubt: it changed nothing
        row = Row(row.options, 1, "error")
    assert row.runs == len(deed.keys)
    assert 1 == len(set(deed.keys))
    asked = result.suspended.questions if result.suspended is not None else ()
    assert [one.tool for one in asked] == (["act"] if row.asks else [])
    if row.asks:
        result = await deed.agent.resume(RUN, {asked[0].id: "skip"}, context(llm, store))
    assert "done" == result.output
    messages = await messages_of(store)
    assert_valid(messages)
    index = 1 if several else 0
    shown = [message.content for message in messages if message.role == "tool"]
    assert [f"look {n}" for n in (0, 2)] == shown[:index] + shown[index + 1 :] or not several
    outcomes = [one for one in await bodies_of(store, e.ToolFinished) if one.index == index]
    assert (row.outcome or "skipped") == outcomes[-1].outcome
    assert row.runs == len(deed.keys)
