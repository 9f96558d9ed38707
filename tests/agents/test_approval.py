"""Calls that wait for a person: which do, what may be answered, and what follows from it."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import pytest

from agentkit.agents import Agent, AgentResult, submit
from agentkit.agents.checking import DefinitionChangedWarning
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    AlreadyDecided,
    InvalidDecision,
    InvalidSpec,
    RunIdReused,
    RunSuspended,
)
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.core.contracts.values import digest
from agentkit.core.runtime import RunContext, Services, SystemClock
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.tools import ToolContext, tool
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
    events_of,
    kinds_of,
    messages_of,
    then,
    told,
)

YEAR_SECONDS = 365 * 24 * 3600.0


class Desk:
    """An agent whose `pay` needs approval, on one store, and what its tools did."""

    def __init__(self, *turns: Sequence[tuple[str, int]], **options: object) -> None:
        self.log: list[str] = []
        self.keys: list[str] = []
        self.store = InMemoryCheckpointStore()
        self.clock = FakeClock()
        self.options = {"requires_approval": True, **options}
        self.llm = then(
            [
                calls(
                    *(
                        call(name, call_id=f"{name}{cents}", cents=cents)
                        for at, (name, cents) in enumerate(turn)
                    )
                )
                for turn in turns
            ]
        )

    def agent(self, *, name: str = "worker", max_iterations: int = 50) -> Agent:
        """As another process would make it."""

        @tool(side_effecting=False)
        async def look(cents: int) -> str:
            self.log.append(f"look {cents}")
            return f"saw {cents}"

        @tool(side_effecting=True, idempotent=True, **self.options)  # type: ignore[arg-type]  # drawn
        async def pay(cents: int, ctx: ToolContext, to: str = "ann") -> str:
            self.log.append(f"pay {cents}" if to == "ann" else f"pay {cents} to {to}")
            self.keys.append(ctx.idempotency_key)
            return f"paid {cents}"

        @tool(side_effecting=True)
        async def mail(cents: int) -> str:
            self.log.append(f"mail {cents}")
            return f"sent {cents}"

        return agent_of(look, pay, mail, name=name, max_iterations=max_iterations)

    def context(
        self,
        *,
        llm: FakeLLM | None = None,
        store: JournalPort | None = None,
        autonomy: Literal["auto", "gated", "manual"] = "gated",
        clock: ClockPort | None = None,
    ) -> RunContext:
        """As another process would make it."""
        made = context(llm or self.llm, store or self.store, clock=clock or self.clock)
        return RunContext(
            correlation_id=RUN, services=made.services, autonomy=autonomy, identity="me"
        )

    async def run(self, **given: object) -> AgentResult:
        """Start the run."""
        return await self.agent().run(TASK, self.context(**given))  # type: ignore[arg-type]  # drawn

    async def resume(
        self, decisions: Mapping[str, Decision | str], *, clock: ClockPort | None = None
    ) -> AgentResult:
        """Decide, in a process of its own."""
        return await self.agent().resume(RUN, decisions, self.context(clock=clock))

    async def results(self) -> list[str]:
        """What the model was given for its calls."""
        return [one.content for one in await messages_of(self.store) if one.role == "tool"]

    async def assert_sound(self) -> None:
        """No invariant is broken."""
        rows = await read_rows(self.store, RUN)
        found = check(Evidence(run=RUN, rows=rows, head=await self.store.head(RUN)))
        assert not found, report(found)


def _open(result: AgentResult) -> tuple[Question, ...]:
    assert result.suspended is not None
    return result.suspended.questions


# --- which calls wait -----------------------------------------------------------------------------

REQUIRED = {
    "no": False,
    "yes": True,
    "always": "always",
    "over 50": lambda given, _: given["cents"] > 50,
}


@pytest.mark.parametrize(
    ("autonomy", "required", "waits"),
    [
        ("auto", "no", False),
        ("auto", "yes", False),
        ("auto", "over 50", False),
        ("auto", "always", True),
        ("gated", "no", False),
        ("gated", "yes", True),
        ("gated", "over 50", True),
        ("gated", "always", True),
        ("manual", "no", True),
        ("manual", "yes", True),
        ("manual", "over 50", True),
        ("manual", "always", True),
    ],
)
async def test_tool_and_autonomy_say_which_calls_wait(
    autonomy: Literal["auto", "gated", "manual"], required: str, waits: bool
) -> None:
    """The table of the reference page."""
    desk = Desk([("pay", 90)], requires_approval=REQUIRED[required])

    result = await desk.run(autonomy=autonomy)

    assert waits == (result.suspended is not None)
    assert ([] if waits else ["pay 90"]) == desk.log


async def test_a_manual_run_asks_about_effects_alone_and_stays_manual() -> None:
    """A read is not asked about; and no later worker, whatever its context, is less strict."""
    desk = Desk([("look", 1), ("mail", 1)], [("mail", 2)])
    first = await desk.run(autonomy="manual")

    [question] = _open(first)
    second = await desk.resume({question.id: "approve"})

    assert ["look 1", "mail 1"] == desk.log
    assert ["mail"] == [one.tool for one in _open(second)]


async def test_a_later_context_may_be_stricter() -> None:
    """The stricter of start and resumption counts."""
    desk = Desk([("pay", 1)], [("mail", 2)])
    [question] = _open(await desk.run())

    strict = desk.context(autonomy="manual")
    result = await desk.agent().resume(RUN, {question.id: "approve"}, strict)

    assert ["mail"] == [one.tool for one in _open(result)]


@pytest.mark.parametrize("cents", [10, 90])
async def test_a_function_decides_for_each_call_and_is_asked_once(cents: int) -> None:
    """It gets checked arguments of its own, and the context; another worker does not ask again."""
    asked: list[tuple[object, str]] = []

    def decides(given: Mapping[str, JSON], ctx: RunContext) -> bool:
        asked.append((dict(given), ctx.identity))
        given.clear()  # type: ignore[attr-defined]  # spoils what it was given
        return cents > 50

    desk = Desk([("pay", cents)], requires_approval=decides)
    result = await desk.run()
    if cents > 50:
        result = await desk.resume({"pay90": "approve"})

    assert ("done", [f"pay {cents}"]) == (result.output, desk.log)
    assert [({"cents": cents}, "me")] == asked


def _raises(*_: object) -> bool:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("decides", "shown"),
    [(_raises, "ValueError: no idea"), (lambda *_: None, ""), (lambda *_: 0, "")],
)
async def test_a_function_that_does_not_say_false_means_that_the_call_waits(
    decides: Callable[..., object], shown: str
) -> None:
    """Nothing fails open: an exception, or a forgotten return, asks a person."""
    desk = Desk([("pay", 1)], requires_approval=decides)

    [question] = _open(await desk.run())

    assert [] == desk.log
    assert shown in question.prompt


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"requires_approval": "sometimes"}, "requires_approval is"),
        ({"requires_approval": None}, "requires_approval is"),
        ({"approval_seconds": 0}, "approval_seconds"),
        ({"approval_seconds": True}, "approval_seconds"),
        ({"on_deadline": "skip"}, "on_deadline is"),
        ({"on_deadline": "approve"}, "needs a deadline"),
        ({"on_repeat_refused": "never"}, "on_repeat_refused is"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], match: str) -> None:
    """At decoration, before any run."""
    with pytest.raises(InvalidSpec, match=match):
        Desk(**options).agent()


async def test_a_function_sees_the_autonomy_in_force() -> None:
    """Whoever drives the run: a worker's own context says `auto`."""
    seen: list[str] = []

    def unless_auto(_arguments: object, ctx: RunContext) -> bool:
        seen.append(ctx.autonomy)
        return ctx.autonomy != "auto"

    desk = Desk([("pay", 7)], requires_approval=unless_auto)
    await submit(desk.store, RUN, TASK, agent="worker")
    result = await desk.agent().carry_on(desk.context(autonomy="auto"))

    assert ("suspended", ["gated"], []) == (result.stop_reason, seen, desk.log)


