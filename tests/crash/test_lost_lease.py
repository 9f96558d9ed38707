"""A drive that loses an append to another one stops at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import pytest

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Message, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.invariants import read_rows
from agentkit.tools import tool

TASK = "Go on."


class Stolen(StoreWrapper):
    """Another drive takes the run over right before the n-th append, as if the check of the first
    one's lease had failed to keep it out.
    """

    def __init__(self, inner: JournalPort, *, before: int) -> None:
        super().__init__(inner)
        self.before = before
        self.after_loss: Counter[str] = Counter()
        self._count: Counter[str] = Counter()  # shared by all views, as numbers are not

    @property
    def lost(self) -> bool:
        """Whether the other drive has it."""
        return self._count["lost"] > 0

    @property
    def length(self) -> int:
        """How long the journal was when the other drive took it."""
        return self._count["length"]

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
        self._count["append"] += 1
        if self.lost and lease is not None:
            self.after_loss["append"] += 1
        if self._count["append"] == self.before and lease is not None:
            taken = await self.inner.acquire(run, "another worker", 15.0, supersede=lease.epoch)
            self._count["length"] = taken.head.seq
            self._count["lost"] += 1
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


@pytest.mark.parametrize("before", range(2, 9))
@pytest.mark.parametrize("door", ["run", "stream"])
async def test_f061_after_its_first_lost_append_a_drive_does_nothing_more(
    before: int, door: Literal["run", "stream"]
) -> None:
    """F061: whichever append is lost, the drive asks no model, starts no tool and appends nothing
    after it; it ends with `LeaseLost`, and leaves at most a note of what its tools returned.
    """
    inner = InMemoryCheckpointStore()
    store = Stolen(inner, before=before)

    def answer(messages: Sequence[Message]) -> Turn:
        if store.lost:
            store.after_loss["model"] += 1
        turn = sum(message.role == "assistant" for message in messages)
        if turn == 3:
            return Turn("done")
        fast, slow = ToolCall("c1", "act", {"n": turn}), ToolCall("c2", "act", {"n": -1 - turn})
        return Turn("", tool_calls=(fast, slow))

    @tool(side_effecting=True)
    async def act(n: int) -> str:
        if store.lost:
            store.after_loss["tool"] += 1
        for _ in range(10 if n < 0 else 0):
            await asyncio.sleep(0)
        return str(n)

    agent = Agent("a", cognition=ReActCognition([act]))
    services = Services(invoker=Invoker(FakeLLM(answer)), checkpointer=Checkpointer(port=store))
    context = RunContext(correlation_id="r", services=services)

    async def go() -> None:
        if door == "run":
            await agent.run(TASK, context)
        else:
            async for _ in agent.stream(TASK, context):
                pass

    with pytest.raises(LeaseLost):
        await go()

    assert store.lost
    assert {} == dict(store.after_loss)
    head = await inner.head("r")
    assert head is not None
    rows = await read_rows(inner, "r")
    assert ("another worker", len(rows)) == (head.owner, head.seq)
    after = rows[store.length - 1].check if store.length else b""
    notes = decode_rows(rows[store.length :], after=store.length, before=after, run_id="r")
    assert all(isinstance(entry.body, e.OutcomeReported) for entry, _ in notes)
