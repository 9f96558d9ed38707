"""`run(task, ctx, after=…)`: a finished conversation goes on as a new run, and nothing of it is
done or paid again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from agentkit.agents import Agent, add_message, cancel, pause, record_decisions, unpause
from agentkit.agents.checking import DefinitionChangedWarning
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidSpec,
    JournalDamaged,
    RunIdReused,
    RunNotFound,
    RunUnfinished,
    VersionNotFound,
)
from agentkit.core.contracts.heads import Lease, Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, Message, Native, Scope
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.state.checkpoints.shim import ShimJournal
from agentkit.state.journal.journal import load
from agentkit.testing import read_rows
from agentkit.testing.invariants import Evidence, check
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    entries_of,
    events_of,
    kinds_of,
    messages_of,
    then,
)
from tests.corpus.make import _FiveMethods

MORE = "and one more"


class _Flipped(StoreWrapper):
    """Reads one run's third entry with a bit flipped."""

    flipped = ""

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Forward, and flip."""
        rows = await super().read(run, after=after, limit=limit)
        if run == self.flipped:
            body = rows[2].body
            rows[2] = Row(3, body[:-1] + bytes([body[-1] ^ 1]), rows[2].check)
        return rows


class _Elsewhere(StoreWrapper):
    """The same data, as another process has it: its drives are not those of this one."""

    @property
    def location(self) -> str:
        """Another one."""
        return f"{super().location} from elsewhere"


class _Overtaken(StoreWrapper):
    """Before the next lease is taken, something happens."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Forward, after what happens."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalPort]:
    """An empty store of either kind."""
    if request.param == "memory":
        yield InMemoryCheckpointStore()
        return
    sqlite = SqliteCheckpointStore(str(tmp_path / "runs.db"))
    yield sqlite
    await sqlite.aclose()


def _buying(*, requires_approval: bool = False) -> tuple[Agent, list[tuple[str, str]]]:
    """An agent that buys, and what it bought: run and key of each effect."""
    effects: list[tuple[str, str]] = []

    @tool(side_effecting=True, requires_approval=requires_approval)
    async def buy(item: str, ctx: ToolContext) -> str:
        """Buy."""
        effects.append((ctx.run_id, ctx.idempotency_key))
        return f"bought {item}"

    return agent_of(buy), effects


def _one_each() -> FakeLLM:
    """Answers each task with one purchase, then with what it has bought in all."""

    def answer(messages: Sequence[Message]) -> Turn:
        tasks = sum(message.role == "user" for message in messages)
        bought = sum(message.role == "tool" for message in messages)
        if bought < tasks:
            return calls(call("buy", item=str(tasks)))
        return Turn(content=f"{bought} in all")

    return FakeLLM(answer)


async def _sound(port: JournalPort, run: str) -> None:
    """The checker finds nothing in this run."""
    assert [] == check(Evidence(run=run, rows=await read_rows(port, run)))


async def test_a_finished_conversation_goes_on_as_a_new_run(store: JournalPort) -> None:
    """The model reads the old conversation and then the new task; no call of it is made again, its
    answers are not bought again, and the new run's usage is its own.
    """
    agent, effects = _buying()
    llm = _one_each()
    first = await agent.run(TASK, context(llm, store))
    asked = len(llm.requests)

    result = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert ("1 in all", "2 in all") == (first.output, result.output)
    assert [RUN, "r2"] == [run for run, _ in effects]
    assert 2 == len(llm.requests) - asked == result.usage.requests
    said = [message.content for message in llm.requests[asked].messages]
    assert [TASK, "", "bought 1", "1 in all", MORE] == said
    assert_valid(await messages_of(store, "r2"))
    await _sound(store, "r2")
    await _sound(store, RUN)


async def test_the_stored_bytes_are_copied_and_the_nonce_is_new(store: JournalPort) -> None:
    """Entry by entry what the old run had recorded before its end; keys of later calls differ from
    those of the same place of another run after it.
    """
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    for name in ("r2", "r3"):
        await agent.run(MORE, context(llm, store, run_id=name), after=RUN)

    old, new = await read_rows(store, RUN), await read_rows(store, "r2")

    assert "Finished" == (await kinds_of(store, RUN))[-1]
    assert list(old[:-1]) == list(new[: len(old) - 1])
    assert 3 == len({key for _, key in effects})
    [forked] = await bodies_of(store, e.Forked, "r2")
    assert (RUN, MORE) == (forked.parent, forked.task)


