"""The appender: its state is the fold of what is durable, whatever cuts it off."""

import asyncio

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import Row
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.journal import Journal, load


class CutOffReads(StoreWrapper):
    """A store whose next read, once asked for, is where the reading task is cancelled."""

    cut_off = False

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        if self.cut_off:
            self.cut_off = False
            raise asyncio.CancelledError
        return await super().read(run, after=after, limit=limit)


async def test_nothing_builds_on_entries_that_the_store_refused() -> None:
    """A note takes the place of an entry, and reading it is cut off; the next commit reads anew.

    Without that the next entry would be chained to one that is not there.
    """
    inner = InMemoryCheckpointStore()
    store = CutOffReads(inner)
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    await Checkpointer(port=inner).snapshot("r", 1)
    store.cut_off = True

    with pytest.raises(asyncio.CancelledError):
        await journal.commit(lambda _: [e.Failed("lost place")], lane="")
    await journal.commit(lambda _: [e.Failed("in place")], lane="")

    state = await load(inner, "r")
    assert (2, e.Failed("in place")) == (state.seq, state.end)
    assert journal.state.check == state.check
