"""Tools that wait: for a person, for a time, for something that happens outside."""

import asyncio
import datetime as dt
import functools
from collections.abc import Awaitable, Callable, Mapping

import pytest

from agentkit.agents import Agent, AgentResult, send_event
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    DeadlinePassed,
    InvalidDecision,
    InvalidId,
    InvalidSpec,
    NoteRefused,
    RunSuspended,
)
from agentkit.core.contracts.heads import Summary
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.core.runtime import RunContext
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.tools import Tool, ToolContext, ask_human, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    entries_of,
    kinds_of,
    messages_of,
    then,
)

YEAR_SECONDS = 365 * 24 * 3600.0


class Hall:
    """A run whose model calls these tools once, in one turn, on a clock of its own."""

    def __init__(self, *tools: Tool, **arguments: JSON) -> None:
        self.tools = tools
        self.store = InMemoryCheckpointStore()
        self.clock = FakeClock()
        asked = [call(one.name, call_id=f"c{at}", **arguments) for at, one in enumerate(tools)]
        self.llm = then(calls(*asked))

    def agent(self) -> Agent:
        """As another process would make it."""
        return agent_of(*self.tools)

    def context(self) -> RunContext:
        """As another process would make it."""
        return context(self.llm, self.store, clock=self.clock)

    async def run(self) -> AgentResult:
        """Start the run, or carry it on."""
        return await self.agent().run(TASK, self.context())

    async def resume(self, decisions: Mapping[str, Decision | JSON] | None = None) -> AgentResult:
        """Decide, and carry it on."""
        return await self.agent().resume(RUN, decisions or {}, self.context())

    async def summary(self) -> Summary:
        """What the store tells of it."""
        head = await self.store.head(RUN)
        assert head is not None
        assert head.summary is not None
        assert "" == head.owner or head.summary.status != "suspended"
        return head.summary

    async def results(self) -> list[str]:
        """What the model was given for its calls."""
        return [one.content for one in await messages_of(self.store) if one.role == "tool"]

    async def assert_sound(self) -> None:
        """No invariant is broken."""
        rows = await read_rows(self.store, RUN)
        found = check(Evidence(run=RUN, rows=rows, head=await self.store.head(RUN)))
        assert not found, report(found)


def _open(result: AgentResult) -> tuple[Question, ...]:
    assert result.suspended is not None, result
    return result.suspended.questions


# --- asking a person ------------------------------------------------------------------------------


async def test_a_tool_asks_and_goes_on_with_the_answer() -> None:
    """It is entered again from its first line; the question is like any other one."""
    entered: list[int] = []

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        entered.append(ctx.attempt)
        answer = await ctx.ask("Which one?", choices=["a", "b"])
        return f"took {answer}"

    hall = Hall(choose)
    [question] = _open(await hall.run())
    summary = await hall.summary()
    result = await hall.resume({question.id: "b"})

    assert ("input", "choose", "Which one?", ("answer",)) == (
        question.kind,
        question.tool,
        question.prompt,
        question.answers,
    )
    assert ("suspended", None) == (summary.status, summary.due_at)
    assert ("done", [1, 2]) == (result.output, entered)
    assert ["took b"] == await hall.results()
    assert ["", "wait"] == [one.by for one in await bodies_of(hall.store, e.ToolStarted)]
    await hall.assert_sound()


@pytest.mark.parametrize("answer", [False, 0, "", [], {}, None, "no", 0.0])
async def test_f033_whatever_is_given_is_the_answer(answer: JSON) -> None:
    """Presence counts, not truth; as it is, or in a `Decision`."""
    got: list[JSON] = []

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        got.append(await ctx.ask("Well?"))
        return "ok"

    for given in (answer, Decision("answer", value=answer, actor="ann")):
        hall = Hall(choose)
        [question] = _open(await hall.run())
        assert "done" == (await hall.resume({question.id: given})).output

    assert [answer, answer] == got
    assert [type(answer)] * 2 == [type(one) for one in got]


