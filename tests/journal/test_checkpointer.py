"""`Checkpointer`: numbered snapshots of one's own, and the checkpoints that an agent leaves."""

import asyncio
import math
from typing import Any

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    NoteRefused,
    ResultNotStorable,
    RunInUse,
    StoreMisused,
    VersionTaken,
)
from agentkit.core.contracts.ports import Checkpoint, CheckpointPort, CheckpointStatus
from agentkit.core.contracts.types import JSON
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, died_after, then

SLOT = f"{RUN}:agent:worker"


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    return "sent"


AGENT = agent_of(look, send)


@pytest.fixture
def store() -> InMemoryCheckpointStore:
    """An empty store."""
    return InMemoryCheckpointStore()


async def _two_steps(store: InMemoryCheckpointStore, clock: FakeClock | None = None) -> None:
    """A run that was left after its second step."""
    llm = then([calls(call("look")), calls(call("look"))])
    stream = AGENT.stream(TASK, context(llm, store, clock=clock))
    async for event in stream:
        if event.text == "iteration:2":
            break
    await stream.aclose()


# --- one's own snapshots --------------------------------------------------------------------------


async def test_snapshots_are_numbered_from_one(store: InMemoryCheckpointStore) -> None:
    """Each is kept; the newest is what work resumes from."""
    checkpointer = Checkpointer(port=store)

    saved = [await checkpointer.snapshot("job", {"n": n}) for n in range(3)]

    assert [1, 2, 3] == [one.version for one in saved] == await checkpointer.list_versions("job")
    assert saved[2] == await checkpointer.resume("job")
    assert saved[0] == await checkpointer.at_version("job", 1)
    assert await checkpointer.at_version("job", 4) is None


@pytest.mark.parametrize("run_id", ["a:b", "{x}", "50%", "50%23", "#1", "a:agent:b", "r:plan", "ü"])
async def test_any_id_can_be_snapshotted_again_and_again(
    run_id: str, store: InMemoryCheckpointStore
) -> None:
    """Also one that is written differently as a slot."""
    checkpointer = Checkpointer(port=store)

    for n in range(3):
        await checkpointer.snapshot(run_id, n)

    newest = await checkpointer.resume(run_id)
    assert [1, 2, 3] == await checkpointer.list_versions(run_id)
    assert newest is not None
    assert 2 == newest.state


async def test_created_at_is_the_injected_clock_s(store: InMemoryCheckpointStore) -> None:
    """To the second it shows, also when the clock steps back; the order is by version."""
    clock = FakeClock(1_000.5)
    checkpointer = Checkpointer(port=store, clock=clock)
    first = await checkpointer.snapshot("job", 1)
    clock.set_now(10.25)

    second = await checkpointer.snapshot("job", 2)

    assert (1_000.5, 10.25) == (first.created_at, second.created_at)
    assert second == await checkpointer.resume("job")


async def test_f111_saves_within_one_tick_are_told_apart_by_number(
    store: InMemoryCheckpointStore,
) -> None:
    """Beyond nine too, where text would sort wrongly."""
    checkpointer = Checkpointer(port=store, clock=FakeClock())

    for n in range(1, 13):
        await checkpointer.snapshot("job", n)

    newest = await checkpointer.resume("job")
    assert newest is not None
    assert (12, 12) == (newest.version, newest.state)


@pytest.mark.parametrize("status", [CheckpointStatus.DONE, CheckpointStatus.FAILED])
async def test_terminal_snapshots_are_hidden_unless_asked_for(
    status: str, store: InMemoryCheckpointStore
) -> None:
    """A finished job is not resumed by mistake."""
    checkpointer = Checkpointer(port=store)
    await checkpointer.snapshot("job", 1)
    last = await checkpointer.snapshot("job", 2, status=status)

    assert await checkpointer.resume("job") is None
    assert last == await checkpointer.resume("job", include_terminal=True)


async def test_two_savers_of_one_version_collide(store: InMemoryCheckpointStore) -> None:
    """The reference page's collision: one wins, the other gets a clear error, nothing is lost."""
    first = Checkpoint("job", 1, "running", "first")
    await store.save(first)

    with pytest.raises(VersionTaken, match="at version 1 already"):
        await store.save(Checkpoint("job", 1, "running", "second"))

    assert first == await store.latest("job")


