"""Forks: the stored prefix of a run under a new id, whole or not at all, and time travel."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidFork,
    InvalidId,
    JournalDamaged,
    JournalTooNew,
    ModelError,
    RunIdReused,
    RunInUse,
    RunNotFound,
    RunParked,
    StoreUnreachable,
    VersionNotFound,
)
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import Checkpoint, JournalPort
from agentkit.core.contracts.types import JSON, JSONObject, Scope
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeClock, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.state.journal.codec import checksum
from agentkit.state.journal.fork import Fork
from agentkit.state.journal.journal import append_note, load
from agentkit.state.journal.owner import owner_id
from agentkit.testing import read_rows
from agentkit.testing.crash import BorderLog, CrashingStore, CrashPlan, ForkServer
from agentkit.testing.faulty import Fault, FaultyStore
from agentkit.testing.invariants import Evidence, check
from agentkit.tools import tool
from tests.agents.kit import (
    RUN,
    TASK,
    Borders,
    Hurried,
    agent_of,
    call,
    calls,
    context,
    died_after,
    entries_of,
    messages_of,
    then,
)
from tests.state.test_shim import FiveMethods

SLOT = f"{RUN}:agent:worker"
FORK_SLOT = "f:agent:worker"


@tool(side_effecting=False)
async def look(number: int = 0) -> str:
    """Look."""
    return f"seen {number}"


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    return "sent"


AGENT = agent_of(look, send)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalPort]:
    """An empty store of either kind."""
    if request.param == "memory":
        yield InMemoryCheckpointStore()
        return
    sqlite = SqliteCheckpointStore(str(tmp_path / "runs.db"))
    yield sqlite
    await sqlite.aclose()


async def _three_steps(port: JournalPort, **more: Any) -> list[Checkpoint]:
    """A finished run of three steps, and its checkpoints as they were when they were the newest."""
    llm = then([calls(call("look", number=n)) for n in range(3)], "the answer")
    checkpointer = Checkpointer(port=port.scoped(more.get("scope", Scope())))
    found = []
    async for event in AGENT.stream(TASK, context(llm, port, **more)):
        if event.type == "step":
            newest = await checkpointer.resume(RUN)
            assert newest is not None
            found.append(newest)
    return found


async def _saved_mid_step(port: JournalPort) -> None:
    """Version 1 is a snapshot of one's own in the agent's slot, while a call is under way."""

    @tool(side_effecting=True)
    async def snap() -> str:
        """Save."""
        await Checkpointer(port=port).snapshot(SLOT, "mine")
        return "saved"

    await agent_of(snap).run(TASK, context(then(calls(call("snap"))), port))


# --- time travel ----------------------------------------------------------------------------------


async def test_each_version_of_a_finished_run_is_as_it_was_when_it_was_the_newest(
    store: JournalPort,
) -> None:
    """State, usage, iteration and time; the end is one version more; others are None."""
    then_newest = await _three_steps(store)
    checkpointer = Checkpointer(port=store)

    found = [await checkpointer.at_version(SLOT, version) for version in (1, 2, 3)]

    assert then_newest == found
    assert then_newest == [await checkpointer.at_version(RUN, version) for version in (1, 2, 3)]
    last = await checkpointer.resume(RUN, include_terminal=True)
    assert last is not None
    assert last == await checkpointer.at_version(SLOT, 4)
    assert [None] * 3 == [await checkpointer.at_version(SLOT, n) for n in (0, 5, -1)]
    assert await checkpointer.at_version("nobody", 1) is None


async def test_each_version_of_a_users_slot_is_what_was_saved(store: JournalPort) -> None:
    """In a slot of its own, and in slots beside an agent's, whose versions are counted apart."""
    checkpointer = Checkpointer(port=store)
    own = [await checkpointer.snapshot("job", {"n": n}) for n in range(3)]

    @tool(side_effecting=False)
    async def plan() -> str:
        """Save twice."""
        beside.extend([await checkpointer.snapshot(f"{RUN}:plan", n) for n in range(2)])
        return "planned"

    beside: list[Checkpoint] = []
    await agent_of(plan).run(TASK, context(then([calls(call("plan"))] * 2), store))

    assert own == [await checkpointer.at_version("job", n) for n in (1, 2, 3)]
    assert beside == [await checkpointer.at_version(f"{RUN}:plan", n) for n in (1, 2, 3, 4)]
    steps = [await checkpointer.at_version(SLOT, n) for n in (1, 2)]
    assert [1, 2] == [step.iteration for step in steps if step is not None]