@pytest.mark.parametrize(
    ("options", "wrong", "right"),
    [
        ({"choices": ["a", 1]}, ["b", True, None, 1.5, "A"], 1),
        ({"schema": {"type": "integer", "minimum": 3}}, [2, "3", True, None, 3.5], 3),
        ({"schema": {"type": ["string", "null"], "maxLength": 2}}, ["abc", 1], None),
        (
            {
                "schema": {
                    "type": "object",
                    "properties": {"n": {"type": "number"}},
                    "required": ["n"],
                    "additionalProperties": False,
                }
            },
            [{}, {"n": "1"}, {"n": 1, "m": 2}, []],
            {"n": 1.5},
        ),
        ({"schema": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1}}, [[], [3]], [2]),
    ],
)
async def test_an_answer_is_checked_before_anything_is_recorded(
    options: dict[str, JSON], wrong: list[JSON], right: JSON
) -> None:
    """By what the tool said when it asked, which anybody can check."""

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> JSON:
        return await ctx.ask("Well?", **options)  # type: ignore[arg-type]  # drawn

    hall = Hall(choose)
    [question] = _open(await hall.run())
    before = await kinds_of(hall.store)

    for answer in [*wrong, Decision("approve"), Decision("yes")]:
        with pytest.raises(InvalidDecision):
            await hall.resume({question.id: answer})

    assert before == await kinds_of(hall.store)
    assert "done" == (await hall.resume({question.id: right})).output


@pytest.mark.parametrize(
    "options",
    [
        {"schema": {"$ref": "#/x"}},
        {"schema": {"type": "date"}},
        {"schema": {"enum": []}},
        {"schema": {"items": 1}},
        {"schema": {"minimum": "1"}},
        {"schema": {"type": "string"}, "choices": ["a"]},
        {"choices": []},
        {"choices": "abc"},
        {"prompt": " "},
        {"on_deadline": "approve"},
    ],
)
async def test_what_cannot_be_checked_cannot_be_asked(options: dict[str, JSON]) -> None:
    """It is the tool's error, and nobody is asked."""

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> JSON:
        more = options.copy()
        prompt = str(more.pop("prompt", "Well?"))
        return await ctx.ask(prompt, **more)  # type: ignore[arg-type]  # drawn

    hall = Hall(choose)

    assert "done" == (await hall.run()).output
    [result] = await hall.results()
    assert result.startswith("InvalidSpec: ask")


async def test_f021_each_question_gets_its_own_answer() -> None:
    """Two calls of one tool, two questions each, answered in swapped order, one by one."""

    @tool(side_effecting=False)
    async def form(ctx: ToolContext, who: str) -> list[JSON]:
        return [who, await ctx.ask("Name?"), await ctx.ask("Age?")]

    hall = Hall(form)
    hall.llm = then(calls(call("form", call_id="x", who="1"), call("form", call_id="x", who="2")))
    first, second = _open(await hall.run())
    [again, third] = sorted(_open(await hall.resume({second.id: "b"})), key=lambda q: int(q.id[1:]))
    left = _open(await hall.resume({first.id: "a"}))
    fourth = next(one for one in left if one.id != third.id)
    result = await hall.resume({third.id: 2, fourth.id: 1})

    assert again.id == first.id
    assert "done" == result.output
    assert ['["1","a",1]', '["2","b",2]'] == await hall.results()
    await hall.assert_sound()


async def test_questions_of_one_gather_are_asked_together() -> None:
    """All of them are on record before the tool is left, and each answer is kept."""

    @tool(side_effecting=False)
    async def form(ctx: ToolContext) -> list[JSON]:
        return list(await asyncio.gather(ctx.ask("Name?"), ctx.ask("Age?"), ctx.ask("Town?")))

    hall = Hall(form)
    name, age, town = _open(await hall.run())
    left = _open(await hall.resume({age.id: 3}))
    result = await hall.resume({town.id: "x", name.id: "n"})

    assert [name.id, town.id] == [one.id for one in left]
    assert "done" == result.output
    assert ['["n",3,"x"]'] == await hall.results()
    await hall.assert_sound()