async def test_savers_at_once_never_overwrite_each_other(store: InMemoryCheckpointStore) -> None:
    """Of twenty, each that was told yes has its own version."""
    checkpointer = Checkpointer(port=store)

    results = await asyncio.gather(
        *(checkpointer.snapshot("job", n) for n in range(20)), return_exceptions=True
    )

    saved = [one for one in results if isinstance(one, Checkpoint)]
    refused = [one for one in results if isinstance(one, BaseException)]
    assert saved
    assert all(isinstance(one, VersionTaken) for one in refused)
    for one in saved:
        assert one == await checkpointer.at_version("job", one.version)
    assert len(saved) == len(await checkpointer.list_versions("job"))


@pytest.mark.parametrize("state", [None, False, 0, "", [], {}, "a\x00", 2**64, {"a": [1.5, None]}])
async def test_any_state_comes_back_as_it_was(state: JSON, store: InMemoryCheckpointStore) -> None:
    """Falsy ones and the ones that JSON has no room for included."""
    checkpointer = Checkpointer(port=store)

    await checkpointer.snapshot("job", state)

    found = await checkpointer.resume("job")
    assert found is not None
    assert (state, type(state)) == (found.state, type(found.state))


async def test_what_is_returned_is_what_will_be_read(store: InMemoryCheckpointStore) -> None:
    """A tuple is a list from the start, NaN is NaN."""
    checkpointer = Checkpointer(port=store)

    saved = await checkpointer.snapshot("job", {"pair": (1, 2), "nan": math.nan})  # type: ignore[dict-item]  # the point

    found = await checkpointer.resume("job")
    assert found is not None
    for one in (saved, found):
        assert isinstance(one.state, dict)
        assert [1, 2] == one.state["pair"]
        assert math.isnan(one.state["nan"])  # type: ignore[arg-type]  # a float


async def test_a_state_that_cannot_be_kept_is_refused(store: InMemoryCheckpointStore) -> None:
    """With the path; nothing is saved."""
    with pytest.raises(ResultNotStorable, match=r"\$\.a"):
        await Checkpointer(port=store).snapshot("job", {"a": object()})  # type: ignore[dict-item]  # the point

    assert await store.head("job") is None


async def test_an_unknown_status_is_refused(store: InMemoryCheckpointStore) -> None:
    """A word that nobody would ever filter by."""
    with pytest.raises(StoreMisused, match="no checkpoint status"):
        await Checkpointer(port=store).snapshot("job", 1, status="finished")


async def test_delete_forgets_the_slot(store: InMemoryCheckpointStore) -> None:
    """Numbers begin again, and deleting what is not there is no error."""
    checkpointer = Checkpointer(port=store)
    await checkpointer.snapshot("job", 1)

    await checkpointer.delete("job")
    await checkpointer.delete("job")

    assert [] == await checkpointer.list_versions("job")
    assert 1 == (await checkpointer.snapshot("job", 2)).version


async def test_a_store_is_a_checkpoint_port(store: InMemoryCheckpointStore) -> None:
    """The small port of the reference page is part of the full one."""
    assert isinstance(store, CheckpointPort)


# --- what an agent leaves -------------------------------------------------------------------------


async def test_an_agents_checkpoint_holds_messages_usage_and_iteration(
    store: InMemoryCheckpointStore,
) -> None:
    """The run id stands for its agent's slot; `created_at` is the run's clock."""
    clock = FakeClock(500.0)
    await _two_steps(store, clock)
    checkpointer = Checkpointer(port=store)

    by_run, by_slot = await checkpointer.resume(RUN), await checkpointer.resume(SLOT)

    assert by_run is not None
    assert by_run == by_slot
    assert (SLOT, 2, "running", 2, 500.0) == (
        by_run.slot,
        by_run.version,
        by_run.status,
        by_run.iteration,
        by_run.created_at,
    )
    state = _loop_state(by_run)
    assert ["user", "assistant", "tool", "assistant", "tool"] == [
        message["role"] for message in state["messages"]
    ]
    usage = {key: value for key, value in state["usage"].items() if value}
    assert {"input_tokens": 20, "output_tokens": 10, "requests": 2} == usage


async def test_at_version_shows_the_state_of_that_step(store: InMemoryCheckpointStore) -> None:
    """Time travel: version 1 knows nothing of what came later."""
    await _two_steps(store)

    first = await Checkpointer(port=store).at_version(SLOT, 1)

    assert first is not None
    assert (1, 3) == (first.iteration, len(_loop_state(first)["messages"]))


async def test_a_finished_run_hides_its_versions_and_shows_its_end_when_asked(
    store: InMemoryCheckpointStore,
) -> None:
    """`resume()` is None, no versions, and DONE with the result for an audit view."""
    llm = then([calls(call("look"))], "the answer")
    await AGENT.run(TASK, context(llm, store))
    checkpointer = Checkpointer(port=store)

    last = await checkpointer.resume(RUN, include_terminal=True)

    assert [] == await checkpointer.list_versions(SLOT) == await checkpointer.list_versions(RUN)
    assert await checkpointer.resume(RUN) is None
    assert await checkpointer.resume(SLOT) is None
    assert last is not None
    assert ("done", 2) == (last.status, last.version)
    assert "the answer" == _loop_state(last)["output"]
    assert last == await checkpointer.resume(SLOT, include_terminal=True)