async def test_a_chain_of_three_conversations_keeps_each_one_s_usage(store: JournalPort) -> None:
    """The sum over the runs is what was paid, and each is the run of its own task."""
    agent, effects = _buying()
    llm = _one_each()
    used = [(await agent.run(TASK, context(llm, store))).usage]
    outputs = []
    for name, past in (("r2", RUN), ("r3", "r2"), ("r4", "r3")):
        result = await agent.run(f"{MORE}, {name}", context(llm, store, run_id=name), after=past)
        used.append(result.usage)
        outputs.append(result.output)

    assert ["2 in all", "3 in all", "4 in all"] == outputs
    assert [RUN, "r2", "r3", "r4"] == [run for run, _ in effects]
    assert [2, 2, 2, 2] == [one.requests for one in used]
    assert len(llm.requests) == sum(one.requests for one in used)
    state = await load(store, "r4")
    assert (f"{MORE}, r4", "r3") == (state.task, state.after)
    assert 6 == state.inherited.requests
    await _sound(store, "r4")


async def test_the_same_start_again_gives_the_stored_result(store: JournalPort) -> None:
    """Also when the old run is gone by then, and when the new one is a tombstone."""
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    first = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    asked = len(llm.requests)
    await store.delete_run(RUN)

    again = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    ended = (await load(store, "r2")).updated_at
    assert await store.entomb("r2", updated_at=ended)
    buried = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert first.output == again.output == buried.output
    assert (asked, 2) == (len(llm.requests), len(effects))


@pytest.mark.parametrize("buried", [False, True])
async def test_an_id_belongs_to_its_task_and_to_its_past(
    store: JournalPort,
    buried: bool,
) -> None:
    """Another task, another past, and none, each where there was one; also of a tombstone."""
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    await agent.run(TASK, context(llm, store, run_id="s"))
    await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    for run in ("r2", "s") if buried else ():
        assert await store.entomb(run, updated_at=(await load(store, run)).updated_at)
    mine, other = context(llm, store, run_id="r2"), context(llm, store, run_id="s")

    with pytest.raises(RunIdReused, match="another task"):
        await agent.run(TASK, mine, after=RUN)
    with pytest.raises(RunIdReused, match="was started after run 'r'"):
        await agent.run(MORE, mine, after="s")
    with pytest.raises(RunIdReused, match="was started after run 'r'"):
        await agent.run(MORE, mine)
    with pytest.raises(RunIdReused, match="was started after no other run"):
        await agent.run(TASK, other, after=RUN)

    assert 3 == len(effects)


async def test_an_unfinished_conversation_is_not_carried_on() -> None:
    """One that waits, with its questions; one that is paused; one that was interrupted. Nothing is
    written, and what has to come first is said.
    """
    store = InMemoryCheckpointStore()
    agent, effects = _buying(requires_approval=True)
    llm = _one_each()
    suspended = await agent.run(TASK, context(llm, store))
    assert suspended.suspended is not None
    questions = suspended.suspended.questions

    with pytest.raises(RunUnfinished, match=rf"it waits for {questions[0].id} \(buy\)") as waits:
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    await pause(store, RUN)
    with pytest.raises(RunUnfinished, match=r"parked \(paused\)") as paused:
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    await unpause(store, RUN)
    await agent.resume(RUN, {}, context(llm, store))
    await record_decisions(store, RUN, {questions[0].id: "approve"})
    with pytest.raises(RunUnfinished, match="nobody works on it; resume it first") as left:
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert ("suspended", questions) == (waits.value.status, waits.value.questions)
    assert ("parked", "running") == (paused.value.status, left.value.status)
    assert RUN == waits.value.run_id
    assert await store.head("r2") is None
    assert [] == effects


async def test_a_run_that_is_being_driven_is_not_carried_on() -> None:
    """A worker is at it, and the error says so."""
    store = InMemoryCheckpointStore()
    agent, _ = _buying()
    llm = _one_each()
    live = agent.stream(TASK, context(llm, store))
    await anext(live)

    with pytest.raises(RunUnfinished, match="a worker is at it"):
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    await events_of(live)


