"""What to do about the calls of a turn: pure rules, the in-doubt table among them.

A call is in doubt when it was dispatched, or may have been, and its worker is gone, or when its
tool said that it cannot tell. Fencing our journal does not fence the outside world, so only what
cannot double is automatic: reads run again, idempotent tools run again under the same key, a tool
that can find out is asked (`reconcile`), and everything else is asked of a human, or told to the
model where its tool chose that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.slots import slot_of
from agentkit.core.contracts.types import IN_DOUBT_ANSWERS, Question
from agentkit.core.contracts.values import canonical, decode_value, digest, to_text
from agentkit.state.journal.approval import (
    ApprovalPolicy,
    Approved,
    after_question,
    held_back,
)
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lanes import OPEN_OUTCOMES, CallState, LaneState, TurnState
from agentkit.state.journal.texts import (
    ATTEMPTS_SPENT,
    CANNOT_RUN,
    DUPLICATE,
    IN_DOUBT,
    LOOKED,
    SKIPPED,
    TOLD_IN_DOUBT,
    TRUNCATED,
    WITHHELD,
)
from agentkit.state.journal.waits import overdue

__all__ = [
    "AUTOMATIC_ATTEMPTS",
    "BY_WAIT",
    "MAX_WHY_CHARACTERS",
    "RECONCILE",
    "CallPolicy",
    "InDoubtChoice",
    "Verdict",
    "idempotency_key",
    "plan_turn",
    "unsure",
    "why_in_doubt",
]

AUTOMATIC_ATTEMPTS = 10
"""Attempts of one call that are made without asking, where its tool sets no `max_attempts`."""

MAX_WHY_CHARACTERS = 500
"""Longest text of a tool that could not tell, as the person who decides sees it."""

_LEFT = {
    "takeover": "its worker died or lost its lease before the outcome was recorded",
    "resume": "its worker was stopped before the outcome was recorded",
}
_ENDED = "its worker ended before the outcome was recorded"
_UNKNOWN = "its outcome is not known ({content})"
BY_WAIT = "wait"
"""Who had a call made again, where it had waited."""

RECONCILE = "reconcile"
"""Who settled a call, where its tool's own look did."""

InDoubtChoice: TypeAlias = Literal["", "ask", "run_again", "tell_model"]


class CallPolicy(NamedTuple):
    """What the runtime knows about the tool of one call.

    `reconciles`: the tool can be asked what became of an earlier attempt. `transactional`: its
    effect is committed with its outcome. `on_in_doubt`: what was chosen for the case that nobody
    knows, or empty. `approval`: what it needs before it is made for the first time. `problem`: why
    the call cannot be run at all (unknown tool, wrong arguments), told to the model.
    """

    side_effecting: bool = True
    idempotent: bool = False
    max_attempts: int | None = None
    reconciles: bool = False
    transactional: bool = False
    on_in_doubt: InDoubtChoice = ""
    problem: str = ""
    approval: ApprovalPolicy = ApprovalPolicy()


class Verdict(NamedTuple):
    """What a tool's `reconcile` says of an attempt in doubt.

    `happened` brings the `outcome` with the `content` that the model sees. `cannot_happen`: it has
    had no effect and never will. `unknown` says in `content` why it cannot tell.
    """

    kind: Literal["happened", "cannot_happen", "unknown"]
    content: str = ""
    outcome: e.Outcome = "ok"


def idempotency_key(state: RunState, lane: str, turn: int, index: int) -> str:
    """The key of one call: stable over retries, crashes and workers, different for every call."""
    place = "\0".join((state.nonce, slot_of(state.run_id, lane), str(turn), str(index)))
    return blake2b(place.encode(), digest_size=16).hexdigest()


class _Later(Enum):
    """A call that has no next fact yet."""

    DECISION = "only a decision can move it"
    VERDICT = "its tool is to be asked first"
    TIME = "it waits, and what it waits for has not come"


_Move: TypeAlias = e.ToolStarted | e.QuestionAsked | e.ToolFinished | _Later | None


def plan_turn(
    state: RunState,
    turn: TurnState,
    policies: Sequence[CallPolicy],
    *,
    lane: LaneState,
    epoch: int,
    outcomes: Mapping[int, e.ToolFinished] | None = None,
    verdicts: Mapping[int, Verdict] | None = None,
    in_flight: Collection[int] = (),
    now_ms: int = 0,
) -> list[e.Body]:
    """The entries that the calls of a turn need next; none where no act may begin.

    When no call acts after them, the step's boundary comes last.

    Args:
        state: of the run.
        turn: whose calls; the lane's newest, or an answer that is about to be recorded.
        policies: of its calls, in order.
        lane: the turn's lane.
        epoch: of the lease that acts.
        outcomes: about to be recorded beside what is returned, by call index.
        verdicts: of tools that were asked about calls in doubt, by call index.
        in_flight: calls that run now, or whose tool is being asked.
        now_ms: the time, in ms since the epoch: deadlines until then have passed.
    """
    if state.stopping:
        return []
    outcomes = outcomes or {}
    planner = _Planner(state, lane, turn, epoch, verdicts or {}, now_ms)
    bodies: list[e.Body] = []
    acting, waiting = bool(in_flight), False
    for call in turn.calls:
        if call.index in in_flight:
            continue
        outcome = outcomes.get(call.index, call.outcome)
        if outcome is None:
            bodies += overdue(call, turn=turn.answer.turn, now_ms=now_ms)
        move = planner.next(call, policies[call.index], outcome)
        if isinstance(move, e.QuestionAsked) or move in {_Later.DECISION, _Later.TIME}:
            waiting = True
        elif isinstance(move, e.ToolStarted | _Later) or (move is None and outcome is None):
            acting = True
        bodies += [] if move is None or isinstance(move, _Later) else [move]
    if not acting and not waiting and not turn.closed:
        bodies.append(e.StepCompleted(lane.version + 1, lane.iteration + 1))
    elif not acting and waiting and (bodies or outcomes or not lane.suspended):
        bodies.append(e.StepCompleted(lane.version + 1, lane.iteration, "suspended"))
    return bodies