async def test_a_version_says_the_same_after_later_ones_were_saved_beside_it() -> None:
    """Whatever is saved in other slots of the run, a version of the agent's stays what it was."""
    store = InMemoryCheckpointStore()
    llm = then([calls(call("look")), calls(call("look"))])
    stream = AGENT.stream(TASK, context(llm, store))
    async for event in stream:
        if event.text == "iteration:1":
            break
    await stream.aclose()
    checkpointer = Checkpointer(port=store)
    first = await checkpointer.at_version(SLOT, 1)
    await checkpointer.snapshot(f"{RUN}:plan", "beside")
    await AGENT.resume(RUN, {}, context(llm, store))

    assert first == await checkpointer.at_version(SLOT, 1)


# --- what a fork is -------------------------------------------------------------------------------


async def test_a_fork_is_the_stored_prefix_byte_for_byte_and_one_entry(store: JournalPort) -> None:
    """In one append, with the checksums as they stood, and the source untouched."""
    await _three_steps(store)
    source = await read_rows(store, RUN)
    watched = Borders(store)

    made = await Checkpointer(port=watched).fork(RUN, version=2, new_run_id="f", actor="ann")

    rows = await read_rows(store, "f")
    assert Fork("f", RUN, 2, len(rows) - 1) == made
    assert source[: made.seq] == rows[:-1]
    assert source == await read_rows(store, RUN)
    assert [len(rows)] == watched.confirmed
    *prefix, last = await entries_of(store, "f")
    assert e.StepCompleted(2, 2) == prefix[-1].body
    assert isinstance(last.body, e.Forked)
    assert (RUN, 2, "ann") == (last.body.parent, last.body.version, last.body.actor)
    assert isinstance(prefix[0].body, e.RunStarted)
    assert last.body.nonce != prefix[0].body.nonce
    head = await store.head("f")
    assert head is not None
    assert (False, len(rows)) == (head.held, head.seq)


async def test_versions_of_a_fork_are_those_of_its_source(store: JournalPort) -> None:
    """`at_version` gives the same state up to the fork; no later version is there."""
    await _three_steps(store)
    checkpointer = Checkpointer(port=store)
    await checkpointer.fork(RUN, version=2, new_run_id="f", message="more")

    assert [1, 2] == await checkpointer.list_versions(FORK_SLOT)
    for version in (1, 2):
        there = await checkpointer.at_version(SLOT, version)
        here = await checkpointer.at_version(FORK_SLOT, version)
        assert there is not None
        assert here is not None
        assert (there.state, there.iteration, there.created_at) == (
            here.state,
            here.iteration,
            here.created_at,
        )
    assert await checkpointer.at_version(FORK_SLOT, 3) is None


async def test_a_fork_starts_without_usage_age_or_recoveries_of_its_own(
    store: JournalPort,
) -> None:
    """What was copied was paid by the source, so sums over runs count it once."""
    clock = FakeClock(1_000.0)
    await _three_steps(store, clock=clock)
    clock.set_now(9_000.0)

    await Checkpointer(port=store, clock=clock).fork(RUN, version=2, new_run_id="f")

    listed = {run.run: run.summary for run in (await store.list_runs())[0]}
    assert (4, 0) == (listed[RUN].usage.requests, listed["f"].usage.requests)
    assert (9_000_000, "running", 0) == (
        listed["f"].started_at,
        listed["f"].status,
        listed["f"].recoveries,
    )
    assert ["f", RUN] == [run.run for run in (await store.list_runs())[0]]
    assert 2 == (await load(store, "f")).inherited.requests
    detail = json.loads(listed["f"].detail)
    assert (RUN, 2) == (detail["forked_from"], detail["forked_version"])


