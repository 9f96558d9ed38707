"""Every store tells a worker of a run whose waker has come, and of none that still waits."""

import pytest

from agentkit.agents import (
    add_message,
    cancel,
    pause,
    record_decisions,
    send_event,
    submit,
    unpark,
)
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeClock
from agentkit.state.journal.journal import load
from agentkit.tools import Tool, ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, then
from tests.dispatch.kit import Told, worker_of

OURS = Scope("acme", "ann/ä")


@tool(side_effecting=True)
async def send() -> str:
    """Send something."""
    return "sent"


@tool(side_effecting=False)
async def rest(ctx: ToolContext) -> str:
    """Sleep for a year."""
    await ctx.sleep(365 * 86_400)
    return "rested"


@tool(side_effecting=False)
async def payment(ctx: ToolContext) -> str:
    """Wait for the payment, at most a day."""
    return f"paid {await ctx.wait_for('payment', timeout=86_400)}"


async def _work(store: JournalPort, clock: FakeClock, uses: Tool, told: Told) -> None:
    llm = then(calls(call(uses.definition.name)))
    await worker_of([agent_of(uses)], store, told, llm=llm, clock=clock).run(until_idle=True)


async def _due(store: JournalPort) -> list[tuple[str, str]]:
    return [(one.scope, one.run) for one in await store.claimable(agents=["worker"])]


@pytest.mark.parametrize(
    ("uses", "waker"),
    [
        (send, "decision"),
        (rest, "time"),
        (payment, "event"),
        (payment, "deadline"),
        (send, "cancel of a paused run"),
        (send, "unparked"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_worker_is_told_of_a_run_when_its_waker_has_come(
    store: JournalPort, clock: FakeClock, uses: Tool, waker: str
) -> None:
    """Submitted, driven until it waits, not due meanwhile whatever the user adds; then due."""
    port, told = store.scoped(OURS), Told()
    await submit(port, RUN, TASK, agent="worker", autonomy="manual", clock=clock)
    submitted = await _due(store)
    await _work(store, clock, uses, told)
    await add_message(port, RUN, "please", clock=clock)
    waiting = await _due(store)

    if waker == "decision":
        [question] = (await load(port, RUN)).questions
        await record_decisions(port, RUN, {question.id: "approve"}, clock=clock)
    elif waker == "event":
        await send_event(port, RUN, "payment", 7, clock=clock)
    elif waker in {"time", "deadline"}:
        clock.advance(365 * 86_400 if waker == "time" else 86_400)
    else:
        await pause(port, RUN, clock=clock)
        paused = await _due(store)
        assert [] == paused
        if waker == "unparked":
            [question] = (await load(port, RUN)).questions
            await record_decisions(port, RUN, {question.id: "approve"}, clock=clock)
            assert [] == await _due(store)
            await unpark(port, RUN, clock=clock)
        else:
            await cancel(port, RUN, clock=clock)
    due = await _due(store)
    await _work(store, clock, uses, told)

    mine = [(OURS.key, RUN)]
    ends = waker == "cancel of a paused run"
    assert (mine, [], [] if ends else mine) == (submitted, waiting, due)
    assert ("cancelled" if ends else "done") == (await load(port, RUN)).status
    assert [] == await _due(store)
    assert ["suspended"] == [kind for kind, _ in told.of("suspended", "failed", "left")]