def unsure(
    state: RunState,
    turn: TurnState,
    policies: Sequence[CallPolicy],
    *,
    lane: LaneState,
    epoch: int,
    in_flight: Collection[int] = (),
) -> list[CallState]:
    """The calls in doubt whose tools are to be asked now; arguments as for `plan_turn`."""
    planner = _Planner(state, lane, turn, epoch, {}, 0)
    return [
        call
        for call in turn.calls
        if call.index not in in_flight
        and planner.next(call, policies[call.index], call.outcome) is _Later.VERDICT
    ]


def why_in_doubt(call: CallState, outcome: e.ToolFinished | None) -> str:
    """Why nobody knows what became of the call's newest attempt, whose outcome this is, if any."""
    if outcome is None:
        return _LEFT.get(call.left, _ENDED)
    if outcome.outcome == "interrupted":
        return _LEFT["resume"]
    content = outcome.content.strip()[:MAX_WHY_CHARACTERS]
    return _UNKNOWN.format(content=content) if content else _ENDED


class _Planner(NamedTuple):
    """The rules for one call, where it stands."""

    state: RunState
    lane: LaneState
    turn: TurnState
    epoch: int
    verdicts: Mapping[int, Verdict]
    now_ms: int

    def next(self, call: CallState, policy: CallPolicy, outcome: e.ToolFinished | None) -> _Move:
        """The next fact of one call; `None` when it is settled, or recorded and not dispatched."""
        if outcome is not None and outcome.outcome not in OPEN_OUTCOMES:
            return None
        if call.question is not None:
            return self._asked(call, call.question, policy)
        if outcome is not None and outcome.outcome in {"retrying", "not_started"}:
            return self._go_on(call, policy, outcome)
        if call.started is None:
            return (
                self._refusal(call, policy)
                or self._held_back(call, policy)
                or self._start(call, policy, attempt=1)
            )
        if outcome is None and call.asleep:
            return self._wake(call, policy)
        if outcome is None and call.started_epoch == self.epoch:
            return None
        return self._recover(call, policy, outcome)

    def _refusal(self, call: CallState, policy: CallPolicy) -> e.ToolFinished | None:
        """The outcome of a call that must not be run, if it is one."""
        record = call.record
        if self.turn.answer.stop == "length":
            return self._finish(call, "error", TRUNCATED)
        if self.turn.answer.stop == "refusal":
            return self._finish(call, "error", WITHHELD)
        if policy.problem:
            return self._finish(call, "error", policy.problem)
        if record.id and any(one.record == record for one in self.turn.calls[: call.index]):
            return self._finish(call, "duplicate", DUPLICATE)
        return None

    def _held_back(
        self, call: CallState, policy: CallPolicy
    ) -> e.ToolFinished | e.QuestionAsked | None:
        """What keeps a call from being made for the first time until a person has agreed."""
        known, turn, approval = self.state.refused, self.turn.answer.turn, policy.approval
        texts = {approval.arguments or call.arguments, call.arguments} if known else set()
        about = [digest(call.record.name, text) for text in texts]
        if not self.state.asked_anew.isdisjoint(about):
            approval = approval._replace(on_repeat_refused="ask")
        refused = next((known[what] for what in about if what in known), None)
        return held_back(call, approval, turn=turn, refused=refused, now_ms=self.now_ms)

    def _asked(self, call: CallState, question: Question, policy: CallPolicy) -> _Move:
        """What follows from an open question: what was decided, or that nobody did in time."""
        if question.kind != "approval":
            decided = call.decision
            return _Later.DECISION if decided is None else self._apply(call, decided, policy)
        turn = self.turn.answer.turn
        move = after_question(
            call,
            question,
            policy.approval,
            turn=turn,
            problem=policy.problem,
            now_ms=self.now_ms,
        )
        if isinstance(move, Approved):
            return self._start(call, policy, attempt=1, by=move.by)
        return _Later.DECISION if move is None else move

    def _wake(self, call: CallState, policy: CallPolicy) -> _Move:
        """Enter a call again that waits, once something that it waits for has come."""
        due = overdue(call, turn=self.turn.answer.turn, now_ms=self.now_ms)
        if not call.woken and not due:
            return _Later.TIME
        if policy.problem:
            return self._question(call, policy, None)
        return self._start(call, policy, attempt=call.attempt + 1, by=BY_WAIT)

    def _go_on(self, call: CallState, policy: CallPolicy, outcome: e.ToolFinished) -> _Move:
        """The next attempt of a call that is still to be made, unless its tool has gone."""
        again = outcome.outcome == "retrying"
        if not policy.problem:
            by = outcome.by if again else ""
            return self._start(call, policy, attempt=call.attempt + again, by=by)
        if again or call.attempt > 1:  # an earlier attempt may have taken effect
            return self._question(call, policy, outcome)
        return self._finish(call, "error", policy.problem)

    def _recover(
        self, call: CallState, policy: CallPolicy, outcome: e.ToolFinished | None
    ) -> _Move:
        """The in-doubt table."""
        spent = call.attempt - call.interrupted >= (policy.max_attempts or AUTOMATIC_ATTEMPTS)
        if call.started is not None and call.started.transactional:
            return self._rolled_back(call, policy, spent=spent)
        verdict = Verdict("unknown")
        if policy.reconciles and not policy.problem:
            if call.index not in self.verdicts:
                return _Later.VERDICT
            verdict = self.verdicts[call.index]
        if verdict.kind == "happened":
            return self._finish(call, verdict.outcome, verdict.content, by=RECONCILE)
        if verdict.kind == "cannot_happen" and not spent:
            return self._start(call, policy, attempt=call.attempt + 1, by=RECONCILE)
        repeatable = not policy.problem and (not policy.side_effecting or policy.idempotent)
        automatic = repeatable and policy.on_in_doubt in {"", "run_again"}
        if automatic and not spent:
            return self._start(call, policy, attempt=call.attempt + 1)
        if automatic and not policy.side_effecting:
            return self._finish(call, "error", ATTEMPTS_SPENT.format(attempts=call.attempt))
        if policy.on_in_doubt == "tell_model":
            return self._finish(call, "in_doubt", TOLD_IN_DOUBT.format(tool=call.record.name))
        return self._question(call, policy, outcome, looked=verdict.content)

    def _rolled_back(self, call: CallState, policy: CallPolicy, *, spent: bool) -> _Move:
        """A transaction without outcome was never committed: the call has had no effect."""
        if spent or policy.problem:
            text = policy.problem or ATTEMPTS_SPENT.format(attempts=call.attempt)
            return self._finish(call, "error", text)
        return self._start(call, policy, attempt=call.attempt + 1)

    def _question(
        self,
        call: CallState,
        policy: CallPolicy,
        outcome: e.ToolFinished | None,
        *,
        looked: str = "",
    ) -> e.QuestionAsked:
        """Ask a human; say why the call is in doubt, what the tool's own look gave, and why it
        cannot be run now.
        """
        record, why = call.record, why_in_doubt(call, outcome)
        text = IN_DOUBT.format(tool=record.name, attempt=call.attempt, why=why)
        if looked:
            text += LOOKED.format(why=looked)
        return e.QuestionAsked(
            turn=self.turn.answer.turn,
            index=call.index,
            kind="in_doubt",
            tool=record.name,
            arguments=canonical(call.arguments),
            digest=digest(record.name, call.arguments),
            answers=IN_DOUBT_ANSWERS,
            prompt=f"{text} {CANNOT_RUN}{policy.problem}" if policy.problem else text,
        )

    def _apply(self, call: CallState, decision: e.Decided, policy: CallPolicy) -> _Move:
        """What a human's decision about an in-doubt call means."""
        by = decision.actor or "human"
        if decision.answer == "run_again" and policy.problem:
            return self._question(call, policy, call.outcome)
        if decision.answer == "run_again":
            again = CallPolicy(transactional=policy.transactional)
            return self._start(call, again, attempt=call.attempt + 1, by=by)
        if decision.answer == "skip":
            return self._finish(call, "skipped", f"{SKIPPED} {decision.reason}".strip(), by=by)
        value = to_text(decode_value(decision.value))
        return self._finish(call, "ok" if decision.answer == "done" else "error", value, by=by)

    def _start(
        self, call: CallState, policy: CallPolicy, *, attempt: int, by: str = ""
    ) -> e.ToolStarted:
        turn, record = self.turn.answer.turn, call.record
        key = call.started.key if call.started is not None else ""
        if policy.side_effecting and not key:
            key = idempotency_key(self.state, self.lane.lane, turn, call.index)
        return e.ToolStarted(
            turn=turn,
            index=call.index,
            name=record.name,
            digest=digest(record.name, call.arguments),
            key=key,
            attempt=attempt,
            by=by,
            transactional=policy.transactional,
            arguments="" if call.arguments == record.arguments else call.arguments,
        )

    def _finish(
        self, call: CallState, outcome: e.Outcome, content: str, *, by: str = ""
    ) -> e.ToolFinished:
        turn = self.turn.answer.turn
        return e.ToolFinished(turn, call.index, outcome, content, call.attempt, by)
