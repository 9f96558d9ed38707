"""Properties of the pure parts: the fold, the transcript, the decisions and the in-doubt rules.

Two kinds of journals are made: any sequence of facts at all, as a damaged store might hold, and the
ones that a run really writes when workers die at any border and anything ends in any way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.agents.decide import Action, Ask, Dispatch, Leave, Record, decide, open_turn
from agentkit.agents.spec import make_spec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.slots import Slot, agent_lane, agent_slot, parse
from agentkit.core.contracts.types import CallRecord, Usage
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lanes import CallState
from agentkit.state.journal.recovery import CallPolicy, Verdict, plan_turn
from agentkit.state.journal.transcript import NO_RESULT
from tests.agents.kit import assert_valid

LANE = "agent:worker"
SPEC = make_spec(name="worker", model="m", system="s", tools=(), max_iterations=4)
START: list[e.Body] = [
    e.RunStarted("task", "worker", "m", "s", (), "f", "nonce"),
    e.LeaseTaken("o", "start"),
]

POLICIES = {
    "read": CallPolicy(side_effecting=False),
    "read_once": CallPolicy(side_effecting=False, max_attempts=1),
    "put": CallPolicy(side_effecting=True, idempotent=True),
    "put_twice": CallPolicy(side_effecting=True, idempotent=True, max_attempts=2),
    "send": CallPolicy(side_effecting=True),
    "look": CallPolicy(side_effecting=True, reconciles=True),
    "look_put": CallPolicy(side_effecting=True, idempotent=True, reconciles=True),
    "look_tell": CallPolicy(side_effecting=True, reconciles=True, on_in_doubt="tell_model"),
    "tell": CallPolicy(side_effecting=True, on_in_doubt="tell_model"),
    "put_ask": CallPolicy(side_effecting=True, idempotent=True, on_in_doubt="ask"),
    "gone": CallPolicy(problem="There is no such tool."),
}


def _fold(bodies: Sequence[e.Body], *, state: RunState | None = None, epoch: int = 1) -> RunState:
    state = state or RunState("r")
    for seq, body in enumerate(bodies, state.seq + 1):
        state.apply(e.Entry(seq, "", epoch, LANE, seq, body), bytes([seq % 256]))
    return state


def _seen(state: RunState) -> bytes:
    """All that anybody can see of a state, as bytes."""
    lanes = [
        [
            lane.lane,
            lane.turns,
            lane.iteration,
            lane.suspended,
            lane.failures,
            lane.versions,
            lane.transcript.repairs,
            list(lane.transcript.view()),
            [
                [
                    call.index,
                    call.attempt,
                    call.started,
                    call.outcome,
                    call.question,
                    call.decision,
                    [(name, one.attempt, one.how, one.value) for name, one in call.waits.items()],
                ]
                for call in (lane.turn.calls if lane.turn is not None else ())
            ],
        ]
        for lane in state.lanes.values()
    ]
    return msgspec.json.encode([state.seq, state.summary(), state.decided, state.usage, lanes])


# --- any facts in any order -----------------------------------------------------------------------

_turn, _index = st.integers(0, 3), st.integers(0, 3)
_names = st.sampled_from(sorted(POLICIES))
_records = st.builds(
    CallRecord,
    st.sampled_from(["", "c1", "c1", "c2", "bad id"]),
    _names,
    st.sampled_from(["{}", '{"a":1}', "not json", '{"\\u0000":1}']),
)
_outcomes = st.sampled_from(
    [
        "ok",
        "error",
        "unknown",
        "retrying",
        "skipped",
        "duplicate",
        "not_started",
        "in_doubt",
        "rejected",
    ]
)
_any_body: st.SearchStrategy[e.Body] = st.one_of(
    st.builds(
        e.ModelAnswered,
        _turn,
        st.sampled_from(["", "text"]),
        st.lists(_records, max_size=3).map(tuple),
        st.sampled_from(["end", "tool_use", "length", "refusal", "pause"]),
    ),
    st.builds(
        e.ModelFailed, _turn, st.integers(1, 3), st.sampled_from(["server", "auth"]), st.just("m")
    ),
    st.builds(e.ToolStarted, _turn, _index, _names, st.just("d"), attempt=st.integers(1, 3)),
    st.builds(e.ToolFinished, _turn, _index, _outcomes, st.just("content")),
    st.builds(
        e.QuestionAsked,
        _turn,
        _index,
        st.just("in_doubt"),
        _names,
        st.just("{}"),
        st.just("d"),
        st.just(("skip",)),
        st.just("?"),
    ),
    st.builds(
        e.StepCompleted,
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(["running", "suspended"]),
    ),
    st.builds(e.OutcomeReported, _turn, _index, st.integers(0, 3), _outcomes, st.just("told")),
    st.builds(e.ValueRecorded, _turn, _index, st.just("n"), st.just("1")),
    st.builds(e.Decided, st.sampled_from(["q3", "q4", "q5"]), st.just("skip"), st.just("d")),
    st.builds(
        e.WaitStarted,
        _turn,
        _index,
        st.sampled_from(["w1", "w2"]),
        st.sampled_from(["time", "event"]),
        st.integers(0, 2),
        st.sampled_from(["", "paid"]),
    ),
    st.builds(
        e.QuestionAsked,
        _turn,
        _index,
        st.just("input"),
        _names,
        st.just("{}"),
        st.just("d"),
        st.just(("answer",)),
        st.just("?"),
        name=st.sampled_from(["w1", "w3"]),
    ),
    st.builds(e.WaitEnded, _turn, _index, st.sampled_from(["w1", "w2"]), st.sampled_from(["time"])),
    st.builds(e.EventReceived, st.just("paid"), st.just("1"), st.sampled_from(["e1", "e2", "e3"])),
    st.builds(e.MessageAdded, st.just("more"), st.just(""), st.sampled_from(["m1", "m2"])),
    st.builds(
        e.LeaseTaken, st.just("o"), st.sampled_from(["resume", "takeover"]), st.integers(0, 3)
    ),
    st.builds(e.CheckpointSaved, st.integers(1, 3), st.just("running"), st.just("1")),
    st.just(e.Parked("auth", "m")),
    st.just(e.Unparked()),
)


def _started(bodies: list[e.Body]) -> list[e.Body]:
    return [*START, *bodies]


_journals = st.lists(_any_body, max_size=14).map(_started)


@given(_journals)
@settings(deadline=None)
def test_the_fold_is_deterministic(bodies: list[e.Body]) -> None:
    """The same entries give the same state, in every process, however odd they are."""
    assert _seen(_fold(bodies)) == _seen(_fold(bodies))


@given(_journals, st.data())
@settings(deadline=None)
def test_folding_a_prefix_and_then_the_rest_is_folding_all(
    bodies: list[e.Body], data: st.DataObject
) -> None:
    """Whoever read half of it before has no other state than whoever reads it now."""
    cut = data.draw(st.integers(0, len(bodies)))

    state = _fold(bodies[cut:], state=_fold(bodies[:cut]))

    assert _seen(_fold(bodies)) == _seen(state)


@given(_journals)
@settings(deadline=None)
def test_looking_at_a_state_does_not_change_it(bodies: list[e.Body]) -> None:
    """Summary, questions, lanes and decisions are read only."""
    state = _fold(bodies)
    before = _seen(state)

    state.lane("agent:other")
    decide(state, SPEC, _policies(state), epoch=1)
    _ = (state.summary(), state.questions, state.find_call("q3"), state.main.wants_model)
    state.lanes.pop("agent:other")

    assert before == _seen(state)


@given(_journals)
@settings(max_examples=300, deadline=None)
def test_what_would_be_sent_is_valid_whatever_the_journal_holds(bodies: list[e.Body]) -> None:
    """F002: when the decision is to ask, every call has its one result in its place."""
    state = _fold(bodies)

    action = decide(state, SPEC, _policies(state), epoch=99)

    if isinstance(action, Ask):
        assert_valid(list(state.main.transcript.view()))


@given(_journals)
@settings(max_examples=300, deadline=None)
def test_a_decision_never_acts_on_what_waits_or_has_ended(bodies: list[e.Body]) -> None:
    """No intent and no question for a settled call; none for one that waits; nothing after an end.

    And deciding again on what was decided comes to rest.
    """
    state = _fold(bodies)
    for _ in range(12):
        action = decide(state, SPEC, _policies(state), epoch=1)
        turn = open_turn(state, SPEC)
        if state.end is not None or state.parked is not None:
            assert isinstance(action, Leave)
        if isinstance(action, Dispatch):
            assert all(call.started is not None and call.outcome is None for call in action.calls)
        if not isinstance(action, Record):
            return
        for body in action.bodies:
            if isinstance(body, e.ToolStarted | e.QuestionAsked | e.ToolFinished):
                assert turn is not None
                call = turn.calls[body.index]
                assert not call.settled
                assert not call.waiting
        _fold(action.bodies, state=state)
    pytest.fail("the decisions never came to rest")


_ids = st.text(
    st.sampled_from("ab:%#{}/.*") | st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")),
    min_size=1,
    max_size=30,
)


@given(_ids, _ids)
@settings(deadline=None)
def test_f117_a_slot_name_says_exactly_one_run_and_one_agent(run: str, agent: str) -> None:
    """Whatever ids are made of, their slot reads back as just them; so no two slots are one."""
    assert Slot(run, agent_lane(agent)) == parse(agent_slot(run, agent))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b:agent:c"), ("a:agent:b", "c")),
        (("a:agent:b", "c"), ("a%3Aagent%3Ab", "c")),
        (("a", "b%3Aplan"), ("a", "b:plan")),
        (("{a}", "b"), ("%7Ba%7D", "b")),
    ],
)
def test_f117_slots_that_might_collide_do_not(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Names that would be equal if they were only put together."""
    assert agent_slot(*one) != agent_slot(*other)