async def test_the_model_may_ask_a_person() -> None:
    """`ask_human` is a tool like any other one."""
    hall = Hall(ask_human, question="Shall I?", choices=["yes", "no"])
    [question] = _open(await hall.run())

    with pytest.raises(InvalidDecision, match="must be one of"):
        await hall.resume({question.id: "maybe"})
    result = await hall.resume({question.id: "no"})

    assert ("Shall I?", "done") == (question.prompt, result.output)
    assert ["no"] == await hall.results()


async def test_a_repeated_answer_is_told_and_another_one_refused() -> None:
    """As with every decision."""

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> JSON:
        return await ctx.ask("Well?")

    hall = Hall(choose)
    [question] = _open(await hall.run())
    await hall.resume({question.id: False})

    again = await hall.resume({question.id: False})
    with pytest.raises(InvalidDecision, match="already decided"):
        await hall.resume({question.id: 0})

    assert (question.id,) == again.already_decided


async def test_f039_an_answer_about_something_else_answers_nothing() -> None:
    """A note that is bound to another digest leaves the question open, and the tool waits on."""

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> JSON:
        return await ctx.ask("Well?")

    hall = Hall(choose)
    [question] = _open(await hall.run())
    other = e.Decided(question.id, "answer", "another digest", '"x"')
    note = e.Entry(0, "n", 1, "agent:worker", 0, other)
    hall.store = await dead_worker([*await entries_of(hall.store), note])

    still = [one.id for one in _open(await hall.resume())]
    result = await hall.resume({question.id: "y"})

    assert [question.id] == still
    assert ("done", ["y"]) == (result.output, await hall.results())


# --- time -----------------------------------------------------------------------------------------


async def test_a_tool_sleeps_for_a_year_without_a_process() -> None:
    """The store knows when the run wants a worker; before that nothing moves it."""

    @tool(side_effecting=False)
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep(YEAR_SECONDS)
        return f"awake at attempt {ctx.attempt}"

    hall = Hall(nap)
    first = await hall.run()
    due = (await hall.summary()).due_at
    before = await kinds_of(hall.store)
    hall.clock.advance(YEAR_SECONDS - 1)
    early = await hall.resume()
    with pytest.raises(RunSuspended, match="waits for sleep"):
        await hall.run()
    same = await kinds_of(hall.store)
    hall.clock.advance(1.0)
    result = await hall.run()

    assert ("suspended", "suspended", "done") == (
        first.stop_reason,
        early.stop_reason,
        result.output,
    )
    assert first.suspended is not None
    assert [("time", "nap", due)] == [
        (one.kind, one.tool, one.until) for one in first.suspended.waits
    ]
    assert before == same
    assert ["awake at attempt 2"] == await hall.results()
    await hall.assert_sound()


async def test_a_sleeping_call_lets_others_of_its_turn_run() -> None:
    """Only it waits."""

    @tool(side_effecting=False)
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep(5)
        return "awake"

    @tool(side_effecting=True)
    async def mail() -> str:
        return "sent"

    hall = Hall(nap, mail)
    await hall.run()
    before = [one.content for one in await bodies_of(hall.store, e.ToolFinished)]
    hall.clock.advance(5.0)
    result = await hall.resume()

    assert (["sent"], "done") == (before, result.output)
    assert ["awake", "sent"] == await hall.results()