async def test_the_newest_version_is_forked_where_none_is_named(store: JournalPort) -> None:
    """Under a random id where none is given."""
    await _three_steps(store)
    checkpointer = Checkpointer(port=store)

    one, two = await checkpointer.fork(RUN), await checkpointer.fork(RUN)

    assert (3, 3) == (one.version, two.version)
    assert one.run_id != two.run_id
    assert len(one.run_id) == 32


async def test_forks_of_forks_count_what_all_before_them_paid(store: JournalPort) -> None:
    """Each names the run that it was copied from."""
    await _three_steps(store)
    checkpointer = Checkpointer(port=store)
    await checkpointer.fork(RUN, version=2, new_run_id="f")
    llm = then([calls(call("look", number=n)) for n in range(4)])
    await AGENT.resume("f", {}, context(llm, store, run_id="f"))

    await checkpointer.fork("f", version=4, new_run_id="g")

    state = await load(store, "g")
    assert state.forked is not None
    assert "f" == state.forked.parent
    assert (4, 0) == (state.inherited.requests, state.usage.requests)
    assert [] == check(Evidence(run="g", rows=await read_rows(store, "g")))


async def test_a_live_source_is_only_read(store: JournalPort) -> None:
    """Its lease stays with its worker, which goes on."""
    made = []

    @tool(side_effecting=False)
    async def split() -> str:
        """Fork the run that makes this call."""
        made.append(await Checkpointer(port=store).fork(RUN, version=1, new_run_id="f"))
        return "split"

    llm = then([calls(call("look")), calls(call("split"))])

    result = await agent_of(look, split).run(TASK, context(llm, store))

    assert "completed" == result.stop_reason
    assert [1] == [one.version for one in made]
    assert ["user", "assistant", "tool"] == [one.role for one in await messages_of(store, "f")]


async def test_snapshots_of_ones_own_can_be_forked(store: JournalPort) -> None:
    """The copy is numbered on from there; the source keeps its own numbers."""
    checkpointer = Checkpointer(port=store)
    for n in range(3):
        await checkpointer.snapshot("job", n)

    await checkpointer.fork("job", version=2, new_run_id="job-b")
    saved = await checkpointer.snapshot("job-b", "other")

    assert (3, "other") == (saved.version, saved.state)
    assert [1, 2, 3] == await checkpointer.list_versions("job-b")
    before = await checkpointer.at_version("job-b", 2)
    now = await checkpointer.at_version("job", 3)
    assert before is not None
    assert now is not None
    assert (1, 2) == (before.state, now.state)


async def test_forks_stay_in_their_scope(store: JournalPort) -> None:
    """A run of another scope is not there to be forked."""
    acme = store.scoped(Scope("acme"))
    await _three_steps(store, scope=Scope("acme"))

    with pytest.raises(RunNotFound):
        await Checkpointer(port=store).fork(RUN, version=1)
    await Checkpointer(port=acme).fork(RUN, version=1, new_run_id="f")

    assert await store.head("f") is None
    assert [] == check(Evidence(run="f", rows=await read_rows(acme, "f"), scope="acme"))


@pytest.mark.filterwarnings("ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning")
async def test_five_methods_are_enough_for_a_fork() -> None:
    """A finished run in somebody's own store is forked and carried on by a new process."""
    slots: dict[str, dict[int, Checkpoint]] = {}
    llm = then([calls(call("look", number=n)) for n in range(2)])
    await AGENT.run(TASK, context(llm, FiveMethods(slots)))

    made = await Checkpointer(port=FiveMethods(slots)).fork(RUN, version=1, new_run_id="f")
    result = await AGENT.resume("f", {}, context(llm, FiveMethods(slots), run_id="f"))

    assert (1, "done", 2) == (made.version, result.output, result.usage.requests)


# --- epochs ---------------------------------------------------------------------------------------


