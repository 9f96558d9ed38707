"""Stores full of real runs, for what moves, keeps and removes them."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit.agents import Agent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row, Summary
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import JSON, CallRecord, Scope, ToolCall
from agentkit.core.testing import FakeClock
from agentkit.state.journal.codec import checksum
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal
from agentkit.state.upkeep import Moved, Selection, copy_runs, export_runs, header_now, import_runs
from agentkit.tools import tool
from tests.agents.kit import agent_of, calls, context, then

TASK = "Send it."
DEAD = "a worker elsewhere"


@tool(side_effecting=True)
async def send(item: str = "a") -> str:
    """Send something."""
    return f"sent {item}"


@tool(side_effecting=False)
async def look() -> dict[str, JSON]:
    """Look."""
    return {"seen": ["ä", "\x00", 2**64, "\u2028"]}


SENDER: Agent = agent_of(send, look)


async def finished(store: JournalPort, run: str, *, scope: Scope | None = None) -> None:
    """A run of two turns that has ended."""
    turns = [calls(ToolCall("1", "look")), calls(ToolCall("2", "send", {"item": run}))]
    llm = then(turns, "done: " + run)
    await SENDER.run(TASK, context(llm, store, run_id=run, scope=scope))


async def interrupted(
    store: JournalPort, run: str, *, scope: Scope | None = None, owner: str = DEAD
) -> None:
    """A run whose worker vanished while it made `send`; its lease lapses 15 s later."""
    view = store.scoped(scope or Scope())
    clock = FakeClock()
    lease = await view.acquire(run, owner, 15.0)
    journal = Journal(view, RunState(run), clock=clock, lease=lease)
    started = e.RunStarted(TASK, "worker", "fake", "Work.", (), "", "nonce")
    answer = e.ModelAnswered(1, "", (CallRecord("1", "send", '{"item":"a"}'),))
    intent = e.ToolStarted(1, 0, "send", "digest", "key")
    taken = e.LeaseTaken(owner, "start")
    await journal.commit(lambda _: [started, taken], lane="")
    await journal.commit(lambda _: [answer, intent], lane="agent:worker")


async def newer(store: JournalPort, run: str) -> None:
    """A run that a newer release wrote, with an entry of a kind that this one does not know."""
    body = b'[1,"",1,"",1,{"type":"telepathy"}]'
    lease = await store.acquire(run, "worker", 15.0)
    row = Row(1, body, checksum(b"", body))
    await store.append(run, [row], after=0, lease=lease, summary=Summary("running"), release=True)


async def rows_of(store: JournalPort, run: str, scope: Scope | None = None) -> list[Row]:
    """The stored bytes of a run."""
    return await store.scoped(scope or Scope()).read(run)


async def copied(
    source: JournalPort,
    destination: JournalPort,
    *runs: str,
    tenant: str | None = None,
    clock: ClockPort | None = None,
) -> list[Moved]:
    """What a copy says of each run."""
    selection = Selection(runs, tenant)
    clock = clock or FakeClock()
    return [one async for one in copy_runs(source, destination, selection, clock=clock)]


async def exported(store: JournalPort, *runs: str) -> list[bytes]:
    """The lines of an export."""
    lines: list[bytes] = []
    clock = FakeClock()
    header = header_now(store, clock=clock)
    async for _ in export_runs(store, lines.append, Selection(runs), header=header, clock=clock):
        pass
    return lines


async def imported(
    lines: Iterable[bytes], store: JournalPort, *, clock: ClockPort | None = None
) -> list[Moved]:
    """What an import says of each run."""
    return [one async for one in import_runs(lines, store, clock=clock or FakeClock())]


def outcomes(moved: Iterable[Moved]) -> dict[str, str]:
    """What became of each run, by its id: an outcome, or the name of an error."""
    return {one.run: type(one.error).__name__ if one.error else one.outcome for one in moved}
