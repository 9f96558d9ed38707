"""Every subset of up to four open questions, in every order, with every kind of decision, and
between them everything that is none. What must become of it is said here in other words.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from agentkit.agents import Agent, AgentResult, cancel, record_decisions
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    AlreadyDecided,
    InvalidDecision,
    NoteRefused,
    OutcomeUnknown,
    RunIdReused,
)
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.core.runtime import RunContext
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import load
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
    kinds_of,
    messages_of,
    then,
)

KINDS = ("pay", "choose", "send", "pay")
"""The calls of the turn: one that needs approval, one that asks, one in doubt, and again."""

VARIANTS: dict[str, tuple[Decision | JSON, ...]] = {
    "pay": (
        "approve",
        Decision(" Reject", reason="no"),
        Decision("edit", {"number": 70}),
        " APPROVE ",
        "Reject",
    ),
    "choose": (False, 0, "", None, [], {}, "approve", Decision("answer", 0.0)),
    "send": (
        "run_again",
        "skip",
        Decision("done", ""),
        Decision("done", False),
        Decision("failed", None),
    ),
}
"""What each kind may be answered with."""

DEADLINE_SECONDS = 60.0


@dataclass
class Bank:
    """A run with so many open questions, on a store of its own."""

    many: int
    store: InMemoryCheckpointStore = field(default_factory=InMemoryCheckpointStore)
    clock: FakeClock = field(default_factory=FakeClock)
    log: list[str] = field(default_factory=list)

    def agent(self, *, name: str = "worker", renamed: bool = False) -> Agent:
        """As another process would make it."""
        sent: set[int] = set()

        @tool(
            name="wire" if renamed else "pay",
            side_effecting=True,
            requires_approval=True,
            approval_seconds=DEADLINE_SECONDS,
        )
        async def pay(number: int) -> str:
            self.log.append(f"pay {number}")
            return f"paid {number}"

        @tool(side_effecting=False)
        async def choose(number: int, ctx: ToolContext) -> str:
            answer = await ctx.ask("Well?", timeout=DEADLINE_SECONDS)
            self.log.append(f"choose {number}: {answer!r}")
            return f"chose {answer!r}"

        @tool(side_effecting=True)
        async def send(number: int, ctx: ToolContext) -> str:
            if ctx.attempt == 1 and number not in sent:
                raise OutcomeUnknown("the line is dead")
            self.log.append(f"send {number}")
            return f"sent {number}"

        return agent_of(pay, choose, send, name=name)

    def context(self, run_id: str = RUN) -> RunContext:
        """As another process would make it."""
        asked = [
            call(name, call_id=f"c{number}", number=number)
            for number, name in enumerate(KINDS[: self.many])
        ]
        return context(then(calls(*asked)), self.store, run_id=run_id, clock=self.clock)

    async def begin(self, run_id: str = RUN) -> tuple[Question, ...]:
        """Start the run; its open questions, in the order of the calls."""
        result = await self.agent().run(TASK, self.context(run_id))
        assert result.suspended is not None
        return tuple(sorted(result.suspended.questions, key=lambda one: one.call_id))

    async def decide(self, decisions: dict[str, Decision | JSON]) -> AgentResult:
        """Decide, and drive on."""
        return await self.agent().resume(RUN, decisions, self.context())

    async def open(self) -> set[str]:
        """The ids of the open questions, as anybody sees them."""
        return {one.id for one in (await load(self.store, RUN)).questions}

    async def assert_sound(self) -> None:
        """No invariant is broken."""
        rows = await read_rows(self.store, RUN)
        found = check(Evidence(run=RUN, rows=rows, head=await self.store.head(RUN)))
        assert not found, report(found)


def _expected(number: int, decision: Decision | JSON) -> tuple[list[str], str]:
    """What a decision has the tools do, and the beginning of what the model is told."""
    kind = KINDS[number]
    if kind == "choose":
        value = decision.value if isinstance(decision, Decision) else decision
        return [f"choose {number}: {value!r}"], f"chose {value!r}"
    said = decision.answer if isinstance(decision, Decision) else str(decision)
    word = said.strip().lower()
    value = decision.value if isinstance(decision, Decision) else None
    given: dict[str, tuple[list[str], str]] = {
        "approve": ([f"pay {number}"], f"paid {number}"),
        "reject": ([], "A person rejected"),
        "edit": (["pay 70"], "[A person changed"),
        "run_again": ([f"send {number}"], f"sent {number}"),
        "skip": ([], "A person decided not to run"),
        "done": ([], "false" if value is False else str(value)),
        "failed": ([], ""),
    }
    return given[word]


def _variant(number: int, turn: int) -> Decision | JSON:
    variants = VARIANTS[KINDS[number]]
    return variants[(turn + number) % len(variants)]


def _orders(many: int) -> Iterator[tuple[int, ...]]:
    """Every order of every subset."""
    for size in range(many + 1):
        yield from itertools.permutations(range(many), size)


def _nonsense(question: Question, decided: Sequence[str]) -> list[dict[str, object]]:
    """Decisions that decide nothing: none of them may leave a trace, beside a good one either."""
    good: object = {"approval": "approve", "input": 1}.get(question.kind, "skip")
    wrong: list[object] = [Decision("maybe"), Decision(""), Decision("answer!")]
    if question.kind != "input":
        wrong += ["yes", None, 0, False, {}, [], Decision("edit", {}), Decision("answer", 1)]
    if question.kind == "approval":
        edits: list[JSON] = [None, 7, {"number": "x"}, {"n": 1}]
        wrong += [Decision("edit", value) for value in edits]
        wrong += [Decision("approve", {"number": 70}), Decision("reject", 0)]
    if question.kind == "in_doubt":
        wrong += [Decision("skip", "why"), Decision("run_again", {})]
    word = "answer" if question.kind == "input" else str(good)
    wrong += [Decision(word, actor=5), Decision(word, reason=7), Decision(7)]  # type: ignore[arg-type]  # wrong on purpose
    foreign = f"q{int(question.id[1:]) + 40}"
    return [
        *({question.id: one} for one in wrong),
        *({question.id: good, name: good} for name in ("q1", "q999", foreign, "", "pay")),
    ]


async def _assert_nonsense_changes_nothing(
    bank: Bank, questions: Sequence[Question], said: dict[str, Decision | JSON], *, turn: int
) -> None:
    before, log = await kinds_of(bank.store), list(bank.log)
    left = [one for one in questions if one.id not in said]
    for question in left[:1]:
        wrong = _nonsense(question, list(said))
        for decisions in (wrong[turn % len(wrong)], wrong[(turn * 7 + 3) % len(wrong)]):
            with pytest.raises(InvalidDecision):
                await bank.decide(decisions)  # type: ignore[arg-type]  # wrong on purpose
    for name, decision in list(said.items())[:1]:
        repeated = await record_decisions(bank.store, RUN, {name: decision}, clock=bank.clock)
        assert (name,) == repeated.repeated
        with pytest.raises(AlreadyDecided):
            await record_decisions(bank.store, RUN, {name: _other(decision)}, clock=bank.clock)
        [label] = [one.call_id for one in questions if one.id == name]
        again = await record_decisions(bank.store, RUN, {label: decision}, clock=bank.clock)
        assert (name,) == again.repeated

    assert (before, log) == (await kinds_of(bank.store), bank.log)


def _other(decision: Decision | JSON) -> Decision | JSON:
    """Another one for the same question."""
    if isinstance(decision, str) and decision.strip().lower() in {"approve", "run_again", "skip"}:
        return Decision("reject" if "approve" in decision.lower() else "done", "else")
    if isinstance(decision, Decision) and decision.answer != "answer":
        return Decision("done" if decision.answer != "done" else "skip", "else")
    return Decision("answer", "else") if decision != "Reject" else "approve"


async def _finish(bank: Bank, left: Sequence[Question]) -> None:
    await bank.decide({one.id: _word(one) for one in left})


def _word(question: Question) -> Decision | JSON:
    return {"approval": "approve", "input": "late"}.get(question.kind, "skip")


async def _cancel(bank: Bank, left: Sequence[Question]) -> None:
    await cancel(bank.store, RUN, actor="ann", reason="no more")
    for question in left:
        with pytest.raises(NoteRefused, match=r"cancelled by ann \(no more\)"):
            await bank.decide({question.id: _word(question)})
        with pytest.raises(NoteRefused, match="no more"):
            await record_decisions(bank.store, RUN, {question.id: _word(question)})


async def _too_late(bank: Bank, left: Sequence[Question]) -> None:
    bank.clock.advance(DEADLINE_SECONDS)
    timed = [one for one in left if one.kind != "in_doubt"]
    for question in timed:
        with pytest.raises(InvalidDecision, match="deadline has passed"):
            await bank.decide({question.id: _word(question)})
    await bank.decide({one.id: "skip" for one in left if one.kind == "in_doubt"})


async def _renamed_agent(bank: Bank, left: Sequence[Question]) -> None:
    for question in left:
        with pytest.raises(RunIdReused):
            await bank.agent(name="other").resume(
                RUN, {question.id: _word(question)}, bank.context()
            )
    await _finish(bank, left)


async def _renamed_tool(bank: Bank, left: Sequence[Question]) -> None:
    for question in (one for one in left if one.kind == "approval"):
        with pytest.raises(InvalidDecision, match="no tool 'pay'"):
            await bank.agent(renamed=True).resume(RUN, {question.id: "approve"}, bank.context())
    await _finish(bank, left)


ENDINGS: dict[str, Callable[[Bank, Sequence[Question]], object]] = {
    "in time": _finish,
    "after a cancel": _cancel,
    "too late": _too_late,
    "after the agent was renamed": _renamed_agent,
    "after the tool was renamed": _renamed_tool,
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("many", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
async def test_f008_f022_f033_each_decision_does_its_own_and_nothing_else_does_anything(
    many: int, ending: str
) -> None:
    """Each subset in each order: one decision moves its call and no other, once; what is repeated
    says so, what contradicts or fits nothing is refused whole; the rest is decided in the end, or
    comes too late, and never counts then.
    """
    for turn, order in enumerate(_orders(many)):
        bank = Bank(many)
        questions = await bank.begin()
        said: dict[str, Decision | JSON] = {}
        done: list[str] = []
        for number in order:
            await _assert_nonsense_changes_nothing(bank, questions, said, turn=turn + number)
            decision = _variant(number, turn)
            await bank.decide({questions[number].id: decision})
            said[questions[number].id] = decision
            done += _expected(number, decision)[0]
            assert done == bank.log
            assert {one.id for one in questions} - said.keys() == await bank.open()
        left = [one for one in questions if one.id not in said]
        if left:
            await ENDINGS[ending](bank, left)  # type: ignore[misc]  # a coroutine
        late = [line for line in bank.log if line not in done]
        if ending in {"after a cancel", "too late"}:
            assert [] == late
        results = [one.content for one in await messages_of(bank.store) if one.role == "tool"]
        assert many == len(results)
        for number in order:
            told = _expected(number, _variant(number, turn))[1]
            assert told == results[number][: len(told)]
        assert set() == await bank.open()
        assert len(set(bank.log)) == len(bank.log)
        assert len(await bodies_of(bank.store, e.Decided)) <= many
        await bank.assert_sound()


async def test_f022_labels_said_again_at_any_time_move_no_other_call() -> None:
    """A provider that calls the calls of each answer the same: what is said by a label is about the
    first question of that label, whenever and however often it comes again.
    """
    for words in itertools.product(("approve", "reject"), repeat=3):
        bank = Bank(1)
        turns = [calls(call("pay", call_id="c0", number=at)) for at in range(3)]
        ctx = context(then(turns), bank.store, clock=bank.clock)
        result = await bank.agent().run(TASK, ctx)
        for at, word in enumerate(words):
            assert result.suspended is not None
            [question] = result.suspended.questions
            name = question.id if at else "c0"
            result = await bank.agent().resume(RUN, {name: word}, ctx)
            before = await kinds_of(bank.store)
            again = await record_decisions(bank.store, RUN, {"c0": words[0]})
            with pytest.raises(AlreadyDecided):
                await record_decisions(bank.store, RUN, {"c0": _other(words[0].title())})
            assert 1 == len(again.repeated)
            assert before == await kinds_of(bank.store)

        expected = [f"pay {at}" for at, word in enumerate(words) if word == "approve"]
        assert ("done", expected) == (result.output, bank.log)


async def test_a_decision_of_another_run_is_none_of_this_one() -> None:
    """Two runs of one store, one of them some entries ahead: ids belong to runs."""
    bank = Bank(2)
    questions = await bank.begin()
    await bank.decide({questions[0].id: "approve"})
    other = Bank(3, store=bank.store)
    foreign = await other.begin("other")
    before = await kinds_of(bank.store)

    names = {one.id for one in foreign} - {one.id for one in questions}
    for name in names:
        with pytest.raises(InvalidDecision, match="no open question"):
            await bank.decide({name: "approve"})

    assert names
    assert before == await kinds_of(bank.store)
    assert ["pay 0"] == bank.log