async def test_the_epochs_of_a_fork_are_above_those_that_it_copied() -> None:
    """Also where the store's clock stands still, so that a new run's first epoch is no higher."""
    clock = FakeClock(1_000.0)
    store = InMemoryCheckpointStore(clock=clock)
    await _three_steps(store)

    await Checkpointer(port=store).fork(RUN, version=3, new_run_id="f")

    *_, copied, forked = await entries_of(store, "f")
    assert copied.epoch < forked.epoch
    assert [] == check(Evidence(run="f", rows=await read_rows(store, "f")))


async def test_a_store_clock_far_behind_the_source_does_not_lower_epochs() -> None:
    """Fencing tokens would be older than those that the source's tools were given."""
    clock = FakeClock(1_000_000.0)
    store = InMemoryCheckpointStore(clock=clock)
    await _three_steps(store)
    clock.set_now(1.0)

    await Checkpointer(port=store).fork(RUN, version=3, new_run_id="f")

    *_, copied, forked = await entries_of(store, "f")
    assert copied.epoch < forked.epoch
    assert [] == check(Evidence(run="f", rows=await read_rows(store, "f")))


# --- edits ----------------------------------------------------------------------------------------


async def test_edits_are_entries_of_their_own_and_the_model_sees_them(store: JournalPort) -> None:
    """The copied result stays; the transcript has the new one, and the user's message last."""
    llm = then(calls(call("look", call_id="a", number=1), call("look", call_id="b", number=2)))
    await AGENT.run(TASK, context(llm, store))

    await Checkpointer(port=store).fork(
        RUN, new_run_id="f", edits={(1, 1): {"seen": [True]}}, message="Think again."
    )

    told = [(one.role, one.content, one.is_error) for one in await messages_of(store, "f")]
    assert [
        ("tool", "seen 1", False),
        ("tool", '{"seen":[true]}', False),
        ("user", "Think again.", False),
    ] == told[2:]
    kept = [one.body for one in await entries_of(store, "f")]
    assert "seen 2" in [one.content for one in kept if isinstance(one, e.ToolFinished)]


async def test_an_edited_error_is_a_result(store: JournalPort) -> None:
    """The model is not told that the call failed."""
    llm = then(calls(call("nothing")))
    await AGENT.run(TASK, context(llm, store))
    assert (await messages_of(store))[2].is_error

    await Checkpointer(port=store).fork(RUN, new_run_id="f", edits={(1, 0): "fine"})

    result = (await messages_of(store, "f"))[2]
    assert ("fine", False) == (result.content, result.is_error)


async def test_views_that_were_handed_out_keep_what_they_showed() -> None:
    """A request under way is not changed by what is folded later."""
    store = InMemoryCheckpointStore()
    await _three_steps(store)
    made = await Checkpointer(port=store).fork(RUN, new_run_id="f", edits={(3, 0): "other"})
    state = await load(store, "f", upto=made.seq)
    before = state.main.transcript.view()
    last = (await entries_of(store, "f"))[-1]

    state.apply(last, b"")

    assert ("seen 2", "other") == (before[-1].content, state.main.transcript.view()[-1].content)


BAD_EDITS: list[tuple[dict[tuple[int, int], JSON], str]] = [
    ({(1, 0): "x"}, "no call of the last turn"),
    ({(3, 1): "x"}, "no call of the last turn"),
    ({(3, -1): "x"}, "no call of the last turn"),
    ({(4, 0): "x"}, "no call of the last turn"),
]


@pytest.mark.parametrize(("edits", "why"), BAD_EDITS)
async def test_only_results_of_the_last_turn_can_be_edited(
    edits: Mapping[tuple[int, int], JSON], why: str
) -> None:
    """What stands before an answer is bound to it by the provider."""
    store = InMemoryCheckpointStore()
    await _three_steps(store)

    with pytest.raises(InvalidFork, match=why):
        await Checkpointer(port=store).fork(RUN, version=3, new_run_id="f", edits=edits)

    assert await store.head("f") is None


# --- refusals -------------------------------------------------------------------------------------