async def test_a_tool_sleeps_until_a_time_and_one_that_has_passed_is_no_wait_long() -> None:
    """`datetime` with a zone, or seconds since the epoch; the first attempt fixes the time."""

    @tool(side_effecting=False)
    async def nap(ctx: ToolContext) -> str:
        now = hall.clock.now()
        await ctx.sleep_until(dt.datetime.fromtimestamp(now + 60, dt.UTC), name="one")
        await ctx.sleep_until(now - 60, name="two")
        return "awake"

    hall = Hall(nap)
    await hall.run()
    hall.clock.advance(60.0)

    assert "done" == (await hall.resume()).output
    assert 2 == len(await bodies_of(hall.store, e.WaitEnded))


@pytest.mark.parametrize("when", [float("nan"), float("inf"), "1", None, dt.datetime(2030, 1, 1)])  # noqa: DTZ001 - wrong on purpose
async def test_times_that_are_none_are_refused(when: object) -> None:
    """A time without a zone would mean another moment on another machine."""
    ctx = ToolContext()

    with pytest.raises(ValueError, match="sleep_until takes a time"):
        await ctx.sleep_until(when)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
async def test_lengths_that_are_none_are_refused(seconds: object) -> None:
    """Nothing waits for ever by mistake."""
    ctx = ToolContext()

    with pytest.raises(ValueError, match="number of seconds"):
        await ctx.sleep(seconds)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="timeout must be"):
        await ctx.ask("?", timeout=seconds)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("kind", ["ask", "event"])
@pytest.mark.parametrize("on_deadline", ["fail", "skip"])
async def test_what_does_not_come_in_time_is_told_to_the_tool(kind: str, on_deadline: str) -> None:
    """It fails, or goes on with nothing, as it said."""

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        options: dict[str, object] = {"timeout": 60, "on_deadline": on_deadline}
        wait: Callable[..., Awaitable[JSON]] = ctx.ask if kind == "ask" else ctx.wait_for
        try:
            return f"got {await wait('it', **options)}"
        except DeadlinePassed as exc:
            return str(exc)

    hall = Hall(choose)
    first = await hall.run()
    due = (await hall.summary()).due_at
    hall.clock.advance(60.0)
    if kind == "ask":
        with pytest.raises(InvalidDecision, match="deadline has passed"):
            await hall.resume({_open(first)[0].id: 1})
    result = await hall.run()

    assert int(hall.clock.now() * 1000) == due
    assert "done" == result.output
    [text] = await hall.results()
    assert ("did not come within 60 seconds" in text) == (on_deadline == "fail")
    await hall.assert_sound()


# --- events ---------------------------------------------------------------------------------------


@tool(side_effecting=False)
async def paid(ctx: ToolContext, times: int = 1) -> list[JSON]:
    """Wait for payments."""
    return [await ctx.wait_for("payment") for _ in range(times)]


async def test_an_event_moves_the_run_that_waits_for_it() -> None:
    """Told without the agent, by anybody who has the store."""
    hall = Hall(paid)
    first = await hall.run()
    before = (await hall.summary()).due_at
    other = await send_event(hall.store, RUN, "parcel", 1)
    still = (await hall.summary()).due_at
    told = await send_event(hall.store, RUN, "payment", {"cents": 5}, event_id="p1", actor="bank")
    due = (await hall.summary()).due_at
    result = await hall.resume()

    assert first.suspended is not None
    assert ["payment"] == [one.event for one in first.suspended.waits]
    assert (None, None, 0) == (before, still, due)
    assert (False, False) == (other.repeated, told.repeated)
    assert "done" == result.output
    assert ['[{"cents":5}]'] == await hall.results()
    await hall.assert_sound()


async def test_an_event_counts_once_whoever_tells_it_how_often() -> None:
    """The id is what counts, also after it was delivered."""
    hall = Hall(paid, times=2)
    await hall.run()
    first = await send_event(hall.store, RUN, "payment", 1, event_id="p1")
    again = await send_event(hall.store, RUN, "payment", 1, event_id="p1")
    waiting = await hall.resume()
    late = await send_event(hall.store, RUN, "payment", 1, event_id="p1")
    await send_event(hall.store, RUN, "payment", 4, event_id="p2")
    result = await hall.resume()

    assert [False, True, True] == [one.repeated for one in (first, again, late)]
    assert ("suspended", "done") == (waiting.stop_reason, result.output)
    assert ["[1,4]"] == await hall.results()
    assert 2 == len(await bodies_of(hall.store, e.EventReceived))


