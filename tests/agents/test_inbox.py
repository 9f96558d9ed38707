"""What waits for a person, over all the runs of a store."""

import asyncio

import msgspec
import pytest

from agentkit.agents import cancel, open_questions, pause, record_decisions
from agentkit.core.contracts.errors import JournalDamaged, StoreMisused
from agentkit.core.contracts.heads import Row, RunSummary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.checkpoints.shim import ShimJournal
from agentkit.tools import tool
from tests.agents.kit import TASK, agent_of, call, calls, context, then
from tests.corpus.make import _FiveMethods


@tool(side_effecting=True, requires_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool(side_effecting=True, requires_approval=True, approval_seconds=60)
async def soon(cents: int) -> str:
    """Pay, if it is agreed to soon."""
    return f"paid {cents}"


async def _asks(
    store: JournalPort, run: str, *names: str, scope: Scope | None = None, clock: FakeClock
) -> None:
    """A run that waits for an approval of each of these tools."""
    asked = [call(name, call_id=f"c{at}", cents=at) for at, name in enumerate(names)]
    here = context(then([calls(*asked)]), store, run_id=run, scope=scope, clock=clock)
    result = await agent_of(pay, soon).run(TASK, here)
    assert "suspended" == result.stop_reason
    clock.advance(1)


async def test_the_next_deadline_comes_first_then_the_oldest_run() -> None:
    """Runs that have ended, or wait for nobody, are not there; a paused one is."""
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    await _asks(store, "b", "pay", "pay", clock=clock)
    await _asks(store, "a", "pay", "soon", clock=clock)
    await _asks(store, "gone", "pay", clock=clock)
    await cancel(store, "gone", clock=clock)
    await pause(store, "b", clock=clock)
    await record_decisions(store, "b", {"q4": "approve"}, clock=clock)

    inbox = await open_questions(store)

    found = [(one.run, one.question.tool, one.status) for one in inbox.questions]
    assert [
        ("a", "soon", "suspended"),
        ("b", "pay", "parked"),
        ("a", "pay", "suspended"),
    ] == found
    assert {("worker", "")} == {(one.agent, one.scope) for one in inbox.questions}
    assert [] == inbox.unreadable


async def test_a_question_is_there_while_other_calls_are_under_way() -> None:
    """The summary does not tell it, so the journal is read."""
    store, begun, go = InMemoryCheckpointStore(), asyncio.Event(), asyncio.Event()

    @tool(side_effecting=False)
    async def look() -> str:
        """Look."""
        begun.set()
        await go.wait()
        return "seen"

    asked = calls(call("pay", call_id="a", cents=1), call("look", call_id="b"))
    running = asyncio.create_task(agent_of(pay, look).run(TASK, context(then(asked), store)))
    await begun.wait()
    under_way = await open_questions(store)
    go.set()
    await running

    assert [("running", "pay")] == [(one.status, one.question.tool) for one in under_way.questions]


async def test_scopes_are_apart_unless_all_are_asked_for() -> None:
    """Of one tenant, or of all, whoever the user is."""
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    for number, scope in enumerate((Scope(), Scope("acme"), Scope("acme", "ann"), Scope("bolt"))):
        await _asks(store, f"r{number}", "pay", scope=scope, clock=clock)

    own = await open_questions(store)
    theirs = await open_questions(store.scoped(Scope("acme")))
    tenant = await open_questions(store, every_scope=True, tenant="acme")
    every = await open_questions(store, every_scope=True)

    assert ["r0"] == [one.run for one in own.questions]
    assert ["r1"] == [one.run for one in theirs.questions]
    assert [("r1", "acme"), ("r2", "acme/ann")] == [
        (one.run, one.scope) for one in tenant.questions
    ]
    assert ["r0", "r1", "r2", "r3"] == [one.run for one in every.questions]


class _Hurt(StoreWrapper):
    """Lists what cannot be decoded, and reads damaged entries of the run `bad`."""

    async def list_runs(self, **given: object) -> tuple[list[RunSummary], str]:
        """Forward, with other details."""
        page, cursor = await super().list_runs(**given)  # type: ignore[arg-type]  # forwards
        spoilt = [
            msgspec.structs.replace(
                one, summary=msgspec.structs.replace(one.summary, detail=b"nothing")
            )
            for one in page
        ]
        return spoilt, cursor

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Forward, and flip."""
        rows = await super().read(run, after=after, limit=limit)
        return [Row(one.seq, one.body, b"x" * 8) for one in rows] if run == "bad" else rows


async def test_a_run_that_cannot_be_read_is_told_and_hides_no_other() -> None:
    """Where a summary says nothing the journal is read; where that is damaged, it is named."""
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    for run in ("bad", "good"):
        await _asks(store, run, "pay", clock=clock)

    inbox = await open_questions(_Hurt(store))

    assert ["good"] == [one.run for one in inbox.questions]
    [told] = inbox.unreadable
    assert "bad" == told.run
    assert isinstance(told.error, JournalDamaged)


@pytest.mark.filterwarnings("ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning")
async def test_a_store_that_cannot_list_says_so() -> None:
    """One of somebody's own with five methods."""
    store = ShimJournal.over(_FiveMethods())

    with pytest.raises(StoreMisused):
        await open_questions(store)