def test_an_unknown_autonomy_is_refused() -> None:
    """A typing error must not make a run less strict."""
    with pytest.raises(InvalidSpec, match="autonomy is one of"):
        RunContext(correlation_id=RUN, autonomy="manuel")  # type: ignore[arg-type]  # wrong on purpose


async def test_an_async_function_cannot_decide() -> None:
    """Its coroutine would be no answer."""

    async def decides(*_: object) -> bool:
        return False

    with pytest.raises(InvalidSpec, match="write def, not async def"):
        Desk(requires_approval=decides).agent()


# --- what is shown, and when ----------------------------------------------------------------------


async def test_f040_the_question_shows_what_will_run() -> None:
    """Tool, canonical arguments with the tool's defaults, their digest, answers, path."""
    desk = Desk([("pay", 5)])
    [question] = _open(await desk.run())

    await desk.resume({question.id: "approve"})

    [started] = await bodies_of(desk.store, e.ToolStarted)
    assert ("approval", "pay", '{"cents":5,"to":"ann"}', "pay5") == (
        question.kind,
        question.tool,
        question.arguments,
        question.call_id,
    )
    assert ("approve", "reject", "edit") == question.answers
    assert (RUN, "agent:worker", "1.0") == question.path
    assert digest("pay", {"cents": 5, "to": "ann"}) == question.digest
    assert digest("pay", {"cents": 5}) == started.digest
    assert "human" == started.by