async def test_what_cannot_be_carried_on_is_named(store: JournalPort) -> None:
    """An unknown run, one of another scope, itself, one whose entries are gone, another agent's."""
    agent, _ = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    await agent.run(TASK, context(llm, store, scope=Scope("acme"), run_id="theirs"))

    for unknown in ("nobody", "theirs"):
        with pytest.raises(RunNotFound, match=f"run '{unknown}'.*does not exist"):
            await agent.run(MORE, context(llm, store, run_id="r2"), after=unknown)
    with pytest.raises(InvalidSpec, match="cannot carry on its own conversation"):
        await agent.run(MORE, context(llm, store), after=RUN)
    other = agent_of(name="other")
    with pytest.raises(RunIdReused, match="a conversation with agent 'worker', not 'other'"):
        await other.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    assert await store.entomb(RUN, updated_at=(await load(store, RUN)).updated_at)
    with pytest.raises(VersionNotFound, match="it has ended and its entries are gone"):
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert await store.head("r2") is None


async def test_a_damaged_conversation_is_not_carried_on(tmp_path: Path) -> None:
    """The error tells of the old run, and there is no new one."""
    store = _Flipped(InMemoryCheckpointStore())
    agent, _ = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    store.flipped = RUN

    with pytest.raises(JournalDamaged, match="run 'r': entry 3"):
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert await store.head("r2") is None


async def test_a_missing_store_file_is_not_made_for_an_unknown_past(tmp_path: Path) -> None:
    """Nothing can be in it."""
    path = tmp_path / "none.db"
    store = SqliteCheckpointStore(str(path))
    agent, _ = _buying()

    with pytest.raises(RunNotFound, match="there is no store yet"):
        await agent.run(MORE, context(_one_each(), store, run_id="r2"), after=RUN)

    assert not path.exists()


async def test_two_runs_carry_on_the_same_conversation_at_once(store: JournalPort) -> None:
    """Each has it, and neither has the other's part."""
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))

    both = await asyncio.gather(
        *(
            agent.run(f"{MORE} {name}", context(llm, store, run_id=name), after=RUN)
            for name in ("r2", "r3")
        )
    )

    assert ["2 in all"] * 2 == [one.output for one in both]
    assert {RUN, "r2", "r3"} == {run for run, _ in effects}
    assert f"{MORE} r3" not in [one.content for one in await messages_of(store, "r2")]


@pytest.mark.parametrize("left", [True, False], ids=["left", "ended"])
async def test_a_start_that_somebody_else_overtakes_finds_the_run_begun(left: bool) -> None:
    """Between the look and the lease another worker begins the same run, and leaves it or ends it:
    its past is there once, and its effect happens once.
    """
    agent, effects = _buying()
    llm = _one_each()
    memory = InMemoryCheckpointStore()
    store, elsewhere = _Overtaken(memory), _Elsewhere(memory)
    await agent.run(TASK, context(llm, store))

    async def other() -> None:
        stream = agent.stream(MORE, context(llm, elsewhere, run_id="r2"), after=RUN)
        await (anext(stream) if left else events_of(stream))
        await stream.aclose()

    store.meanwhile = other
    result = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert "2 in all" == result.output
    assert 2 == len(effects)
    assert 1 == len(await bodies_of(store, e.Forked, "r2"))
    await _sound(store, "r2")


async def test_a_start_that_another_run_of_its_id_overtakes_is_refused() -> None:
    """One without a past came between the look and the lease."""
    agent, effects = _buying()
    llm = _one_each()
    memory = InMemoryCheckpointStore()
    store, elsewhere = _Overtaken(memory), _Elsewhere(memory)
    await agent.run(TASK, context(llm, store))

    async def other() -> None:
        await agent.run(MORE, context(llm, elsewhere, run_id="r2"))

    store.meanwhile = other
    with pytest.raises(RunIdReused, match="was started after no other run"):
        await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert 2 == len(effects)
    assert "Finished" == (await kinds_of(store, "r2"))[-1]


async def test_the_limit_of_iterations_counts_the_new_run_s_own_answers() -> None:
    """Three answers are allowed: the old run took two, the new one may take three of its own."""
    store = InMemoryCheckpointStore()

    @tool(side_effecting=False)
    async def look() -> str:
        """Look."""
        return "seen"

    agent = agent_of(look, max_iterations=3)
    await agent.run(TASK, context(then(calls(call("look"))), store))
    endless = FakeLLM(lambda _: calls(call("look")))

    result = await agent.run(MORE, context(endless, store, run_id="r2"), after=RUN)

    assert ("max_iterations", 3) == (result.stop_reason, result.usage.requests)
    assert "answered 3 times" in result.message
    numbered = [body.turn for body in await bodies_of(store, e.ModelAnswered, "r2")]
    assert [1, 2, 3, 4, 5] == numbered