async def test_events_that_come_early_are_kept_in_their_order() -> None:
    """A tool that waits later gets them at once, each once, oldest first."""

    @tool(side_effecting=False)
    async def start(ctx: ToolContext) -> str:
        await ctx.ask("Go?")
        return "gone"

    hall = Hall(start, paid)
    hall.llm = then([calls(call("start")), calls(call("paid", call_id="c2", times=3))])
    [question] = _open(await hall.run())
    for number in (1, 2):
        await send_event(hall.store, RUN, "payment", number)
    waiting = await hall.resume({question.id: "yes"})
    assert "suspended" == waiting.stop_reason
    await send_event(hall.store, RUN, "payment", 3)
    result = await hall.resume()

    assert "done" == result.output
    assert ["gone", "[1,2,3]"] == await hall.results()
    await hall.assert_sound()


async def test_f021_each_event_goes_to_the_call_that_has_waited_longest() -> None:
    """Two calls wait for one name: the first event is the first call's."""
    hall = Hall(paid)
    hall.llm = then(calls(call("paid", call_id="a"), call("paid", call_id="b", times=1)))
    await hall.run()
    await send_event(hall.store, RUN, "payment", 1)
    await hall.resume()
    await send_event(hall.store, RUN, "payment", 2)

    assert "done" == (await hall.resume()).output
    assert ["[1]", "[2]"] == await hall.results()


async def test_an_event_that_came_in_time_counts_though_nobody_looked_until_later() -> None:
    """The deadline has passed when a worker comes, and the wait was over before that."""

    @tool(side_effecting=False)
    async def collect(ctx: ToolContext) -> JSON:
        return await ctx.wait_for("payment", timeout=60, on_deadline="skip")

    hall = Hall(collect)
    await hall.run()
    hall.clock.advance(30.0)
    await send_event(hall.store, RUN, "payment", 5)
    hall.clock.advance(60.0)
    result = await hall.run()

    assert ("done", ["5"]) == (result.output, await hall.results())
    assert [] == await bodies_of(hall.store, e.WaitEnded)
    await hall.assert_sound()


async def test_an_ended_run_takes_no_event() -> None:
    """What nobody will ever read is refused."""
    hall = Hall(paid)
    await hall.run()
    await send_event(hall.store, RUN, "payment")
    await hall.resume()

    with pytest.raises(NoteRefused):
        await send_event(hall.store, RUN, "payment")
    with pytest.raises(InvalidId):
        await send_event(hall.store, RUN, "")


# --- F034: nothing that a tool does keeps it from waiting -----------------------------------------


async def _swallowed(ctx: ToolContext) -> JSON:
    try:
        return await ctx.ask("Well?")
    except Exception:  # noqa: BLE001 - as users write
        return "swallowed"


async def _retried(ctx: ToolContext) -> JSON:
    for _ in range(3):
        try:
            return await ctx.ask("Well?", name="it")
        except BaseException:  # noqa: BLE001 - as users write
            continue
    return "gave up"


async def _bounded(ctx: ToolContext) -> JSON:
    async with asyncio.timeout(5):
        return await asyncio.wait_for(ctx.ask("Well?"), 5)


async def _gathered(ctx: ToolContext) -> JSON:
    first, _ = await asyncio.gather(ctx.ask("Well?"), asyncio.sleep(0), return_exceptions=True)
    return str(first)


async def _grouped(ctx: ToolContext) -> JSON:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ctx.ask("Well?"))
    return asked.result()