async def test_ungated_calls_of_the_turn_run_while_the_gated_one_waits() -> None:
    """The model is asked again only when all of them have their results, in call order."""
    desk = Desk([("pay", 1), ("look", 2), ("mail", 3)])

    first = await desk.run()
    before = list(desk.log)
    [question] = _open(first)
    last = await desk.resume({question.id: "approve"})

    assert (["look 2", "mail 3"], "suspended") == (sorted(before), first.stop_reason)
    assert "done" == last.output
    assert ["paid 1", "saw 2", "sent 3"] == await desk.results()
    await desk.assert_sound()


async def test_f027_the_question_is_durable_before_anybody_is_told() -> None:
    """Whoever saw the interrupt can rely on it: the lease is gone, any process finds it."""
    desk = Desk([("pay", 1)])
    stream = desk.agent().stream(TASK, desk.context())

    async for event in stream:
        if event.type == "interrupt":
            break
    kinds, head = await kinds_of(desk.store), await desk.store.head(RUN)

    assert ["QuestionAsked", "StepCompleted"] == kinds[-2:]
    assert head is not None
    assert ("", "suspended") == (head.owner, head.summary.status if head.summary else "")
    assert event.question is not None
    assert event.id == int(event.question.id[1:])


async def test_f032_run_on_a_suspended_run_refuses_with_its_questions() -> None:
    """Nothing is called or written by that, and the decision still counts afterwards."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    before = await kinds_of(desk.store)

    with pytest.raises(RunSuspended) as refused:
        await desk.run()
    same = await kinds_of(desk.store)
    result = await desk.resume({question.id: "approve"})

    assert (question,) == refused.value.questions
    assert before == same
    assert "done" == result.output


async def test_f037_resume_needs_no_message_and_ids_stay() -> None:
    """Polling a suspended run, streamed or not, shows the same questions and writes nothing."""
    desk = Desk([("pay", 1), ("pay", 2)])
    first = await desk.run()
    before = await kinds_of(desk.store)

    again = await desk.resume({})
    streamed = await events_of(desk.agent().resume_stream(RUN, {}, desk.context()))

    assert _open(first) == _open(again)
    assert ["interrupt pay", "interrupt pay", "final suspended"] == told(streamed)
    assert [one.id for one in _open(first)] == [f"q{event.id}" for event in streamed[:2]]
    assert before == await kinds_of(desk.store)


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["approve", "APPROVE", " Approve "])
async def test_words_are_read_in_any_case(word: str) -> None:
    """People type."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())

    assert "done" == (await desk.resume({question.id: word})).output
    assert ["pay 1"] == desk.log


@pytest.mark.parametrize(
    "given",
    [
        "yes",
        "",
        "approve!",
        "edit",
        "done",
        "run_again",
        "answer",
        True,
        False,
        None,
        1,
        {},
        {"answer": "approve"},
        Decision("yes"),
        Decision(""),
        Decision("edit"),
        Decision("edit", value=[1]),
        Decision("edit", value={}),
        Decision("edit", value={"cents": "5"}),
        Decision("edit", value={"cents": 5, "from": "x"}),
        Decision("approve", actor="\ud800"),
    ],
)
async def test_f022_anything_else_is_an_error_before_anything_is_done(given: object) -> None:
    """It neither runs nor closes the call, beside a good decision either."""
    desk = Desk([("pay", 1), ("pay", 2)])
    first, second = _open(await desk.run())
    before = await kinds_of(desk.store)

    with pytest.raises(InvalidDecision):
        await desk.resume({second.id: "approve", first.id: given})  # type: ignore[dict-item]  # wrong on purpose

    assert ([], before) == (desk.log, await kinds_of(desk.store))