async def _damaged_at(store: InMemoryCheckpointStore, seq: int, *, newer: bool = False) -> None:
    """RUN with one entry changed; with `newer`, soundly, to one of a later release."""
    rows = list(await read_rows(store, RUN))
    head = await store.head(RUN)
    assert head is not None
    old = rows[seq - 1]
    body = old.body.replace(b'{"type":', b'{"type":"of the future","was":')
    rows[seq - 1] = Row(seq, body, checksum(rows[seq - 2].check, body) if newer else old.check)
    store.restore(head, rows)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"run_id": "nobody"}, RunNotFound),
        ({"version": 9}, VersionNotFound),
        ({"version": 0}, VersionNotFound),
        ({"version": 4}, VersionNotFound),
        ({"new_run_id": "taken"}, RunIdReused),
        ({"new_run_id": RUN}, RunIdReused),
        ({"new_run_id": "claimed"}, RunInUse),
        ({"new_run_id": ""}, InvalidId),
        ({"message": " \n"}, InvalidFork),
        ({"message": "\ud800"}, InvalidFork),
        ({"run_id": "job", "message": "x"}, InvalidFork),
    ],
)
async def test_what_cannot_be_forked_is_refused_and_leaves_nothing(
    asked: JSONObject, error: type[AgentkitError], store: JournalPort
) -> None:
    """Unknown runs and versions, ids in use, messages that are no text."""
    await _three_steps(store)
    checkpointer = Checkpointer(port=store)
    await checkpointer.snapshot("taken", 1)
    await checkpointer.snapshot("job", 1)
    await store.acquire("claimed", owner_id("somebody"), 15.0)
    before = {run.run: (run.seq, run.epoch) for run in (await store.list_runs())[0]}
    wanted: dict[str, Any] = {"run_id": RUN, "version": 1, "new_run_id": "f", **asked}

    with pytest.raises(error):
        await checkpointer.fork(wanted.pop("run_id"), **wanted)

    assert before == {run.run: (run.seq, run.epoch) for run in (await store.list_runs())[0]}
    assert await store.head("f") is None


async def test_an_unknown_version_is_told_with_those_that_there_are(store: JournalPort) -> None:
    """As facts of the error too."""
    await _three_steps(store)

    with pytest.raises(VersionNotFound, match="it has 1, 2, 3") as told:
        await Checkpointer(port=store).fork(RUN, version=9)

    assert (1, 2, 3) == told.value.versions


async def test_a_run_without_a_step_has_no_version() -> None:
    """It is started anew instead."""
    store = InMemoryCheckpointStore()
    await AGENT.run(TASK, context(then([], "at once"), store))

    with pytest.raises(VersionNotFound, match="completed no step"):
        await Checkpointer(port=store).fork(RUN)


@pytest.mark.parametrize(("newer", "error"), [(False, JournalDamaged), (True, JournalTooNew)])
async def test_a_prefix_that_cannot_be_read_is_refused_and_one_before_it_is_not(
    newer: bool, error: type[AgentkitError]
) -> None:
    """What is behind the version is not looked at, so a fork goes on before the damage."""
    store = InMemoryCheckpointStore()
    await _three_steps(store)
    entries = await entries_of(store)
    bad = next(one.seq for one in entries if one.body == e.StepCompleted(2, 2)) + 1
    await _damaged_at(store, bad, newer=newer)
    checkpointer = Checkpointer(port=store)

    with pytest.raises(error):
        await checkpointer.fork(RUN, version=3, new_run_id="f")
    with pytest.raises(error):
        await checkpointer.fork(RUN, new_run_id="f")
    made = await checkpointer.fork(RUN, version=2, new_run_id="g")

    assert await store.head("f") is None
    assert bad - 1 == made.seq


async def test_a_snapshot_saved_in_the_middle_of_a_step_is_no_place_to_fork_from() -> None:
    """Nobody could say what became of the calls that were under way."""
    store = InMemoryCheckpointStore()
    await _saved_mid_step(store)
    checkpointer = Checkpointer(port=store)

    with pytest.raises(InvalidFork, match="middle of a step"):
        await checkpointer.fork(RUN, version=1, new_run_id="f")
    await checkpointer.fork(RUN, version=2, new_run_id="g")

    assert await store.head("f") is None


# --- questions ------------------------------------------------------------------------------------


