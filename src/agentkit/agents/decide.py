"""What to do next: a pure function of the run's state and the agent's definition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import ModelReply
from agentkit.core.contracts.types import CallRecord, StopReason
from agentkit.core.contracts.values import to_text
from agentkit.state.journal.closing import cancelled_by
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lanes import CallState, LaneState, TurnState
from agentkit.state.journal.recovery import CallPolicy, plan_turn, unsure

__all__ = [
    "INTERRUPTED",
    "PARKED_TEXT",
    "Action",
    "Ask",
    "Dispatch",
    "Leave",
    "Record",
    "after_answer",
    "answered_by",
    "decide",
    "due_calls",
    "ending",
    "ends_tenure",
    "failed_by",
    "last_words",
    "open_turn",
    "parked_by",
    "split_told",
    "without_acts",
]


class Ask(NamedTuple):
    """Ask the model for answer `turn`, attempt `attempt`, not before `not_before` (ms, or 0)."""

    turn: int
    attempt: int
    not_before: int


class Record(NamedTuple):
    """Append these entries."""

    bodies: list[e.Body]


class Dispatch(NamedTuple):
    """Make these `calls`: their intents are durable and nobody has made them. Of these in `doubt`,
    ask the tools what became of them.
    """

    calls: list[CallState]
    doubt: list[CallState]


class Leave(NamedTuple):
    """Nothing to do now: the run has ended, is parked, or waits for a human."""


Action: TypeAlias = Ask | Record | Dispatch | Leave

INTERRUPTED = "Its worker was told to stop before this call had ended."

PARKED_TEXT = {
    "auth": "The provider refused the credentials. Mend the API key, then resume.",
    "quota": "The provider's spend limit or quota is used up. Raise it, then resume.",
    "invalid_request": "The provider refused the request as invalid.",
    "not_found": "The provider does not know the model or address.",
    "context_length": "The transcript is longer than the model's context.",
    "retries_spent": "All attempts at the model failed.",
}


def open_turn(state: RunState, spec: AgentSpec) -> TurnState | None:
    """The newest turn where some of its calls still need something."""
    turn = state.lane(spec.lane).turn
    return turn if turn is not None and turn.calls and not turn.closed else None


def decide(
    state: RunState,
    spec: AgentSpec,
    policies: Sequence[CallPolicy],
    *,
    epoch: int,
    now_ms: int = 0,
) -> Action:
    """The next action. `policies` are those of the open turn's calls, in order; `now_ms` is the
    time in ms since the epoch, by which deadlines pass.
    """
    if state.end is not None or state.stopping:
        return Leave()
    lane = state.lane(spec.lane)
    turn = open_turn(state, spec)
    if turn is not None:
        due = due_calls(state, turn, policies, lane=lane, epoch=epoch)
        bodies = (
            []
            if due.calls
            else plan_turn(state, turn, policies, lane=lane, epoch=epoch, now_ms=now_ms)
        )
        if bodies:
            return Record(bodies)
        return due if due.calls or due.doubt else Leave()
    if lane.turn is not None and not lane.turn.calls and not lane.transcript.ends_with_user:
        closing = ending(lane.turn.answer)
        if closing is not None:
            return Record([closing])
    if lane.turns - lane.turns_before >= spec.max_iterations:
        return Record([_out_of_iterations(spec)])
    return _ask(state, spec)


def due_calls(
    state: RunState,
    turn: TurnState,
    policies: Sequence[CallPolicy],
    *,
    lane: LaneState,
    epoch: int,
    in_flight: Collection[int] = (),
) -> Dispatch:
    """What this epoch has to dispatch, beside what is `in_flight`."""
    if state.stopping:
        return Dispatch([], [])
    ready = [
        call
        for call in turn.calls
        if call.index not in in_flight
        and call.outcome is None
        and call.started is not None
        and call.started_epoch == epoch
        and not call.asleep
    ]
    if not any(policy.reconciles for policy in policies):
        return Dispatch(ready, [])
    doubt = unsure(state, turn, policies, lane=lane, epoch=epoch, in_flight=in_flight)
    return Dispatch(ready, doubt)


def ending(answer: e.ModelAnswered) -> e.Finished | None:
    """The end that this answer means for its run, if any."""
    if answer.calls or answer.stop == "pause" or answer.unseen:
        return None
    reasons: dict[str, StopReason] = {"length": "length", "refusal": "refused"}
    reason = reasons.get(answer.stop, "completed")
    return e.Finished(answer.text, reason, partial=reason == "length")


def answered_by(ask: Ask, reply: ModelReply) -> e.ModelAnswered:
    """The fact that `reply` is the answer which `ask` asked for.

    Half characters, which no store can keep, are mended.
    """
    return e.ModelAnswered(
        turn=ask.turn,
        text=to_text(reply.text),
        calls=tuple(
            CallRecord(to_text(call.id), to_text(call.name), to_text(call.arguments))
            for call in reply.calls
        ),
        stop=reply.stop,
        usage=reply.usage,
        model=to_text(reply.model),
        response_id=to_text(reply.response_id),
        native=reply.native,
    )


def after_answer(
    state: RunState,
    spec: AgentSpec,
    answered: e.ModelAnswered,
    policies: Sequence[CallPolicy],
    *,
    epoch: int,
    now_ms: int = 0,
    said: int | None = None,
) -> list[e.Body]:
    """What is recorded with an answer: its end, or the intents and questions of its calls. `said`:
    how many messages the user had added when it was asked for.
    """
    unseen = 0 if said is None else state.lane(spec.lane).said - said
    if unseen > 0:
        answered = msgspec.structs.replace(answered, unseen=unseen)
    end = ending(answered)
    if state.cancel is not None or (end is None and not answered.calls):
        return [answered]
    if end is not None:
        return [answered, end]
    turn, lane = TurnState(answered), state.lane(spec.lane)
    planned = plan_turn(state, turn, policies, lane=lane, epoch=epoch, now_ms=now_ms)
    return [answered, *planned]


def without_acts(bodies: Sequence[e.Body]) -> list[e.Body]:
    """These entries of a worker that is told to stop: calls that would begin are left to the next
    one.
    """
    if not any(isinstance(body, e.ToolStarted) for body in bodies):
        return list(bodies)
    return [body for body in bodies if isinstance(body, e.ModelAnswered)]


def failed_by(
    ask: Ask, error: ModelError, *, now: float, delay_seconds: float | None
) -> list[e.Body]:
    """The fact that this attempt failed, with the time of the next one (`delay_seconds` after
    `now`), or the reason why there is none.
    """
    failed = e.ModelFailed(
        turn=ask.turn,
        attempt=ask.attempt,
        kind=error.kind,
        message=to_text(str(error))[:2_000],
        status=error.status,
        retry_at=None if delay_seconds is None else int((now + delay_seconds) * 1000),
        unknown=error.may_be_paid,
    )
    return [failed] if delay_seconds is not None else [failed, parked_by(failed)]


def ends_tenure(bodies: Sequence[e.Body]) -> bool:
    """Whether these entries are the last of a tenure, so that the lease goes with them."""
    last = bodies[-1] if bodies else None
    if isinstance(last, e.StepCompleted):
        return last.status == "suspended"
    return isinstance(last, e.Finished | e.Failed | e.Cancelled | e.Parked)


def parked_by(failure: e.ModelFailed) -> e.Parked:
    """How a run is parked by a failure that is not tried again."""
    reason = failure.kind if failure.kind in PARKED_TEXT else "retries_spent"
    return e.Parked(reason, f"{PARKED_TEXT[reason]} ({failure.message})")


def split_told(
    turn: TurnState, ended: Mapping[int, e.ToolFinished]
) -> tuple[Mapping[int, e.ToolFinished], list[e.OutcomeReported]]:
    """The outcomes that count, by call index, and for the record those of calls that somebody else
    has settled meanwhile.
    """
    if not any(turn.calls[index].settled for index in ended):
        return ended, []
    mine = {at: one for at, one in ended.items() if not turn.calls[at].settled}
    overtaken = [
        e.OutcomeReported(one.turn, at, one.attempt, one.outcome, one.content)
        for at, one in ended.items()
        if at not in mine
    ]
    return mine, overtaken


def last_words(
    state: RunState,
    spec: AgentSpec,
    *,
    epoch: int,
    ended: Mapping[int, e.ToolFinished],
    dispatched: Collection[tuple[int, int]],
    asking: Ask | None,
) -> list[e.Body]:
    """What a drive that ends in order still has to say.

    Args:
        state: of the run.
        spec: of its agent.
        epoch: of the drive.
        ended: outcomes that are not recorded yet, by call index.
        dispatched: (index, attempt) of the calls that were made.
        asking: the attempt at the model that it is in.
    """
    lane = state.lane(spec.lane)
    asked = [] if asking is None else _cut_off(lane, asking)
    turn = open_turn(state, spec)
    calls = [call for call in turn.calls if call.outcome is None] if turn is not None else []
    mine = [call for call in calls if call.started_epoch == epoch and not call.asleep]
    undone = [call.index for call in mine if (call.index, call.attempt) not in dispatched]
    known = {
        call.index: ended[call.index]
        for call in calls
        if call.index in ended and call.attempt == ended[call.index].attempt
    }
    if state.cancel is not None:
        return [*asked, *cancelled_by(state, ended=known, not_begun=undone)]
    left = [
        e.ToolFinished(lane.turns, call.index, *_left(call, undone), call.attempt)
        for call in mine
        if call.index not in known
    ]
    return [*known.values(), *left, *asked]


def _left(call: CallState, undone: Collection[int]) -> tuple[e.Outcome, str]:
    """How a call of this worker is left that has not ended."""
    return ("not_started", "") if call.index in undone else ("interrupted", INTERRUPTED)


def _cut_off(lane: LaneState, ask: Ask) -> list[e.Body]:
    """That an attempt at the model was left, unless its end is on record."""
    if lane.turns >= ask.turn or _failed(lane, ask):
        return []
    text = "the worker stopped while it waited for the model"
    return [e.ModelFailed(ask.turn, ask.attempt, "interrupted", text, unknown=True)]


def _failed(lane: LaneState, ask: Ask) -> bool:
    """Whether the end of this attempt is on record."""
    return any(one.attempt == ask.attempt and one.kind != "interrupted" for one in lane.failures)


def _ask(state: RunState, spec: AgentSpec) -> Action:
    lane = state.lane(spec.lane)
    failed = [failure for failure in lane.failures if failure.kind != "interrupted"]
    last = failed[-1] if failed else None
    if last is not None and last.retry_at is None:
        return Record([parked_by(last)])
    not_before = last.retry_at if last is not None and last.retry_at is not None else 0
    return Ask(lane.turns + 1, len(failed) + 1, not_before)


def _out_of_iterations(spec: AgentSpec) -> e.Parked:
    message = (
        f"The model answered {spec.max_iterations} times without finishing, which is this agent's "
        "max_iterations. Raise it, then resume."
    )
    return e.Parked("max_iterations", message, "max_iterations")