async def test_a_cancelled_conversation_goes_on_and_knows_of_its_calls(store: JournalPort) -> None:
    """Stop, then say something else: the model reads that the call was not made; the cancelled run
    stays cancelled.
    """
    agent, effects = _buying(requires_approval=True)
    llm = then([calls(call("buy", item="1"))], "never mind")
    await agent.run(TASK, context(llm, store))
    await cancel(store, RUN, reason="not that one")

    result = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert "never mind" == result.output
    assert [] == effects
    messages = await messages_of(store, "r2")
    assert_valid(messages)
    assert ["user", "assistant", "tool", "user", "assistant"] == [one.role for one in messages]
    assert "Cancelled" == (await kinds_of(store, RUN))[-1]
    await _sound(store, "r2")


async def test_a_call_refused_before_is_asked_about_again() -> None:
    """The word was about the old task: it does not refuse by itself, and never lets it pass, also
    where the tool needs no approval by now. Said again, it holds for the new run.
    """
    store = InMemoryCheckpointStore()
    strict, refused = _buying(requires_approval=True)
    llm = then([calls(call("buy", item="1"))], "a pity")
    first = await strict.run(TASK, context(llm, store))
    assert first.suspended is not None
    [asked] = first.suspended.questions
    await strict.resume(RUN, {asked.id: Decision("reject")}, context(llm, store))
    lax, effects = _buying(requires_approval=False)
    again = FakeLLM(
        lambda messages: (
            Turn("well")
            if sum(one.role == "tool" for one in messages) == 3
            else calls(call("buy", item="1"))
        )
    )

    second = await lax.run(MORE, context(again, store, run_id="r2"), after=RUN)
    assert second.suspended is not None
    [anew] = second.suspended.questions
    last = await lax.resume("r2", {anew.id: "reject"}, context(again, store, run_id="r2"))

    assert anew.id != asked.id
    assert ("well", "completed") == (last.output, last.stop_reason)
    assert [] == refused == effects


async def test_the_new_run_has_the_autonomy_and_identity_of_its_own_start() -> None:
    """Also for a worker that resumes it with a laxer context, and in a fork of it."""
    store = InMemoryCheckpointStore()
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    manual = context(llm, store, run_id="r2", identity="ada")
    object.__setattr__(manual, "autonomy", "manual")
    waits = await agent.run(MORE, manual, after=RUN)
    forked = await Checkpointer(port=store).fork("r2", new_run_id="f")

    again = await agent.resume("r2", {}, context(llm, store, run_id="r2"))
    state, fork = await load(store, "r2"), await load(store, "f")

    assert "suspended" == waits.stop_reason == again.stop_reason
    assert 1 == len(effects) == len(forked.questions)
    assert ("manual", "ada", MORE) == (state.autonomy, state.identity, state.task)
    assert ("manual", "ada", MORE, "") == (fork.autonomy, fork.identity, fork.task, fork.after)


async def test_a_fork_of_the_newest_version_is_of_the_new_run_or_refused() -> None:
    """Without a step of its own the newest version is of the old conversation, which is forked by
    its number alone and has the old task.
    """
    store = InMemoryCheckpointStore()
    agent, _ = _buying()
    await agent.run(TASK, context(_one_each(), store))
    await agent.run(MORE, context(FakeLLM("no"), store, run_id="r2"), after=RUN)
    await agent.run(MORE, context(_one_each(), store, run_id="r3"), after=RUN)
    checkpointer = Checkpointer(port=store)

    with pytest.raises(VersionNotFound, match=r"no step of its own yet; .* versions 1, which"):
        await checkpointer.fork("r2", new_run_id="f2")
    old = await checkpointer.fork("r2", version=1, new_run_id="f2")
    new = await checkpointer.fork("r3", new_run_id="f3")

    assert (1, 2) == (old.version, new.version)
    assert TASK == (await load(store, "f2")).task
    assert MORE == (await load(store, "f3")).task


async def test_the_recorded_definition_goes_on_and_a_changed_one_is_told() -> None:
    """Answers of a model are bound to the prompt and the tools that it had."""
    store = InMemoryCheckpointStore()
    agent, _ = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    changed = Agent("worker", prompt="Work otherwise.", cognition=agent.cognition)

    with pytest.warns(DefinitionChangedWarning, match="run 'r2'"):
        await changed.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert "Work." == llm.requests[-1].system