async def test_a_suspended_run_has_a_suspended_checkpoint() -> None:
    """A version of its own; the iteration is not over."""
    llm = then(calls(call("send")))
    store = await died_after(e.ToolStarted, AGENT, llm)
    await AGENT.run(TASK, context(llm, store))

    found = await Checkpointer(port=store).resume(RUN)

    assert found is not None
    assert ("suspended", 1, 0) == (found.status, found.version, found.iteration)


async def test_the_run_itself_has_no_versions_of_its_own(store: InMemoryCheckpointStore) -> None:
    """As the reference page says: ask for the slot."""
    await _two_steps(store)

    assert [] == await store.list_versions(RUN)
    assert [1, 2] == await store.list_versions(SLOT)


async def test_a_users_own_slots_stand_beside_the_agents(store: InMemoryCheckpointStore) -> None:
    """Saved under the run's id while the run goes on: neither sees the other's numbers."""
    checkpointer = Checkpointer(port=store)
    await checkpointer.snapshot(RUN, "before")
    await _two_steps(store)
    await checkpointer.snapshot(RUN, "between")
    await checkpointer.snapshot(f"{RUN}:plan", "plan")
    llm = then([calls(call("look"))] * 3)
    stream = AGENT.stream(TASK, context(llm, store))
    async for event in stream:
        if event.type == "step":
            break
    await stream.aclose()

    versions = [await store.list_versions(slot) for slot in (RUN, SLOT, f"{RUN}:plan")]
    newest = [await checkpointer.resume(slot) for slot in (RUN, f"{RUN}:plan")]

    assert [[1, 2], [1, 2, 3], [1]] == versions
    assert ["between", "plan"] == [one.state for one in newest if one is not None]
    assert "done" == (await AGENT.run(TASK, context(llm, store))).output


async def test_a_snapshot_into_a_running_run_does_not_disturb_it(
    store: InMemoryCheckpointStore,
) -> None:
    """The head moves under the worker at each of its tools; it follows, and nothing is lost."""

    @tool(side_effecting=False)
    async def save() -> str:
        saved = await Checkpointer(port=store).snapshot(RUN, "mine")
        return str(saved.version)

    turn = calls(call("save"), call("save", call_id="c2"))
    llm = then([turn, turn, turn])

    result = await agent_of(save).run(TASK, context(llm, store))

    results = [message.content for message in llm.requests[-1].messages if message.role == "tool"]
    assert ("done", ["1", "2", "3", "4", "5", "6"]) == (result.output, sorted(results))


async def test_a_finished_run_takes_no_snapshots(store: InMemoryCheckpointStore) -> None:
    """Terminal is final."""
    await AGENT.run(TASK, context(FakeLLM("x"), store))

    with pytest.raises(NoteRefused, match="has ended"):
        await Checkpointer(port=store).snapshot(RUN, 1)


async def test_deleting_an_agents_slot_deletes_its_run(store: InMemoryCheckpointStore) -> None:
    """As the reference page's `_clear` did; the id may then be used anew."""
    await _two_steps(store)

    await Checkpointer(port=store).delete(SLOT)

    assert await store.head(RUN) is None
    assert "x" == (await AGENT.run("other", context(FakeLLM("x"), store))).output


async def test_a_run_that_is_worked_on_is_not_deleted(store: InMemoryCheckpointStore) -> None:
    """Its worker would go on without a journal."""
    stream = AGENT.stream(TASK, context(then(calls(call("look"))), store))
    await anext(stream)

    with pytest.raises(RunInUse):
        await Checkpointer(port=store).delete(SLOT)

    await stream.aclose()


async def test_one_lane_of_several_is_not_deleted_alone(store: InMemoryCheckpointStore) -> None:
    """A run has one journal."""
    await _two_steps(store)
    checkpointer = Checkpointer(port=store)
    await checkpointer.snapshot(f"{RUN}:plan", 1)

    with pytest.raises(StoreMisused, match="cannot be removed alone"):
        await checkpointer.delete(f"{RUN}:plan")

    assert [1] == await store.list_versions(f"{RUN}:plan")


def _loop_state(found: Checkpoint) -> dict[str, Any]:
    assert isinstance(found.state, dict)
    return found.state
