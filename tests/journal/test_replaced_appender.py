"""An appender that reads of its own replacement before the store has refused it anything."""

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost
from agentkit.core.contracts.heads import Row
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, load
from tests.agents.kit import kinds_of


class TakenWhileRead(StoreWrapper):
    """A store whose next read, once asked for, comes after another worker has taken the run."""

    taking = False

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Forward, a takeover later."""
        if self.taking:
            self.taking = False
            head = await self.inner.head(run)
            assert head is not None
            lease = await self.inner.acquire(run, "another", 15.0, supersede=head.epoch)
            other = Journal(
                self.inner, await load(self.inner, run), clock=SystemClock(), lease=lease
            )
            await other.commit(lambda _: [e.LeaseTaken("another", "takeover", 1)], lane="")
        return await super().read(run, after=after, limit=limit)


async def test_nothing_is_decided_on_a_state_that_another_worker_has_moved_on() -> None:
    """A note moves the head, and before it is read the run is taken over: `LeaseLost`, as if the
    store had refused the append; what this worker wanted to say is not asked again.
    """
    inner = InMemoryCheckpointStore()
    store = TakenWhileRead(inner)
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    await Checkpointer(port=inner).snapshot("r", 1)
    store.taking = True
    asked: list[int] = []

    def build(state: RunState) -> list[e.Body]:
        asked.append(state.epoch)
        return [e.Parked("auth", "no key")]

    with pytest.raises(LeaseLost):
        await journal.commit(build, lane="")

    assert journal.fenced
    assert [0] == asked
    assert ["CheckpointSaved", "LeaseTaken"] == await kinds_of(inner)


async def test_a_takeover_that_was_read_on_the_side_stops_the_next_append() -> None:
    """Reading the news finds it, whoever reads; the append that comes next decides nothing on the
    successor's state.
    """
    inner = InMemoryCheckpointStore()
    store = TakenWhileRead(inner)
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    store.taking = True
    with pytest.raises(LeaseLost):
        await journal.refresh()
    asked: list[int] = []

    def build(state: RunState) -> list[e.Body]:
        asked.append(state.epoch)
        return [e.Parked("auth", "no key")]

    with pytest.raises(LeaseLost):
        await journal.commit(build, lane="")

    assert [] == asked
    assert ["LeaseTaken"] == await kinds_of(inner)