async def _suspended() -> InMemoryCheckpointStore:
    """Version 1 waits for a decision about `send`, which may have happened."""
    llm = then(calls(call("look", call_id="a"), call("send", call_id="b")))
    store = await died_after(e.ToolStarted, AGENT, llm)
    await AGENT.run(TASK, context(llm, store))
    return store


async def test_an_edit_of_an_open_call_is_refused() -> None:
    """A decision is given by answering the question, so that it is on record as one."""
    store = await _suspended()

    with pytest.raises(InvalidFork, match="waits for a decision"):
        await Checkpointer(port=store).fork(RUN, version=1, edits={(1, 1): "sent"})


async def test_a_message_waits_behind_the_results_of_open_calls() -> None:
    """The transcript stays valid: results stand directly behind their calls, in order."""
    store = await _suspended()

    await Checkpointer(port=store).fork(
        RUN, version=1, new_run_id="f", edits={(1, 0): "edited"}, message="Hurry."
    )
    llm = then([])
    state = await load(store, "f")
    await AGENT.resume("f", {state.questions[0].id: "skip"}, context(llm, store, run_id="f"))

    told = [(one.role, one.content) for one in await messages_of(store, "f")]
    assert [("user", TASK), ("tool", "edited"), ("user", "Hurry.")] == [told[0], told[2], told[4]]
    assert ["assistant", "tool"] == [told[1][0], told[3][0]]


async def test_takeovers_before_a_fork_are_not_counted_against_it() -> None:
    """The source's workers died at it, not the fork's."""
    llm = then(calls(call("send")))
    store = await died_after(e.ToolStarted, AGENT, llm)
    await AGENT.run(TASK, context(llm, store))
    assert 1 == (await load(store, RUN)).recoveries

    await Checkpointer(port=store).fork(RUN, version=1, new_run_id="f")

    head = await store.head("f")
    assert head is not None
    assert (0, 0) == (head.recoveries, (await load(store, "f")).recoveries)


async def test_what_parked_the_source_does_not_park_the_fork() -> None:
    """It tries again: here the fork of a snapshot that was saved while the source was parked."""
    store = InMemoryCheckpointStore()
    refused = ModelError("no such key", kind="auth")
    llm = then([calls(call("look")), Turn(error=refused)])
    with pytest.raises(RunParked):
        await AGENT.run(TASK, context(llm, store))
    await Checkpointer(port=store).snapshot(SLOT, "mine")
    await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")

    state = await load(store, "f")
    result = await AGENT.run(TASK, context(then(calls(call("look"))), store, run_id="f"))

    assert ("running", []) == (state.status, state.main.failures)
    assert "completed" == result.stop_reason


async def test_a_decision_that_was_not_applied_yet_is_not_the_forks() -> None:
    """It was given for the source; the fork asks again."""
    store = await _suspended()
    state = await load(store, RUN)
    question = state.questions[0]
    decided = e.Decided(question.id, "run_again", question.digest)
    await append_note(
        store, RUN, lambda _: [decided], note_id="d", lane="agent:worker", clock=SystemClock()
    )
    await Checkpointer(port=store).snapshot(SLOT, "mine")

    made = await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")

    asked = msgspec.structs.replace(question, path=("f", *question.path[1:]))
    assert [asked] == list(made.questions)
    assert {} == (await load(store, "f")).decided
    assert () == (await load(store, RUN)).questions


# --- crashes and faults ---------------------------------------------------------------------------


def fork_and_die(argument: JSONObject) -> None:
    """One worker's life: fork RUN at version 2, and be killed at a border."""
    plan = CrashPlan(str(argument["at"]), log=BorderLog(Path(str(argument["log"]))))
    store = CrashingStore(SqliteCheckpointStore(str(argument["path"])), plan)

    async def live() -> None:
        await Checkpointer(port=store).fork(RUN, version=2, new_run_id="f")

    asyncio.run(live())