@pytest.mark.parametrize("given", [["q1"], "approve", 3])
async def test_f022_decisions_belong_to_questions(given: object) -> None:
    """A bare answer is refused: with several questions open nobody knows whose it is."""
    desk = Desk([("pay", 1), ("pay", 2)])
    await desk.run()

    with pytest.raises(InvalidDecision, match="given by question"):
        await desk.resume(given)  # type: ignore[arg-type]  # wrong on purpose

    assert [] == desk.log


async def test_a_rejected_call_is_never_made_and_the_model_is_told_why() -> None:
    """Its result says so, the run goes on."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())

    rejected = Decision("reject", actor="ann", reason="too early")
    result = await desk.resume({question.id: rejected})

    [finished] = await bodies_of(desk.store, e.ToolFinished)
    assert ("done", []) == (result.output, desk.log)
    assert ("rejected", "ann") == (finished.outcome, finished.by)
    assert ["A person rejected this call, so it was not made. too early"] == await desk.results()
    assert (await messages_of(desk.store))[-1 - 1].is_error
    await desk.assert_sound()


async def test_an_edited_call_runs_with_the_edit_and_the_model_is_told() -> None:
    """Intent and digest are of what runs; the model reads what it ran with."""
    desk = Desk([("pay", 100)])
    [question] = _open(await desk.run())

    edit = Decision("edit", value={"to": "bob", "cents": 7})
    events = await events_of(desk.agent().resume_stream(RUN, {question.id: edit}, desk.context()))

    [started] = await bodies_of(desk.store, e.ToolStarted)
    announced = [
        event.call.arguments for event in events if event.type == "tool_call" and event.call
    ]
    assert ["pay 7 to bob"] == desk.log
    assert '{"cents":7,"to":"bob"}' == started.arguments
    assert digest("pay", {"cents": 7, "to": "bob"}) == started.digest
    assert [{"cents": 7, "to": "bob"}] == announced
    [result] = await desk.results()
    assert '{"cents":7,"to":"bob"}' in result
    assert result.endswith("paid 7")
    await desk.assert_sound()


async def test_an_edit_survives_the_crash_of_the_worker_that_ran_it() -> None:
    """The next attempt runs the edit too, under the same key; nobody is asked again."""
    desk = Desk([("pay", 100)])
    [question] = _open(await desk.run())
    await desk.resume({question.id: Decision("edit", value={"cents": 7})})
    entries = await entries_of(desk.store)
    border = next(one.seq for one in entries if isinstance(one.body, e.ToolStarted))

    desk.store = await dead_worker(entries[:border])
    result = await desk.run()

    assert ("done", ["pay 7", "pay 7"]) == (result.output, desk.log)
    assert 1 == len(set(desk.keys))
    assert 1 == len({one.digest for one in await bodies_of(desk.store, e.ToolStarted)})


async def test_the_providers_call_id_names_the_first_question_that_has_it() -> None:
    """Also once that is decided: the same word again changes nothing, another one is refused."""
    desk = Desk([("pay", 1), ("pay", 2)])
    first, second = _open(await desk.run())

    await desk.resume({"pay1": "approve"})
    assert (first.id,) == (await desk.resume({"pay1": "approve"})).already_decided
    with pytest.raises(AlreadyDecided):
        await desk.resume({"pay1": "reject"})
    with pytest.raises(InvalidDecision, match="decided twice"):
        await desk.resume({"pay2": "approve", second.id: "reject"})

    assert (["pay 1"], first.call_id) == (desk.log, "pay1")


async def test_an_id_that_two_calls_carry_names_neither() -> None:
    """Some providers repeat their ids within a turn."""
    desk = Desk()
    desk.llm = then(calls(call("pay", cents=1), call("pay", cents=2)))
    await desk.run()

    with pytest.raises(InvalidDecision, match="no open question 'c1'"):
        await desk.resume({"c1": "approve"})

    assert [] == desk.log


# --- each subset, each order ----------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
async def test_f008_f015_f017_f021_f023_every_subset_in_every_order(many: int) -> None:
    """One decision moves its own call and no other; the rest stays open; in the end each call has
    its one result, in call order, whatever came first.
    """
    amounts = list(range(1, many + 1))
    for order in itertools.permutations(amounts):
        for together in {1, many}:
            desk = Desk([("pay", cents) for cents in amounts])
            result = await desk.run()
            questions = dict(zip(amounts, _open(result), strict=True))
            left = list(order)
            while left:
                group, left = left[:together], left[together:]
                answers = {questions[one].id: _answer(one) for one in group}
                result = await desk.resume(answers)
                assert sorted(left) == [
                    one for one in amounts if questions[one] in _open_or_none(result)
                ]
            assert "done" == result.output
            paid = [one for one in order if _answer(one) == "approve"]
            assert sorted(f"pay {one}" for one in paid) == sorted(desk.log)
            expected = ["paid" if one in paid else "A person" for one in amounts]
            assert expected == [
                text[: len(start)]
                for text, start in zip(await desk.results(), expected, strict=True)
            ]
            await desk.assert_sound()


def _answer(cents: int) -> str:
    return "reject" if cents == 2 else "approve"


def _open_or_none(result: AgentResult) -> tuple[Question, ...]:
    return result.suspended.questions if result.suspended is not None else ()


async def test_f023_a_repeated_decision_changes_nothing_and_says_so() -> None:
    """While others are open, after the call ran, and after the run has ended."""
    desk = Desk([("pay", 1), ("pay", 2)])
    first, second = _open(await desk.run())

    once = await desk.resume({first.id: "approve"})
    open_still = await desk.resume({first.id: "approve"})
    ended = await desk.resume({first.id: "approve", second.id: "approve"})
    after = await desk.resume({second.id: "approve"})

    assert [(), (first.id,), (first.id,), (second.id,)] == [
        one.already_decided for one in (once, open_still, ended, after)
    ]
    assert ["pay 1", "pay 2"] == desk.log
    assert 2 == len(await bodies_of(desk.store, e.Decided))


async def test_another_decision_than_the_recorded_one_is_refused() -> None:
    """The first word stands, for approvals and refusals alike."""
    desk = Desk([("pay", 1), ("pay", 2)])
    first, second = _open(await desk.run())
    await desk.resume({first.id: Decision("reject", actor="ann")})

    with pytest.raises(AlreadyDecided, match=r"already decided \('reject' by ann\)"):
        await desk.resume({first.id: "approve", second.id: "approve"})

    assert [] == desk.log


@pytest.mark.parametrize("name", ["q1", "q999", "pay7", "", "q"])
async def test_unknown_and_foreign_questions_are_refused(name: str) -> None:
    """The error lists what is open."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())

    with pytest.raises(InvalidDecision, match=f"open questions: {question.id}"):
        await desk.resume({name: "approve"})

    assert [] == desk.log


