"""How a cancelled run ends: each of its calls gets one last outcome, then comes the end. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.values import decode_value, to_text
from agentkit.state.journal.approval import rejected
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lanes import OPEN_OUTCOMES, CallState

__all__ = ["CANCELLED", "CANCELLED_IN_DOUBT", "CUT_OFF", "cancelled_by"]

CANCELLED = "This call was not made: the run was cancelled."
CUT_OFF = "This call was cut off: the run was cancelled."
CANCELLED_IN_DOUBT = (
    "The run was cancelled when {tool} was under way or its outcome was not known: it may or may "
    "not have taken effect."
)
_NO_BODIES: Mapping[int, e.ToolFinished] = {}


def cancelled_by(
    state: RunState,
    *,
    ended: Mapping[int, e.ToolFinished] = _NO_BODIES,
    not_begun: Collection[int] = (),
) -> list[e.Body]:
    """The last entries of a run whose cancel was asked for.

    A call that a person has settled keeps that word, one that never took effect is `cancelled`, and
    one that may have is `in_doubt`: the run's end asks nobody.

    Args:
        state: of the run.
        ended: outcomes that its worker knows and has not recorded, by call index.
        not_begun: calls with an intent that its worker has not made.
    """
    cancel = state.cancel
    if cancel is None or state.end is not None:
        return []
    turn = state.main.turn
    bodies: list[e.Body] = []
    for call in turn.calls if turn is not None and not turn.closed else ():
        known = ended.get(call.index)
        if call.settled:
            continue
        if known is not None and known.outcome not in OPEN_OUTCOMES:
            bodies.append(known)
        else:
            refused = known is not None and known.outcome == "not_started"
            begun = call.index not in not_begun and not refused
            bodies.append(_last_outcome(call, state.main.turns, begun=begun))
    return [*bodies, e.Cancelled(cancel.actor, cancel.reason)]


def _last_outcome(call: CallState, turn: int, *, begun: bool) -> e.ToolFinished:
    decision = call.decision
    if decision is not None and decision.answer in {"done", "failed", "skip"}:
        return _decided(call, turn, decision)
    if decision is not None and decision.answer == "reject":
        return rejected(call, decision, turn=turn)
    outcome: e.Outcome = "in_doubt" if _may_have_happened(call, begun=begun) else "cancelled"
    text = CANCELLED if call.started is None or not begun else CUT_OFF
    if outcome == "in_doubt":
        text = CANCELLED_IN_DOUBT.format(tool=call.record.name)
    return e.ToolFinished(turn, call.index, outcome, text, max(call.attempt, 1))


def _may_have_happened(call: CallState, *, begun: bool) -> bool:
    """Whether an attempt at a call with effects began, and its end is not known to be a failure."""
    started, outcome = call.started, call.outcome
    if started is None or not started.key or started.transactional:
        return False
    never = not begun or (outcome is not None and outcome.outcome == "not_started")
    return not (never and call.attempt <= 1)


def _decided(call: CallState, turn: int, decision: e.Decided) -> e.ToolFinished:
    by = decision.actor or "human"
    if decision.answer == "skip":
        text = CANCELLED_IN_DOUBT.format(tool=call.record.name)
        return e.ToolFinished(turn, call.index, "skipped", text, call.attempt, by)
    outcome: e.Outcome = "ok" if decision.answer == "done" else "error"
    return e.ToolFinished(
        turn, call.index, outcome, to_text(decode_value(decision.value)), call.attempt, by
    )