@pytest.mark.parametrize(
    ("at", "there"),
    [
        ("acquire:before", False),
        ("acquire:after", False),
        ("release:before", False),
        ("release:after", True),
    ],
)
async def test_a_fork_that_is_killed_is_whole_or_not_there(
    at: str, there: bool, tmp_path: Path
) -> None:
    """SIGKILL before and after each thing that it does; then it is made, or made already."""
    path = tmp_path / "runs.db"
    store = SqliteCheckpointStore(str(path))
    await _three_steps(store)
    source = await read_rows(store, RUN)
    with ForkServer("tests.journal.test_fork:fork_and_die") as server:
        ended = server.run({"at": at, "path": str(path), "log": str(tmp_path / "log")})

    assert "killed" == ended.how
    assert there is ("f" in [run.run for run in (await store.list_runs())[0]])
    checkpointer = Checkpointer(port=store)
    if there:
        with pytest.raises(RunIdReused):
            await checkpointer.fork(RUN, version=2, new_run_id="f")
    else:
        await checkpointer.fork(RUN, version=2, new_run_id="f")
    rows = await read_rows(store, "f")
    assert source[: len(rows) - 1] == rows[:-1]
    assert [] == check(Evidence(run="f", rows=rows))
    assert [] == check(Evidence(run=RUN, rows=await read_rows(store, RUN), earlier=(source,)))
    await store.aclose()


@pytest.mark.parametrize("kind", ["before", "after", "twice"])
async def test_an_append_whose_acknowledgement_is_lost_makes_one_fork(
    kind: Any, store: JournalPort
) -> None:
    """The same rows are sent again; the store compares them with what it has."""
    await _three_steps(store)
    faulty = FaultyStore(store, Fault(kind, "append"), clock=Hurried())

    made = await Checkpointer(port=faulty, clock=Hurried()).fork(RUN, version=2, new_run_id="f")

    assert 1 == faulty.fired[kind]
    assert made.seq + 1 == len(await read_rows(store, "f"))
    head = await store.head("f")
    assert head is not None
    assert not head.held


async def test_a_store_that_stays_away_leaves_nothing_and_the_id_free(store: JournalPort) -> None:
    """The error surfaces, and the lease is given back once the store is there."""
    await _three_steps(store)
    faulty = FaultyStore(store, Fault("before", "append", times=4))

    with pytest.raises(StoreUnreachable):
        await Checkpointer(port=faulty, clock=Hurried()).fork(RUN, version=2, new_run_id="f")
    await Checkpointer(port=store).fork(RUN, version=1, new_run_id="f")

    assert 4 == faulty.fired["before"]
    assert 1 == (await load(store, "f")).main.version


async def test_of_two_forks_to_one_id_one_is_made(store: JournalPort) -> None:
    """The other is refused, and nothing of it is in the run."""
    await _three_steps(store)
    checkpointer = Checkpointer(port=store)

    made = await asyncio.gather(
        *(checkpointer.fork(RUN, version=n, new_run_id="f") for n in (1, 2, 3)),
        return_exceptions=True,
    )

    [won] = [one for one in made if isinstance(one, Fork)]
    assert 2 == sum(isinstance(one, RunIdReused | RunInUse) for one in made)
    assert won.version == (await load(store, "f")).main.version
    assert [] == check(Evidence(run="f", rows=await read_rows(store, "f")))


class NotedMeanwhile(StoreWrapper):
    """A store in which somebody saves something under the new run's id at the last moment."""

    async def append(self, run: str, *args: Any, **kwargs: Any) -> Any:
        """Save first."""
        if kwargs.get("lease") is not None and kwargs["after"] == 0 and args[0]:
            await Checkpointer(port=self.inner).snapshot(run, "mine")
        return await super().append(run, *args, **kwargs)


async def test_an_id_that_is_taken_at_the_last_moment_is_left_alone(store: JournalPort) -> None:
    """A note needs no lease; the fork gives way."""
    await _three_steps(store)

    with pytest.raises(RunIdReused):
        await Checkpointer(port=NotedMeanwhile(store)).fork(RUN, version=2, new_run_id="f")

    saved = await Checkpointer(port=store).resume("f")
    head = await store.head("f")
    assert saved is not None
    assert head is not None
    assert ("mine", 1, False) == (saved.state, head.seq, head.held)
