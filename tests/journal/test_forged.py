"""Entries that are intact and say what cannot be: damage with its position, never a bare error."""

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import JournalDamaged
from agentkit.core.contracts.heads import Summary
from agentkit.core.contracts.types import CallRecord
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.codec import encode_entry
from agentkit.state.journal.journal import load

STARTED = e.RunStarted("Work.", "worker", "fake", "", (), "", "nonce")
ANSWER = e.ModelAnswered(1, "", (CallRecord("1", "look", "{}"),))


@pytest.mark.parametrize(("turn", "index"), [(1, 1), (1, -1), (1, 7), (2, 0)], ids=str)
async def test_a_fork_that_changes_a_call_that_is_not_there_is_damage(
    turn: int, index: int
) -> None:
    """The error says at which entry, and that those before it can be read."""
    edit = e.ResultEdit(turn, index, "another result")
    store = await stored(STARTED, ANSWER, e.Forked("parent", 1, "new", (edit,)))

    with pytest.raises(JournalDamaged, match="a call that is not there") as damaged:
        await load(store, "r")

    assert ("r", 3) == (damaged.value.run_id, damaged.value.seq)


async def test_a_fork_of_a_run_that_asked_nothing_changes_no_result() -> None:
    """There is no turn that the edit could be of."""
    store = await stored(STARTED, e.Forked("parent", 1, "new", (e.ResultEdit(1, 0, "x"),)))

    with pytest.raises(JournalDamaged) as damaged:
        await load(store, "r")

    assert 2 == damaged.value.seq


async def stored(*bodies: e.Body) -> InMemoryCheckpointStore:
    """A store in which run `r` has these entries, in the worker's lane."""
    store = InMemoryCheckpointStore()
    lease = await store.acquire("r", "forger", 15.0)
    rows, before = [], b""
    for seq, body in enumerate(bodies, 1):
        entry = e.Entry(seq, "", lease.epoch, "agent:worker", 0, body)
        rows.append(encode_entry(entry, before=before, run_id="r"))
        before = rows[-1].check
    await store.append("r", rows, after=0, lease=lease, summary=Summary("running"))
    return store
