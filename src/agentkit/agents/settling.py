"""What an operator says of a run without driving it: how a call ended, and that it may go on."""

from __future__ import annotations

import msgspec

from agentkit.agents.decisions import (
    check_decision,
    check_decision_texts,
    check_decisions,
    decision_word,
    refuse_if_cancelled,
)
from agentkit.agents.opening import takes_url
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, RunInUse
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import IN_DOUBT_ANSWERS, Decision
from agentkit.core.contracts.values import to_text
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import append_note, load_known
from agentkit.state.journal.lanes import CallState, LaneState
from agentkit.state.journal.owner import describe, is_dead
from agentkit.state.journal.texts import SKIPPED

__all__ = ["settle_call", "unpark"]

_OUTCOMES: dict[str, e.Outcome] = {
    "done": "ok",
    "failed": "error",
    "run_again": "retrying",
    "skip": "skipped",
}


@takes_url
async def settle_call(
    port: JournalPort,
    run_id: str,
    call: str,
    decision: Decision,
    *,
    clock: ClockPort | None = None,
) -> RunState:
    """Say how a call in doubt ended, or what is to be done about it; nothing is run by this. An
    open question about the call is answered; where nobody has asked yet, a note says it.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        call: `turn.index` (as the timeline shows it), the id of its question, or the provider's
            label where no other call of the run has carried it.
        decision: `done` with what the tool returned, `failed` with why, `run_again` or `skip`.
        clock: for the time shown beside the note.

    Returns the run with the note.

    Raises:
        RunNotFound: there is no such run.
        InvalidDecision: there is no such open call (any more), or this is no answer for it.
        NoteRefused: the run was cancelled.
        RunInUse: a worker is at the call just now; its outcome comes by itself.
    """
    decision = _checked(run_id, call, decision)
    state = await load_known(port, run_id)
    lane, found = _find(state, call)
    check_decision(state, call, decision)
    if found.question is None:
        await _refuse_while_at_work(port, run_id, call)

    def notes(now: RunState) -> list[e.Body]:
        refuse_if_cancelled(now)
        newest = _same_attempt(found, now, call, lane=lane)
        if newest.question is not None:
            return [*check_decisions(now, {newest.question.id: decision})]
        return [_reported(lane, newest, decision)]

    return await append_note(
        port,
        run_id,
        notes,
        note_id=f"settled-{SystemChance().token()}",
        lane=lane.lane,
        clock=clock or SystemClock(),
    )


def _checked(run_id: str, call: str, decision: Decision) -> Decision:
    """The decision with its word as it is recorded."""
    answer = decision_word(decision.answer)
    if answer not in IN_DOUBT_ANSWERS:
        allowed = ", ".join(IN_DOUBT_ANSWERS)
        raise InvalidDecision(f"run {run_id!r}, call {call}: {answer!r} is not {allowed}")
    return msgspec.structs.replace(decision, answer=answer)


@takes_url
async def unpark(
    port: JournalPort,
    run_id: str,
    *,
    actor: str = "",
    reason: str = "",
    clock: ClockPort | None = None,
) -> RunState:
    """Let a parked run go on: what stopped it was mended. Its next worker drives it.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        actor: who says so, for the record.
        reason: why, for the record.
        clock: for the time shown beside the note.

    Raises:
        RunNotFound: there is no such run.
        InvalidDecision: it is not parked.
        NoteRefused: it has ended, or was cancelled.
    """

    def note(state: RunState) -> list[e.Body]:
        refuse_if_cancelled(state)
        if state.parked is None:
            raise InvalidDecision(f"run {run_id!r} is not parked: it is {state.status}")
        check_decision_texts(state, "unpark", Decision("unpark", actor=actor, reason=reason))
        return [e.Unparked(actor, reason)]

    state = await load_known(port, run_id)
    lane = "" if state.started is None else agent_lane(state.started.agent)
    return await append_note(
        port,
        run_id,
        note,
        note_id=f"unparked-{SystemChance().token()}",
        lane=lane,
        clock=clock or SystemClock(),
    )


def _open_calls(state: RunState) -> list[tuple[LaneState, CallState]]:
    return [
        (lane, call)
        for lane in state.lanes.values()
        if lane.turn is not None and not lane.turn.closed
        for call in lane.turn.calls
        if call.question is not None or (not call.settled and call.doubtful(call.attempt))
    ]


def _find(state: RunState, name: str) -> tuple[LaneState, CallState]:
    """The open call of that name.

    Raises:
        InvalidDecision: there is none, or more than one.
    """
    calls = _open_calls(state)
    found = [(lane, call) for lane, call in calls if name in _names(state, lane, call)]
    if len(found) == 1:
        return found[0]
    problem = "more than one open call is" if found else "no open call is"
    raise _not_one(state, name, problem)


def _not_one(state: RunState, name: str, problem: str) -> InvalidDecision:
    calls = _open_calls(state)
    shown = ", ".join(f"{lane.turns}.{call.index} ({call.record.name})" for lane, call in calls)
    open_ones = f"open calls: {shown}" if shown else "it has no call in doubt"
    return InvalidDecision(f"run {state.run_id!r}: {problem} named {name!r}; {open_ones}")


def _names(state: RunState, lane: LaneState, call: CallState) -> set[str]:
    """What the call goes by. A label that another one has carried too could have been meant for
    that.
    """
    names = {f"{lane.turns}.{call.index}"}
    label, turn = call.record.id, lane.turn
    carrying = [one for one in turn.calls if one.record.id == label] if turn is not None else []
    if label and len(carrying) == 1 and label not in state.labels:
        names.add(label)
    return names if call.question is None else {*names, call.question.id}


def _same_attempt(found: CallState, state: RunState, name: str, *, lane: LaneState) -> CallState:
    """The open call that was `found` in `lane`, if that is still its newest attempt."""
    place = (lane.lane, lane.turns, found.index)
    newest = next(
        (one for at, one in _open_calls(state) if (at.lane, at.turns, one.index) == place), None
    )
    if newest is None:
        raise _not_one(state, name, "no open call is")
    if newest.attempt != found.attempt:
        raise InvalidDecision(
            f"run {state.run_id!r}, call {name}: it was made again meanwhile (attempt "
            f"{newest.attempt}), and what was said is about attempt {found.attempt}; look anew"
        )
    return newest


async def _refuse_while_at_work(port: JournalPort, run_id: str, call: str) -> None:
    head = await port.head(run_id)
    if head is None or not head.held or is_dead(head.owner, known_drives=known):
        return
    message = (
        f"run {run_id!r}: a worker ({describe(head.owner)}) holds it and may be at call {call} "
        "just now; its outcome comes by itself. Stop that worker first, or wait."
    )
    left = head.expires_in_seconds
    raise RunInUse(message, run_id=run_id, owner=head.owner, expires_in_seconds=left)


def _reported(lane: LaneState, call: CallState, decision: Decision) -> e.OutcomeReported:
    content = "" if decision.answer == "run_again" else to_text(decision.value)
    if decision.answer == "skip":
        content = f"{SKIPPED} {decision.reason}".strip()
    return e.OutcomeReported(
        turn=lane.turns,
        index=call.index,
        attempt=call.attempt,
        outcome=_OUTCOMES[decision.answer],
        content=content,
        by=decision.actor or "human",
        reason=decision.reason,
    )
