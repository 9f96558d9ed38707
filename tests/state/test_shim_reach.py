"""What a five-method store gives: everything but fencing and listing."""

import warnings

import pytest

from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, RunNotFound, StoreDamaged, StoreMisused
from agentkit.core.contracts.ports import Checkpoint
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.checkpoints.shim import ShimJournal, UnfencedStoreWarning
from agentkit.state.journal.journal import Journal, append_note, load
from agentkit.state.journal.lease import LEASE_SECONDS
from agentkit.state.journal.owner import owner_id
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, entries_of, then
from tests.state.test_shim import FiveMethods

pytestmark = pytest.mark.filterwarnings(
    "ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning"
)


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


async def _stopped_after_a_step(port: FiveMethods, *, scope: Scope | None = None) -> None:
    stream = agent_of(look).stream(TASK, context(then(calls(call("look"))), port, scope=scope))
    async for event in stream:
        if event.type == "step":
            break
    await stream.aclose()


async def test_each_step_is_in_the_slot_where_its_author_looks() -> None:
    """After a step the producer's own slot has version 1; a finished run leaves only `:done`."""
    port = FiveMethods()
    slot = ReActCognition.checkpoint_slot(RUN, "worker")

    await _stopped_after_a_step(port)
    versions = await Checkpointer(port=port).list_versions(slot)
    result = await agent_of(look).run(TASK, context(then(calls(call("look"))), port))

    assert [1] == versions
    assert "done" == result.output
    assert [f"{RUN}:done"] == sorted(port.slots)


async def test_a_process_that_never_saw_the_run_carries_it_on() -> None:
    """All that a run is lies in the five-method store: a copy of it is enough."""
    port = FiveMethods()
    await _stopped_after_a_step(port)
    elsewhere = FiveMethods(port.slots)
    llm = then(calls(call("look")))

    result = await agent_of(look).resume(RUN, {}, context(llm, elsewhere))
    again = await agent_of(look).run(TASK, context(llm, FiveMethods(port.slots)))

    assert ("done", 2) == (result.output, result.usage.requests)
    assert result == again
    assert 1 == len(llm.requests)


async def test_a_note_leaves_the_lease_where_it_is() -> None:
    """A worker died while it asked the model, after somebody's note. Who takes over in another
    process sees that it died, and lists the answer that it may have bought.
    """
    port, clock = FiveMethods(), SystemClock()
    shim = ShimJournal.over(port)
    recorded = InMemoryCheckpointStore()
    await agent_of(look).run(TASK, context(then([]), recorded))
    lease = await shim.acquire(RUN, owner_id("d-dead"), LEASE_SECONDS)
    journal = Journal(shim, await load(shim, RUN), clock=clock, lease=lease)
    started = [entry.body for entry in (await entries_of(recorded))[:2]]
    await journal.commit(lambda _: started, lane="")
    saved = e.CheckpointSaved(1, "running", "{}")
    await append_note(
        shim, RUN, lambda _: [saved], note_id="n", lane=agent_lane("worker"), clock=clock
    )

    result = await agent_of(look).run(TASK, context(then([]), FiveMethods(port.slots)))

    assert ("done", 1) == (result.output, result.usage.unknown)


async def test_runs_of_two_scopes_share_a_store_and_nothing_else() -> None:
    """The same run id in two scopes is two runs; one scope sees nothing of the other."""
    port = FiveMethods()
    other = Scope(tenant="a/b", user="c")

    await _stopped_after_a_step(port, scope=other)

    with pytest.raises(RunNotFound):
        await agent_of(look).resume(RUN, {}, context(then([]), port))
    result = await agent_of(look).resume(
        RUN, {}, context(then(calls(call("look"))), port, scope=other)
    )
    assert "done" == result.output


async def test_a_second_process_that_wrote_is_noticed_at_the_next_append() -> None:
    """Five methods cannot keep it out; the run stops instead of writing over it."""
    port = FiveMethods()
    agent = agent_of(look)
    stream = agent.stream(TASK, context(then(calls(call("look"))), port))
    await anext(stream)
    versions = port.slots[f"{RUN}:journal"]
    newest = versions[max(versions)]
    versions[max(versions) + 1] = Checkpoint(
        newest.slot, newest.version + 1, newest.status, newest.state
    )

    with pytest.raises(StoreMisused, match="another process"):
        async for _ in stream:
            pass


async def test_what_is_not_a_journal_of_ours_is_damage() -> None:
    """Somebody else's data under our slot name is told as such, with the slot."""
    port = FiveMethods({f"{RUN}:journal": {1: Checkpoint(f"{RUN}:journal", 1, "running", 7)}})

    with pytest.raises(StoreDamaged, match=f"{RUN}:journal"):
        await agent_of(look).run(TASK, context(then([]), port))


async def test_a_run_is_deleted_with_all_its_slots() -> None:
    """Nothing of it stays in the five-method store."""
    port = FiveMethods()
    await _stopped_after_a_step(port)
    journal = ShimJournal.over(port)

    assert await journal.delete_run(RUN)
    assert {} == port.slots
    assert not await journal.delete_run(RUN)


async def test_five_methods_cannot_list_runs() -> None:
    """The error says which store cannot and which can."""
    journal = ShimJournal.over(FiveMethods())

    with pytest.raises(StoreMisused, match="FiveMethods cannot list runs"):
        await journal.list_runs()


async def test_the_slot_methods_are_the_stores_own() -> None:
    """What is saved through the shim is what the store's author sees, and the other way round."""
    port = FiveMethods()
    journal = ShimJournal.over(port)
    saved = Checkpoint("mine", 1, "running", {"a": 1})

    await journal.save(saved)

    assert saved == await port.latest("mine") == await journal.latest("mine")
    assert saved == await journal.at_version("mine", 1)
    assert [1] == await journal.list_versions("mine")
    await journal.delete("mine")
    assert {} == port.slots


async def test_leases_hold_within_the_process() -> None:
    """One lease at a time for the runs of one store object; a renewal extends it."""
    port = FiveMethods()
    journal = ShimJournal.over(port)
    lease = await journal.acquire(RUN, "me", LEASE_SECONDS)

    renewed = journal.renew({"a": lease})

    assert not renewed["a"].lost
    assert ShimJournal.over(port) is journal


async def test_an_object_without_the_five_methods_is_refused() -> None:
    """The error lists the methods that a store needs."""

    class Half:
        async def save(self, checkpoint: Checkpoint) -> None:
            raise NotImplementedError

    with pytest.raises((StoreMisused, InvalidSpec), match="list_versions"):
        ShimJournal.over(Half())  # type: ignore[arg-type] # that is the point


async def test_the_missing_fence_is_told_once_for_each_kind_of_store() -> None:
    """The second store of the same class does not warn again."""

    class Unheard(FiveMethods):
        pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = ShimJournal.over(Unheard())
        second = ShimJournal.over(Unheard())

    assert first is not second
    assert [UnfencedStoreWarning] == [warning.category for warning in caught]