async def test_blocks_of_a_provider_keep_their_origin() -> None:
    """What the old run's provider wrote is in the new run's requests as it was, with its origin, by
    which an adapter of another provider leaves it out.
    """
    store = InMemoryCheckpointStore()
    native = Native("anthropic", b'[{"type":"text","text":"hm"}]')  # type: ignore[arg-type]  # stored bytes
    agent = agent_of()
    llm = FakeLLM(lambda _: Turn("hm", native=native))
    await agent.run(TASK, context(llm, store))

    await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    sent = [one.native for one in llm.requests[-1].messages if one.role == "assistant"]
    assert ["anthropic"] == [one.origin for one in sent if one is not None]


async def test_an_empty_answer_before_leaves_a_valid_conversation() -> None:
    """A refusal without a word, for instance."""
    store = InMemoryCheckpointStore()
    agent = agent_of()
    await agent.run(TASK, context(FakeLLM(lambda _: Turn("")), store))

    result = await agent.run(MORE, context(FakeLLM("yes"), store, run_id="r2"), after=RUN)

    assert "yes" == result.output


async def test_a_message_id_of_the_old_run_counts_anew() -> None:
    """Ids name messages of one run."""
    store = InMemoryCheckpointStore()
    agent, _ = _buying(requires_approval=True)
    llm = _one_each()
    await agent.run(TASK, context(llm, store))
    await add_message(store, RUN, "hurry", message_id="m1")
    await cancel(store, RUN)
    await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    noted = await add_message(store, "r2", "hurry now", message_id="m1")

    assert not noted.repeated
    entries = await entries_of(store, "r2")
    assert 2 == sum(isinstance(one.body, e.MessageAdded) for one in entries)


async def test_f032_what_is_said_while_questions_are_open_is_never_lost() -> None:
    """Neither `run` with the new text nor `after=` begins anything on top of the call, and both
    leave the text with the caller; `add_message` keeps it, the questions stay, and the model reads
    it behind their results.
    """
    store = InMemoryCheckpointStore()
    agent, effects = _buying(requires_approval=True)
    llm = then([calls(call("buy", item="1"))], "well")
    first = await agent.run(TASK, context(llm, store))
    assert first.suspended is not None
    before = await read_rows(store, RUN)

    with pytest.raises(RunIdReused, match="add_message"):
        await agent.run("No, two!", context(llm, store))
    with pytest.raises(RunUnfinished, match="add_message"):
        await agent.run("No, two!", context(llm, store, run_id="r2"), after=RUN)
    assert before == await read_rows(store, RUN)
    noted = await add_message(store, RUN, "No, two!")
    assert first.suspended.questions == noted.state.questions
    asked = first.suspended.questions[0].id
    result = await agent.resume(RUN, {asked: "reject"}, context(llm, store))

    said = [(one.role, one.content) for one in llm.requests[-1].messages]
    assert ("user", "No, two!") == said[-1]
    assert "tool" == said[-2][0]
    assert ("well", []) == (result.output, effects)


@pytest.mark.filterwarnings("ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning")
async def test_a_store_of_five_methods_carries_on_too() -> None:
    """Without fencing, as everything there."""
    store = ShimJournal.over(_FiveMethods())
    agent, effects = _buying()
    llm = _one_each()
    await agent.run(TASK, context(llm, store))

    result = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)
    again = await agent.run(MORE, context(llm, store, run_id="r2"), after=RUN)

    assert "2 in all" == result.output == again.output
    assert [RUN, "r2"] == [run for run, _ in effects]


async def test_a_stream_and_a_run_without_a_loop_carry_on_too(tmp_path: Path) -> None:
    """`stream(after=)` and `run_sync(after=)`."""
    url = f"sqlite:///{tmp_path}/runs.db"
    agent = Agent("talker", FakeLLM(lambda messages: Turn(f"{len(messages)} so far")))
    await agent.run(TASK, run_id=RUN, store=url)
    store = SqliteCheckpointStore(str(tmp_path / "runs.db"))
    llm = FakeLLM(lambda messages: Turn(f"{len(messages)} so far"))

    events = await events_of(agent.stream(MORE, context(llm, store, run_id="r2"), after=RUN))
    last = await asyncio.to_thread(agent.run_sync, MORE, run_id="r3", store=url, after="r2")

    assert events[-1].result is not None
    assert ("3 so far", "5 so far") == (events[-1].result.output, last.output)
    await store.aclose()