async def test_f042_twenty_decisions_at_once_run_the_call_once() -> None:
    """Half approve and half reject: one side wins, the others are told."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    machine = SystemClock()

    answers = ["approve", "reject"] * 10
    ended = await asyncio.gather(
        *(desk.resume({question.id: answer}, clock=machine) for answer in answers),
        return_exceptions=True,
    )

    [decided] = await bodies_of(desk.store, e.Decided)
    lost = [one for one, answer in zip(ended, answers, strict=True) if answer != decided.answer]
    assert (["pay 1"] if decided.answer == "approve" else []) == desk.log
    assert all(isinstance(one, AlreadyDecided) for one in lost)
    await desk.assert_sound()


# --- what an approval covers ----------------------------------------------------------------------


async def test_f039_an_approval_covers_one_call() -> None:
    """A later call with the same provider id, or the very same arguments, is asked about anew."""
    desk = Desk()
    desk.llm = then(
        [calls(call("pay", cents=1)), calls(call("pay", cents=1)), calls(call("pay", cents=2))]
    )
    [first] = _open(await desk.run())
    [second] = _open(await desk.resume({first.id: "approve"}))
    [third] = _open(await desk.resume({second.id: "approve"}))

    assert ["pay 1", "pay 1"] == desk.log
    assert 3 == len({first.id, second.id, third.id})
    assert first.digest == second.digest != third.digest
    await desk.assert_sound()


async def test_f039_a_decision_about_other_arguments_decides_nothing() -> None:
    """A note that is bound to another digest leaves the question open."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    entries = await entries_of(desk.store)
    other = e.Decided(question.id, "approve", digest("pay", {"cents": 2}))
    note = e.Entry(len(entries) + 1, "n", 1, "agent:worker", 0, other)

    desk.store = await dead_worker([*entries, note])
    result = await desk.resume({})

    assert ([], [question.id]) == (desk.log, [one.id for one in _open(result)])