async def _shielded(ctx: ToolContext) -> JSON:
    return await asyncio.shield(asyncio.ensure_future(ctx.ask("Well?")))


async def _finished(ctx: ToolContext) -> JSON:
    try:
        return await ctx.ask("Well?")
    finally:
        return_value = "done anyway"
        if ctx.attempt == 1:
            return return_value  # noqa: B012 - as users write


def _retrying(function: Callable[..., object]) -> Callable[..., object]:
    """What users put around functions that may fail: a few attempts, then a default."""

    @functools.wraps(function)
    async def attempts(*given: object, **named: object) -> object:
        for _ in range(3):
            try:
                return await function(*given, **named)  # type: ignore[misc]  # a coroutine
            except Exception:  # noqa: BLE001 - as users write
                continue
        return "gave up"

    return attempts


@_retrying
async def _decorated(ctx: ToolContext) -> JSON:
    return await ctx.ask("Well?")


async def _nested(ctx: ToolContext) -> JSON:
    async def ask() -> JSON:
        async with asyncio.timeout(5):
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(_gathered(ctx))
            return asked.result()

    try:
        return await asyncio.shield(asyncio.ensure_future(ask()))
    except BaseExceptionGroup:
        return "a group"
    except BaseException:  # noqa: BLE001 - as users write
        return "swallowed"


def _in_thread(ctx: ToolContext) -> JSON:
    try:
        return ctx.ask_sync("Well?")
    except Exception:  # noqa: BLE001 - as users write
        return "swallowed"


def _in_thread_swallowed(ctx: ToolContext) -> JSON:
    try:
        return ctx.ask_sync("Well?")
    except BaseException:  # noqa: BLE001 - as users write
        return "swallowed"


@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        _swallowed,
        _retried,
        _bounded,
        _gathered,
        _grouped,
        _decorated,
        _nested,
        _shielded,
        _finished,
        _in_thread,
        _in_thread_swallowed,
    ],
)
async def test_f034_a_tool_that_waits_waits(function: Callable[..., object], key: bool) -> None:
    """Through except, retry, timeout, gather, groups, shield, finally, in loop and thread; with
    attempts left, which stay unused; what the attempt makes of its end counts for nothing.
    """
    options = {"side_effecting": True, "idempotent": True} if key else {"side_effecting": False}
    made = tool(name="it", max_attempts=1, **options)(function)  # type: ignore[arg-type]  # drawn
    hall = Hall(made)

    [question] = _open(await hall.run())
    before = await bodies_of(hall.store, e.ToolFinished)
    result = await hall.resume({question.id: "yes"})

    assert [] == before
    assert "done" == result.output
    assert ["yes"] == await hall.results()
    await hall.assert_sound()


# --- what a tool does before it waits -------------------------------------------------------------


async def test_recorded_steps_are_not_done_again() -> None:
    """A side-effecting tool may wait where each effect is inside `record`."""
    log: list[str] = []

    def noted(what: str) -> int:
        log.append(what)
        return len(log)

    @tool(side_effecting=True)
    async def order(ctx: ToolContext) -> str:
        number = await ctx.record("order", lambda: noted("ordered"))
        await ctx.sleep(60)
        said = await ctx.ask("Keep it?")
        done = await ctx.record("end", lambda: noted(f"end {said}"))
        return f"{number} {done} {ctx.idempotency_key != ''}"

    hall = Hall(order)
    await hall.run()
    hall.clock.advance(60.0)
    [question] = _open(await hall.resume())
    result = await hall.resume({question.id: False})

    assert ("done", ["ordered", "end False"]) == (result.output, log)
    assert ["1 2 True"] == await hall.results()
    assert 1 == len({one.key for one in await bodies_of(hall.store, e.ToolStarted)})
    await hall.assert_sound()


