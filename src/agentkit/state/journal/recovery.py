"""What to do about the calls of a turn: pure rules, the in-doubt table among them.

A call is in doubt when it was dispatched, or may have been, and its worker is gone, or when its
tool said that it cannot tell. Fencing our journal does not fence the outside world, so only what
cannot double is automatic: reads run again, idempotent tools run again under the same key, and
everything else is asked of a human.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.slots import slot_of
from agentkit.core.contracts.types import IN_DOUBT_ANSWERS
from agentkit.core.contracts.values import canonical, decode_value, digest, to_text
from agentkit.state.journal.fold import OPEN_OUTCOMES, CallState, LaneState, RunState, TurnState

__all__ = ["CallPolicy", "idempotency_key", "plan_turn"]

TRUNCATED = (
    "This call was not run: the answer was cut by the output limit, so its arguments may be "
    "incomplete. Repeat the call with a shorter answer."
)
DUPLICATE = "This call repeats an earlier one of the same turn; it ran once, see the result there."
ATTEMPTS_SPENT = "This call was interrupted {attempts} times and has no attempts left; no result."
SKIPPED = "A person decided not to run this call again. Whether it took effect is not known."


class CallPolicy(NamedTuple):
    """What the runtime knows about the tool of one call.

    `problem`: why the call cannot be run at all (unknown tool, wrong arguments), told to the model.
    """

    side_effecting: bool = True
    idempotent: bool = False
    max_attempts: int | None = None
    problem: str = ""


def idempotency_key(state: RunState, lane: str, turn: int, index: int) -> str:
    """The key of one call: stable over retries, crashes and workers, different for every call."""
    nonce = state.started.nonce if state.started is not None else ""
    place = "\0".join((nonce, slot_of(state.run_id, lane), str(turn), str(index)))
    return blake2b(place.encode(), digest_size=16).hexdigest()


class _Waits:
    """A call that only a decision can move."""


_WAITS = _Waits()


def plan_turn(
    state: RunState,
    lane: LaneState,
    turn: TurnState,
    policies: Sequence[CallPolicy],
    *,
    epoch: int,
    outcomes: Mapping[int, e.ToolFinished] | None = None,
    in_flight: Collection[int] = (),
) -> list[e.Body]:
    """The entries that the calls of `turn` need next, beside `outcomes` that are about to be
    recorded and calls that are `in_flight`. When no call acts after them, the step's boundary
    comes last."""
    outcomes = outcomes or {}
    bodies: list[e.Body] = []
    acting, waiting = bool(in_flight), False
    for call in turn.calls:
        if call.index in in_flight:
            continue
        outcome = outcomes.get(call.index, call.outcome)
        move = _next(state, lane, turn, call, policies[call.index], outcome, epoch)
        if isinstance(move, e.ToolStarted):
            acting = True
        elif isinstance(move, e.QuestionAsked | _Waits):
            waiting = True
        elif outcome is None and move is None:
            acting = True
        if move is not None and not isinstance(move, _Waits):
            bodies.append(move)
    if not acting and not waiting and not turn.closed:
        bodies.append(e.StepCompleted(lane.version + 1, lane.iteration + 1))
    elif not acting and waiting and (bodies or outcomes or not lane.suspended):
        bodies.append(e.StepCompleted(lane.version + 1, lane.iteration, "suspended"))
    return bodies


def _next(
    state: RunState,
    lane: LaneState,
    turn: TurnState,
    call: CallState,
    policy: CallPolicy,
    outcome: e.ToolFinished | None,
    epoch: int,
) -> e.ToolStarted | e.QuestionAsked | e.ToolFinished | _Waits | None:
    """The next fact of one call; `None` when it is settled, or recorded and not yet dispatched."""
    number = turn.answer.turn
    if outcome is not None and outcome.outcome not in OPEN_OUTCOMES:
        return None
    if call.question is not None:
        return _WAITS if call.decision is None else _apply_decision(state, lane, call, number)
    if outcome is not None and outcome.outcome == "retrying":
        return _start(state, lane, call, number, policy, attempt=call.attempt + 1)
    if outcome is not None and outcome.outcome == "not_started":
        return _start(state, lane, call, number, policy, attempt=max(call.attempt, 1))
    if call.started is None:
        refusal = _refusal(turn, call, policy)
        if refusal is not None:
            return refusal
        return _start(state, lane, call, number, policy, attempt=1)
    if outcome is None and call.started_epoch == epoch:
        return None
    return _recover(state, lane, call, number, policy)


def _refusal(turn: TurnState, call: CallState, policy: CallPolicy) -> e.ToolFinished | None:
    """The outcome of a call that must not be run, if it is one."""
    number = turn.answer.turn
    if turn.answer.stop == "length":
        return e.ToolFinished(number, call.index, "error", TRUNCATED, 0)
    if policy.problem:
        return e.ToolFinished(number, call.index, "error", policy.problem, 0)
    record = call.record
    if record.id and any(
        earlier.record == record for earlier in turn.calls[: call.index]
    ):
        return e.ToolFinished(number, call.index, "duplicate", DUPLICATE, 0)
    return None


def _recover(
    state: RunState, lane: LaneState, call: CallState, turn: int, policy: CallPolicy
) -> e.ToolStarted | e.QuestionAsked | e.ToolFinished:
    """The in-doubt table."""
    spent = policy.max_attempts is not None and call.attempt >= policy.max_attempts
    automatic = not policy.problem and (not policy.side_effecting or policy.idempotent)
    if automatic and not spent:
        return _start(state, lane, call, turn, policy, attempt=call.attempt + 1)
    if automatic and not policy.side_effecting:
        text = ATTEMPTS_SPENT.format(attempts=call.attempt)
        return e.ToolFinished(turn, call.index, "error", text, call.attempt)
    record = call.record
    return e.QuestionAsked(
        turn=turn,
        index=call.index,
        kind="in_doubt",
        tool=record.name,
        arguments=canonical(record.arguments),
        digest=digest(record.name, record.arguments),
        answers=IN_DOUBT_ANSWERS,
        prompt=(
            f"{record.name} was started (attempt {call.attempt}) and its worker ended before the "
            "outcome was recorded, so it may or may not have taken effect. Look at the outside "
            "system, then answer: done (with what it returned), failed, run_again or skip."
        ),
    )


def _apply_decision(
    state: RunState, lane: LaneState, call: CallState, turn: int
) -> e.ToolStarted | e.ToolFinished:
    """What a human's decision about an in-doubt call means."""
    decision = call.decision
    if decision is None or call.started is None:
        message = f"run {state.run_id!r}: call {call.index} of turn {turn} has nothing to apply"
        raise AssertionError(message)
    by = decision.actor or "human"
    if decision.answer == "run_again":
        return e.ToolStarted(
            turn, call.index, call.record.name, call.started.digest, call.started.key,
            call.attempt + 1,
        )
    if decision.answer == "skip":
        text = f"{SKIPPED} {decision.reason}".strip()
        return e.ToolFinished(turn, call.index, "skipped", text, call.attempt, by)
    value = to_text(decode_value(decision.value))
    outcome: e.Outcome = "ok" if decision.answer == "done" else "error"
    return e.ToolFinished(turn, call.index, outcome, value, call.attempt, by)


def _start(
    state: RunState,
    lane: LaneState,
    call: CallState,
    turn: int,
    policy: CallPolicy,
    *,
    attempt: int,
) -> e.ToolStarted:
    record = call.record
    return e.ToolStarted(
        turn=turn,
        index=call.index,
        name=record.name,
        digest=digest(record.name, record.arguments),
        key=idempotency_key(state, lane.lane, turn, call.index) if policy.side_effecting else "",
        attempt=attempt,
    )