@pytest.mark.parametrize("crash", [False, True])
async def test_f044_what_was_rejected_stays_rejected(crash: bool) -> None:
    """The model asks for the very same again: it is refused by the recorded word, also by another
    worker and where the function would let it pass by now; other arguments are asked about.
    """
    asked: list[object] = []

    def decides(*_: object) -> bool:
        asked.append(None)
        return len(asked) == 1 or len(asked) == 3

    desk = Desk([("pay", 1)], [("pay", 1)], [("pay", 2)], requires_approval=decides)
    [question] = _open(await desk.run())
    result = await desk.resume({question.id: Decision("reject", actor="ann", reason="no")})
    if crash:
        entries = await entries_of(desk.store)
        desk.store = await dead_worker(entries[: int(_open(result)[0].id[1:])])
        result = await desk.resume({})

    assert [] == desk.log
    assert ['{"cents":2,"to":"ann"}'] == [one.arguments for one in _open(result)]
    outcomes = await bodies_of(desk.store, e.ToolFinished)
    assert [("rejected", "ann")] * 2 == [(one.outcome, one.by) for one in outcomes]
    assert "has rejected a call with these very arguments" in outcomes[1].content


async def test_f044_a_tool_may_ask_again_after_a_refusal() -> None:
    """`on_repeat_refused="ask"`: a person is asked, also where the tool needs no approval now."""
    answers = iter([True, False])
    desk = Desk(
        [("pay", 1)],
        [("pay", 1)],
        requires_approval=lambda *_: next(answers),
        on_repeat_refused="ask",
    )
    [first] = _open(await desk.run())
    [second] = _open(await desk.resume({first.id: "reject"}))

    result = await desk.resume({second.id: "approve"})

    assert ("done", ["pay 1"]) == (result.output, desk.log)
    await desk.assert_sound()


@pytest.mark.parametrize("answer", ["approve", "edit"])
async def test_f041_a_renamed_tool_keeps_its_question(answer: str) -> None:
    """The decision is refused by name; the run stays suspended until the tool is back."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    without = agent_of(name="worker")
    decision = Decision(answer, value={"cents": 1} if answer == "edit" else None)

    with pytest.raises(InvalidDecision, match="no tool 'pay'"):
        await without.resume(RUN, {question.id: decision}, desk.context())
    result = await desk.resume({question.id: decision})

    assert ("done", ["pay 1"]) == (result.output, desk.log)


async def test_f041_a_decision_that_was_noted_while_the_tool_was_gone_runs_nothing_else() -> None:
    """Someone without the agent approved: the worker without the tool asks again and says why."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    entries = await entries_of(desk.store)
    approved = e.Decided(question.id, "approve", question.digest)
    note = e.Entry(len(entries) + 1, "n", 1, "agent:worker", 0, approved)
    desk.store = await dead_worker([*entries, note])

    with pytest.warns(DefinitionChangedWarning):
        result = await agent_of(name="worker").resume(RUN, {}, desk.context())
    [again] = _open(result)
    last = await desk.resume({again.id: "approve"})

    assert "There is no tool 'pay'" in again.prompt
    assert ("done", ["pay 1"]) == (last.output, desk.log)


