"""The appender: its state is the fold of what is durable, whatever cuts it off."""

import asyncio

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.heads import Row
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.journal import Journal, load
from agentkit.testing.faulty import Fault, FaultyStore
from tests.agents.kit import kinds_of


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

    Without that the next entry would be chained to one that is not there, and what the first
    commit had to say would be lost.
    """
    inner = InMemoryCheckpointStore()
    store = CutOffReads(inner)
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    await Checkpointer(port=inner).snapshot("r", 1)
    store.cut_off = True

    with pytest.raises(asyncio.CancelledError):
        await journal.commit(lambda _: [e.Parked("auth", "no key")], lane="")
    await journal.commit(lambda _: [e.Failed("in place")], lane="")

    state = await load(inner, "r")
    assert ["CheckpointSaved", "Parked", "Failed"] == await kinds_of(inner)
    assert e.Failed("in place") == state.end
    assert journal.state.check == state.check


async def test_what_still_holds_is_said_though_a_note_came_first() -> None:
    """The place was taken: it is decided anew what to say, and said behind the note."""
    store = InMemoryCheckpointStore()
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    await Checkpointer(port=store).snapshot("r", 1)

    said = await journal.commit(lambda now: [e.Parked("auth", f"after {now.seq}")], lane="")

    assert [e.Parked("auth", "after 1")] == [entry.body for entry in said]
    assert ["CheckpointSaved", "Parked"] == await kinds_of(store)


async def test_what_does_not_hold_any_more_is_not_said() -> None:
    """A decision that was made before the note is not appended behind it."""
    store = InMemoryCheckpointStore()
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)
    await Checkpointer(port=store).snapshot("r", 1)

    said = await journal.commit(
        lambda now: [e.Parked("auth", "no key")] if now.seq == 0 else [], lane=""
    )

    assert [] == said
    assert ["CheckpointSaved"] == await kinds_of(store)


async def test_what_an_outage_kept_out_is_recorded_though_a_note_took_its_place() -> None:
    """An append fails for good, a note comes in, the store is back: the next commit brings both."""
    inner = InMemoryCheckpointStore()
    store = FaultyStore(inner, Fault("before", "append", error=StoreError("out")))
    lease = await store.acquire("r", "me", 15.0)
    journal = Journal(store, await load(store, "r"), clock=SystemClock(), lease=lease)

    with pytest.raises(StoreError, match="out"):
        await journal.commit(lambda _: [e.ValueRecorded(1, 0, "paid", "1")], lane="a")
    await Checkpointer(port=inner).snapshot("r", {"a": "note"})
    await journal.commit(lambda _: [e.Parked("auth", "x")], lane="b", release=lambda _: True)

    rows = await inner.read("r")
    entries = [entry for entry, _ in decode_rows(rows, after=0, before=b"", run_id="r")]
    assert [("CheckpointSaved", ""), ("ValueRecorded", "a"), ("Parked", "b")] == [
        (type(entry.body).__name__, entry.lane) for entry in entries
    ]
    assert journal.released
