"""Calls that wait for a person's approval: pure rules."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import APPROVAL_ANSWERS, Question
from agentkit.core.contracts.values import canonical, digest
from agentkit.state.journal.lanes import CallState

__all__ = [
    "BY_DEADLINE",
    "NEEDS_APPROVAL",
    "NOT_NOW",
    "REFUSED_BEFORE",
    "REJECTED",
    "UNDECIDED",
    "ApprovalPolicy",
    "Approved",
    "OnApprovalDeadline",
    "OnRepeatRefused",
    "after_question",
    "held_back",
    "rejected",
]

OnApprovalDeadline: TypeAlias = Literal["reject", "approve"]
OnRepeatRefused: TypeAlias = Literal["refuse", "ask"]

NEEDS_APPROVAL = "{tool} is not called without a person's approval."
NOT_NOW = "{asked} It cannot be called as it was approved: {problem}"
REJECTED = "A person rejected this call, so it was not made."
REFUSED_BEFORE = (
    "A person has rejected a call with these very arguments before, so it was not made. Do not ask "
    "for it again."
)
UNDECIDED = "Nobody approved this call in time, so it was not made."
BY_DEADLINE = "deadline"
"""Who settled a call that nobody decided in time."""


class ApprovalPolicy(NamedTuple):
    """What one call needs before it is made.

    Args:
        why: the reason for which a person is asked, shown to them; empty where nobody needs to be.
        seconds: how long the question stands; `None` for ever.
        on_deadline: what becomes of the call then.
        on_repeat_refused: of a call that a person has rejected before, with the same arguments:
            `refuse` applies that word again, `ask` asks again.
        arguments: JSON text of all that the tool would be run with, its defaults included; empty
            where only what was given for the call is known.
    """

    why: str = ""
    seconds: float | None = None
    on_deadline: OnApprovalDeadline = "reject"
    on_repeat_refused: OnRepeatRefused = "refuse"
    arguments: str = ""


class Approved(NamedTuple):
    """The call may be made now. `by`: who said so."""

    by: str


def held_back(
    call: CallState, policy: ApprovalPolicy, *, turn: int, refused: e.Decided | None, now_ms: int
) -> e.ToolFinished | e.QuestionAsked | None:
    """The question whether a call may be made, or its refusal; `None` where it needs no approval.

    What a person has refused (`refused`) is never made without one, whatever the tool says by now.
    """
    if refused is not None and policy.on_repeat_refused == "refuse":
        text = f"{REFUSED_BEFORE} {refused.reason}".strip()
        return _rejected(call, turn, text, by=refused.actor or "human")
    if refused is None and not policy.why:
        return None
    why = policy.why or NEEDS_APPROVAL.format(tool=call.record.name)
    return _question(call, policy, why, turn=turn, now_ms=now_ms)


def after_question(
    call: CallState,
    question: Question,
    policy: ApprovalPolicy,
    *,
    turn: int,
    problem: str,
    now_ms: int,
) -> e.ToolFinished | e.QuestionAsked | Approved | None:
    """What a decision or a passed deadline means for the call; `None` while there is neither.

    Args:
        call: the call.
        question: asked about it.
        policy: of its tool by now.
        turn: its number.
        problem: why it cannot be run at all, with the arguments that were decided on.
        now_ms: the time.
    """
    decision = call.decision
    asked = NEEDS_APPROVAL.format(tool=call.record.name)
    if decision is None:
        if not question.deadline or now_ms < question.deadline:
            return None
        if question.on_deadline == "approve" and not problem:
            return Approved(BY_DEADLINE)
        return _rejected(call, turn, UNDECIDED, by=BY_DEADLINE)
    by = decision.actor or "human"
    if decision.answer == "reject":
        return rejected(call, decision, turn=turn)
    if problem:
        why = NOT_NOW.format(asked=asked, problem=problem)
        return _question(call, policy, why, turn=turn, now_ms=now_ms)
    final = policy.arguments or call.arguments
    if decision.answer == "approve" and digest(question.tool, final) != decision.digest:
        return _question(call, policy, asked, turn=turn, now_ms=now_ms)
    return Approved(by)


def rejected(call: CallState, decision: e.Decided, *, turn: int) -> e.ToolFinished:
    """The outcome of a call that a person has rejected."""
    text = f"{REJECTED} {decision.reason}".strip()
    return _rejected(call, turn, text, by=decision.actor or "human")


def _question(
    call: CallState, policy: ApprovalPolicy, why: str, *, turn: int, now_ms: int
) -> e.QuestionAsked:
    deadline = 0 if policy.seconds is None else now_ms + max(1, int(policy.seconds * 1000))
    known = call.question.arguments if call.question is not None else call.own_arguments
    arguments = policy.arguments or known
    return e.QuestionAsked(
        turn=turn,
        index=call.index,
        kind="approval",
        tool=call.record.name,
        arguments=canonical(arguments),
        digest=digest(call.record.name, arguments),
        answers=APPROVAL_ANSWERS,
        prompt=why,
        deadline=deadline,
        on_deadline=policy.on_deadline if deadline else "",
    )


def _rejected(call: CallState, turn: int, text: str, *, by: str) -> e.ToolFinished:
    return e.ToolFinished(turn, call.index, "rejected", text, call.attempt, by)