async def test_f041_another_agent_decides_nothing() -> None:
    """The run belongs to the agent that asked."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())

    with pytest.raises(RunIdReused):
        await desk.agent(name="other").resume(RUN, {question.id: "approve"}, desk.context())

    assert [] == await bodies_of(desk.store, e.Decided)


# --- afterwards -----------------------------------------------------------------------------------


async def test_f025_any_context_object_finds_the_decision() -> None:
    """It stands in the journal: the worker that acts on it knows nothing of who took it."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    services = Services(
        invoker=desk.context().services.invoker, checkpointer=Checkpointer(port=desk.store)
    )

    result = await desk.agent().resume(
        RUN, {question.id: "approve"}, RunContext(correlation_id=RUN, services=services)
    )

    assert ("done", ["pay 1"]) == (result.output, desk.log)


@pytest.mark.parametrize("again", [True, False])
async def test_f038_a_model_that_fails_after_the_approved_call_costs_nothing(again: bool) -> None:
    """The call is not made again, and the same decision is a no-op; none is needed."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())

    def down(_: object) -> object:
        raise ConnectionError("500")

    broken = desk.context(llm=FakeLLM(down))  # type: ignore[arg-type]  # raises
    with pytest.raises(ConnectionError):
        await desk.agent().resume(RUN, {question.id: "approve"}, broken)
    result = await desk.resume({question.id: "approve"} if again else {})

    assert ("done", ["pay 1"]) == (result.output, desk.log)
    assert ((question.id,) if again else ()) == result.already_decided


async def test_f121_a_run_that_waits_in_each_turn_reaches_its_limit() -> None:
    """Model answers count over the life of the run, however often it was suspended."""
    desk = Desk(*[[("pay", cents)] for cents in range(9)])
    agent = desk.agent(max_iterations=3)
    result = await agent.run(TASK, desk.context())
    while result.suspended is not None:
        answers = {one.id: "approve" for one in result.suspended.questions}
        result = await desk.agent(max_iterations=3).resume(RUN, answers, desk.context())

    assert ("max_iterations", 3) == (result.stop_reason, len(desk.log))


# --- time -----------------------------------------------------------------------------------------


async def test_a_run_may_wait_for_a_year() -> None:
    """Nothing is held meanwhile, and nothing wakes it."""
    desk = Desk([("pay", 1)])
    [question] = _open(await desk.run())
    head = await desk.store.head(RUN)
    desk.clock.advance(YEAR_SECONDS)

    result = await desk.resume({question.id: "approve"})

    assert head is not None
    assert head.summary is not None
    assert ("", None) == (head.owner, head.summary.due_at)
    assert ("done", ["pay 1"]) == (result.output, desk.log)


@pytest.mark.parametrize("on_deadline", ["reject", "approve"])
async def test_a_deadline_moves_the_call_as_its_tool_says(on_deadline: str) -> None:
    """By default it is rejected; and the store knows when the run wants a worker."""
    desk = Desk([("pay", 1)], approval_seconds=60, on_deadline=on_deadline)
    [question] = _open(await desk.run())
    head = await desk.store.head(RUN)
    desk.clock.advance(59.0)
    early = await desk.resume({})
    desk.clock.advance(1.0)

    result = await desk.run()

    assert head is not None
    assert head.summary is not None
    assert question.deadline == head.summary.due_at == int((desk.clock.now()) * 1000)
    assert "suspended" == early.stop_reason
    assert "done" == result.output
    assert (["pay 1"] if on_deadline == "approve" else []) == desk.log
    await desk.assert_sound()


async def test_a_decision_after_the_deadline_is_refused_and_one_before_it_stands() -> None:
    """Whether or not a worker has come along by then."""
    desk = Desk([("pay", 1), ("pay", 2)], approval_seconds=60)
    first, second = _open(await desk.run())
    await desk.resume({first.id: "approve"})
    desk.clock.advance(60.0)

    with pytest.raises(InvalidDecision, match="deadline has passed"):
        await desk.resume({second.id: "approve"})
    result = await desk.resume({})

    assert ("done", ["pay 1"]) == (result.output, desk.log)
    assert "Nobody approved this call in time" in (await desk.results())[1]


async def test_a_call_that_nobody_decided_in_time_may_be_asked_for_again() -> None:
    """No person has refused it."""
    desk = Desk([("pay", 1)], [("pay", 1)], approval_seconds=60)
    await desk.run()
    desk.clock.advance(60.0)

    [question] = _open(await desk.resume({}))
    result = await desk.resume({question.id: "approve"})

    assert ("done", ["pay 1"]) == (result.output, desk.log)