# --- runs as they really go -----------------------------------------------------------------------


class Run:
    """A run without a runtime: decisions are carried out by drawing what happens."""

    def __init__(self, draw: Callable[[st.SearchStrategy[object]], object]) -> None:
        self.draw = draw
        self.state = _fold(START)
        self.epoch = 1
        self.unasked: Counter[tuple[int, int]] = Counter()
        self.ended: set[tuple[int, int]] = set()
        self.paid = Usage()
        self.allowed: set[tuple[int, int]] = set()
        self.names: dict[tuple[int, int], str] = {}

    def append(self, bodies: Sequence[e.Body]) -> None:
        """One durable unit."""
        _fold(bodies, state=self.state, epoch=self.epoch)

    def die(self) -> None:
        """The worker is gone; another one takes over."""
        self.epoch += 1
        self.append([e.LeaseTaken("next", "takeover", self.state.recoveries + 1)])

    def step(self) -> bool:
        """One action; whether there was one."""
        action: Action = decide(self.state, SPEC, _policies(self.state), epoch=self.epoch)
        if isinstance(action, Leave):
            return self._decide_questions()
        if self.draw(st.booleans()) and self.draw(st.booleans()):
            if self.draw(st.booleans()):
                self.report()
            self.die()
            return True
        if isinstance(action, Record):
            self.append(action.bodies)
        elif isinstance(action, Ask):
            self._answer(action)
        else:
            self._call(action)
        return True

    def _answer(self, ask: Ask) -> None:
        assert_valid(list(self.state.main.transcript.view()))
        records = self.draw(st.lists(_records, max_size=3))
        assert isinstance(records, list)
        self.names |= {(ask.turn, n): record.name for n, record in enumerate(records)}
        usage = Usage(3, 2, 1)
        self.paid += usage
        stop = self.draw(st.sampled_from(["tool_use", "tool_use", "length"])) if records else "end"
        self.append([e.ModelAnswered(ask.turn, "", tuple(records), stop, usage)])  # type: ignore[arg-type]  # drawn

    def _call(self, action: Dispatch) -> None:
        """Every call is made; some end, in any order, and then the worker goes on or dies."""
        opened = open_turn(self.state, SPEC)
        assert opened is not None
        turn = opened.answer.turn
        if action.doubt:
            self._ask_tools(action)
            return
        order = self.draw(st.permutations(action.calls))
        assert isinstance(order, list)
        for call in order:
            place = (turn, call.index)
            assert place not in self.ended, "I1: a call that has ended was made again"
            if place not in self.allowed:
                self.unasked[place] += 1
            self.allowed.discard(place)
        for call in order:
            outcome = self.draw(st.sampled_from(["ok", "ok", "error", "unknown", "lost"]))
            if outcome == "lost":
                continue
            if outcome in ("ok", "error"):
                self.ended.add((turn, call.index))
            self.append([e.ToolFinished(turn, call.index, outcome, "x", call.attempt)])  # type: ignore[arg-type]  # drawn
        if any(call.outcome is None for call in action.calls):
            self.die()

    def _ask_tools(self, action: Dispatch) -> None:
        """The tools of calls in doubt say what they know, each at its own time."""
        verdicts: dict[int, Verdict] = {}
        turn = open_turn(self.state, SPEC)
        assert turn is not None
        for call in action.doubt:
            place = (turn.answer.turn, call.index)
            assert place not in self.ended, "I1: a call that has ended was asked about"
            kind = self.draw(st.sampled_from(["happened", "cannot_happen", "unknown"]))
            verdicts[call.index] = Verdict(kind)  # type: ignore[arg-type]  # drawn
            if kind == "happened":
                self.ended.add(place)
            elif kind == "cannot_happen":
                self.allowed.add(place)
        ready = {call.index for call in action.calls}
        self.append(
            plan_turn(
                self.state,
                turn,
                _policies(self.state),
                lane=self.state.main,
                epoch=self.epoch,
                verdicts=verdicts,
                in_flight=ready,
            )
        )
        if ready and self.draw(st.booleans()):
            self.die()

    def report(self) -> None:
        """A worker without the lease tells how an attempt ended that nobody heard of, or an older
        one: only the newest attempt that is in doubt is settled by it.
        """
        turn = open_turn(self.state, SPEC)
        begun = [call for call in turn.calls if call.attempt] if turn is not None else []
        if turn is None or not begun or self.state.end is not None:
            return
        call = self.draw(st.sampled_from(begun))
        assert isinstance(call, CallState)
        attempt = self.draw(st.integers(1, call.attempt))
        assert isinstance(attempt, int)
        place = (turn.answer.turn, call.index)
        if call.doubtful(attempt):
            self.ended.add(place)
            self.allowed.discard(place)
        self.append([e.OutcomeReported(*place, attempt, "ok", "told")])

    def _decide_questions(self) -> bool:
        questions = self.state.questions
        if not questions or self.state.end is not None or self.state.parked is not None:
            return False
        question = self.draw(st.sampled_from(questions))
        call = self.state.find_call(question.id)  # type: ignore[attr-defined]  # drawn
        answer = self.draw(st.sampled_from(["done", "failed", "run_again", "skip"]))
        turn = open_turn(self.state, SPEC)
        assert turn is not None
        assert call is not None
        place = (turn.answer.turn, call.index)
        if answer == "run_again":
            self.allowed.add(place)
        else:
            self.ended.add(place)
        self.append([e.Decided(question.id, str(answer), question.digest)])  # type: ignore[attr-defined]  # drawn
        return True


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_run_through_any_deaths_keeps_its_promises(data: st.DataObject) -> None:
    """It ends, and what it did on the way is what the invariants allow.

    No ended call is made again (I1); nothing that may double is made twice unasked (I2); what is
    sent is valid (I7); usage is the sum of the answers (I9); every question is settled (I11, I13);
    attempts stay within what the tool allows (F053).
    """
    run = Run(data.draw)
    for _ in range(400):
        if not run.step():
            break
    else:
        pytest.fail("the run did not end")

    assert run.state.end is not None or run.state.parked is not None
    messages = list(run.state.main.transcript.view())
    assert_valid(messages)
    assert [] == run.state.main.transcript.repairs
    assert NO_RESULT not in [message.content for message in messages]
    assert msgspec.structs.replace(run.state.usage, unknown=0) == run.paid
    for place, count in run.unasked.items():
        policy = POLICIES[run.names[place]]
        if policy.side_effecting and not policy.idempotent:
            assert 1 == count, f"{place} was made {count} times without asking"
        if policy.max_attempts is not None:
            assert count <= policy.max_attempts


def _policies(state: RunState) -> list[CallPolicy]:
    turn = open_turn(state, SPEC)
    return [] if turn is None else [POLICIES[call.record.name] for call in turn.calls]
