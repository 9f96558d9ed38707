"""Nothing is told, answered or done before the COMMIT that makes it true has returned."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from agentkit.agents import AgentEvent
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.testing.crash import CrashPlan
from agentkit.testing.crash.scenario import TASK, Folder, make_agent
from agentkit.testing.invariants import read_rows

HELD_SECONDS = 0.3
BOUND_SECONDS = 20.0


class Gate(StoreWrapper):
    """Holds the n-th append back until it is opened, as a COMMIT that does not return."""

    def __init__(self, inner: JournalPort, *, at: int) -> None:
        super().__init__(inner)
        self.at = at
        self.appends: list[int] = []
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        self.appends.append(after)
        if len(self.appends) == self.at:
            self.reached.set()
            await self.opened.wait()
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


async def _quiet() -> None:
    """Let everything run that can run without the held append."""
    for _ in range(200):
        await asyncio.sleep(0)


async def _held_at(number: int, folder: Folder) -> bool:
    """Hold the n-th append of a run; whether there was one."""
    inner = InMemoryCheckpointStore()
    store = Gate(inner, at=number)
    agent, context = make_agent(store, CrashPlan(), folder, run="r1")
    told: list[AgentEvent] = []

    async def consume() -> None:
        async for event in agent.stream(TASK, context):
            told.append(event)  # noqa: PERF401 - to be seen as they come

    consuming = asyncio.create_task(consume())
    reached = asyncio.create_task(store.reached.wait())
    await asyncio.wait({consuming, reached}, return_when=asyncio.FIRST_COMPLETED)
    if not store.reached.is_set():
        await consuming
        return False
    await _quiet()
    durable = await read_rows(inner, "r1")
    ids = [event.id for event in told if event.id is not None]
    started = sum(b'"tool_started"' in row.body for row in durable)
    answered = sum(b'"model_answered"' in row.body for row in durable)
    runs = [effect for effect in folder.effects.read() if effect.kind == "run"]
    asked = [line for line in folder.answers.read() if line["kind"] == "asked"]

    assert len(durable) == store.appends[-1]
    assert all(seq <= len(durable) for seq in ids)
    assert not any(event.result for event in told)
    assert len(runs) <= started, "a tool was called before its intent was durable"
    assert len(asked) <= answered + 1, "the model was asked before its last answer was durable"
    assert bool(durable) or not asked
    store.opened.set()
    await asyncio.wait_for(consuming, BOUND_SECONDS)
    assert told[-1].result is not None
    return True


async def test_nothing_comes_out_while_any_append_of_a_run_is_held_back(tmp_path: Path) -> None:
    """For every append of a run: while it has not returned, no event of it, no tool that it
    allows, no request that builds on it and no result is seen.
    """
    number = 0
    while True:
        number += 1
        path = tmp_path / str(number)
        path.mkdir()
        if not await _held_at(number, Folder(path)):
            break
    assert number > 7


@pytest.mark.parametrize("events_before", [0, 6, 14])
async def test_nothing_comes_out_of_sqlite_while_another_holds_the_write_lock(
    tmp_path: Path, events_before: int
) -> None:
    """A second connection holds the lock of the file, so that no COMMIT can return: the stream
    tells nothing durable, and goes on as soon as the lock is free.
    """
    folder = Folder(tmp_path)
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    assert [] == await store.read("r1")
    agent, context = make_agent(store, CrashPlan(), folder, run="r1")
    stream = agent.stream(TASK, context)
    for _ in range(events_before):
        await anext(stream)
    lock = apsw.Connection(str(tmp_path / "runs.db"))
    lock.execute("BEGIN IMMEDIATE")
    before = await read_rows(store, "r1")
    told: list[AgentEvent] = []

    async def consume() -> None:
        async for event in stream:
            told.append(event)  # noqa: PERF401 - to be seen as they come

    consuming = asyncio.create_task(consume())
    await asyncio.wait({consuming}, timeout=HELD_SECONDS)

    assert not consuming.done()
    assert before == await read_rows(store, "r1")
    assert not [event for event in told if (event.id or 0) > len(before)]
    lock.execute("ROLLBACK")
    lock.close()
    await asyncio.wait_for(consuming, BOUND_SECONDS)
    assert told[-1].result is not None
    assert "completed" == told[-1].result.stop_reason
    await store.aclose()