@pytest.mark.parametrize("border", ["asked", "left", "decided", "entered"])
async def test_a_worker_may_die_around_a_wait(border: str) -> None:
    """Before the tool is left, or after, the call waits and is not in doubt; once it was entered
    again it is, as any call that was under way.
    """

    @tool(side_effecting=True)
    async def order(ctx: ToolContext) -> str:
        return f"got {await ctx.ask('Well?')}"

    hall = Hall(order)
    [question] = _open(await hall.run())
    await hall.resume({question.id: "x"})
    entries = await entries_of(hall.store)
    kinds = [type(one.body).__name__ for one in entries]
    last = {
        "asked": kinds.index("QuestionAsked"),
        "left": kinds.index("StepCompleted"),
        "decided": kinds.index("Decided"),
        "entered": len(kinds) - 1 - kinds[::-1].index("ToolStarted"),
    }[border]
    hall.store = await dead_worker(entries[: last + 1])

    again = await hall.resume()

    if border == "entered":
        assert ["in_doubt"] == [one.kind for one in _open(again)]
    elif border == "decided":
        assert "done" == again.output
    else:
        assert [(question.id, "input")] == [(one.id, one.kind) for one in _open(again)]
        assert "done" == (await hall.resume({question.id: "x"})).output
    await hall.assert_sound()


async def test_an_effect_after_an_event_that_was_there_already_is_in_doubt_after_a_crash() -> None:
    """The attempt went on, so whether it took effect is not known: it is not just entered again."""
    log: list[str] = []

    @tool(side_effecting=True)
    async def ship(ctx: ToolContext) -> str:
        await ctx.wait_for("payment")
        log.append("shipped")
        return "shipped"

    @tool(side_effecting=False)
    async def first(ctx: ToolContext) -> str:
        return str(await ctx.ask("Go?"))

    hall = Hall(first, ship)
    hall.llm = then([calls(call("first")), calls(call("ship", call_id="c2"))])
    [question] = _open(await hall.run())
    await send_event(hall.store, RUN, "payment")
    await hall.resume({question.id: 1})
    entries = await entries_of(hall.store)
    border = [one.seq for one in entries if isinstance(one.body, e.WaitStarted)][-1]
    hall.store = await dead_worker(entries[:border])

    again = await hall.resume()

    assert ["in_doubt"] == [one.kind for one in _open(again)]
    assert ["shipped"] == log


async def test_attempts_that_waited_do_not_count() -> None:
    """`max_attempts` is about failures: two waits and a failure leave one attempt of two."""
    failures: list[int] = []

    @tool(side_effecting=False, max_attempts=2)
    async def flaky(ctx: ToolContext) -> str:
        await ctx.ask("One?", name="one")
        await ctx.ask("Two?", name="two")
        failures.append(ctx.attempt)
        if len(failures) == 1:
            raise ConnectionError("down")
        return "up"

    hall = Hall(flaky)
    [one] = _open(await hall.run())
    [two] = _open(await hall.resume({one.id: 1}))
    result = await hall.resume({two.id: 2})

    assert ("done", [3, 4]) == (result.output, failures)
    assert ["up"] == await hall.results()


async def test_a_transactional_tool_and_a_reconcile_cannot_wait() -> None:
    """A test's own context has nothing to wait for either, unless it is given a waiter."""
    with pytest.raises(RuntimeError, match="only wait in a run"):
        await ToolContext().ask("Well?")
    with pytest.raises(InvalidSpec, match="choices or a schema"):
        await ToolContext().ask("Well?", choices=[1], schema={})


async def test_a_tool_that_is_gone_when_its_wait_ends_is_asked_about() -> None:
    """Nobody can enter it again, so a person decides; nothing is dropped."""
    hall = Hall(paid)
    await hall.run()
    await send_event(hall.store, RUN, "payment")
    hall.tools = ()

    with pytest.warns(UserWarning, match="has changed"):
        [question] = _open(await hall.resume())

    assert ("in_doubt", "paid") == (question.kind, question.tool)
    assert "There is no tool 'paid'" in question.prompt
