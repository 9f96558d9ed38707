"""The pure fold: entries in, state of the run out. No clock, no chance, no I/O, no user code.

`RunState` is a private buffer that only `apply` writes; everybody else reads it.
"""

from __future__ import annotations

from collections.abc import Callable

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import Usage
from agentkit.state.journal.codec import damaged
from agentkit.state.journal.lanes import (
    OPEN_OUTCOMES,
    CallState,
    LaneState,
    SavedVersion,
    TurnState,
)
from agentkit.state.journal.run_facts import RunFacts
from agentkit.state.journal.waits import begin_input, begin_wait, print_of, question_of, wait_asked

__all__ = ["RunState"]


class RunState(RunFacts):
    """What a run's entries say. Starts empty; grows by `apply`."""

    def apply(self, entry: e.Entry, check: bytes) -> None:
        """Take in the next entry, whose checksum is `check`."""
        self.seq = entry.seq
        self.check = check
        self.epoch = entry.epoch
        self.updated_at = entry.at
        _APPLY[type(entry.body)](self, entry, entry.body)


def _run_submitted(state: RunState, entry: e.Entry, body: e.RunSubmitted) -> None:
    if state.started is None and state.submitted is None:
        state.submitted = body
        state.started_at = entry.at
        state.head_details.clear()


def _run_started(state: RunState, entry: e.Entry, body: e.RunStarted) -> None:
    state.started = body
    state.started_at = entry.at
    state.main_lane = agent_lane(body.agent)
    state.head_details.clear()
    for text in (body.task, *state.early):
        state.main.transcript.add_user(text)
    state.main.said += len(state.early)
    state.early = []


def _lease_taken(state: RunState, entry: e.Entry, body: e.LeaseTaken) -> None:
    state.recoveries = body.recoveries
    for lane in state.lanes.values():
        lane.hand_over(body.why)
    if body.why != "takeover":
        return
    state.takeovers += 1
    if state.stuck is None and state.asking:
        # The worker that died was between two answers: one may have been paid for and lost.
        state.usage += Usage(unknown=1)


def _model_answered(state: RunState, entry: e.Entry, body: e.ModelAnswered) -> None:
    lane = state.lane(entry.lane)
    before = lane.turn
    if before is not None and not before.closed and not before.settled:
        lane.transcript.repairs.append(f"entry {entry.seq}: calls before it had no result")
        _left(state, lane, before)
        lane.transcript.add_results(before.results)
    state.labels.update(call.record.id for call in (before.calls if before is not None else ()))
    lane.turns = body.turn
    lane.failures.clear()
    lane.turn = TurnState(body)
    lane.transcript.add_answer(body)
    state.usage += body.usage
    state.recoveries = 0


def _model_failed(state: RunState, entry: e.Entry, body: e.ModelFailed) -> None:
    state.lane(entry.lane).failures.append(body)
    if body.unknown:
        state.usage += Usage(unknown=1)


def _tool_started(state: RunState, entry: e.Entry, body: e.ToolStarted) -> None:
    lane = state.lane(entry.lane)
    call = _call(lane, body.turn, body.index)
    if call is None:
        lane.transcript.repairs.append(f"entry {entry.seq}: an intent without a call was ignored")
        return
    lane.suspended = False
    call.begin(body, epoch=entry.epoch, seq=entry.seq)


def _question_asked(state: RunState, entry: e.Entry, body: e.QuestionAsked) -> None:
    call = _call(state.lane(entry.lane), body.turn, body.index)
    if call is None:
        return
    question = question_of(state.run_id, entry, body, call.record.id)
    state.labelled.setdefault(question.call_id, []).append(question.id)
    if body.kind == "input":
        begin_input(call, body, question, seq=entry.seq)
        state.recoveries = 0
    else:
        call.question, call.decision = question, None


def _wait_started(state: RunState, entry: e.Entry, body: e.WaitStarted) -> None:
    call = _call(state.lane(entry.lane), body.turn, body.index)
    if call is not None and begin_wait(call, body, state.mail, seq=entry.seq):
        state.recoveries = 0


def _wait_ended(state: RunState, entry: e.Entry, body: e.WaitEnded) -> None:
    call = _call(state.lane(entry.lane), body.turn, body.index)
    if call is not None and body.name in call.waits:
        call.waits[body.name].end(body.how)


def _event_received(state: RunState, entry: e.Entry, body: e.EventReceived) -> None:
    state.mail.receive(body, state.lanes.values())


def _tool_finished(state: RunState, entry: e.Entry, body: e.ToolFinished) -> None:
    lane = state.lane(entry.lane)
    call = _call(lane, body.turn, body.index)
    turn = lane.turn
    if call is None or turn is None or call.settled:
        lane.transcript.repairs.append(f"entry {entry.seq}: a result without a call was ignored")
        return
    call.end(body, seq=entry.seq)
    if body.outcome == "in_doubt":
        state.doubts[lane.lane, body.turn, body.index] = (call.record.name, call.attempt)
    if body.outcome not in {"not_started", "interrupted"}:
        _progressed(state, lane, turn, call)


def _outcome_reported(state: RunState, entry: e.Entry, body: e.OutcomeReported) -> None:
    """A fact about an attempt that is in doubt settles it, whoever told it and whatever was asked;
    about an attempt that was followed by another, or has its outcome, it is only on record, and
    ends the doubt with which the run went on.
    """
    lane = state.lane(entry.lane)
    doubt = (lane.lane, body.turn, body.index)
    known = state.doubts.get(doubt)
    if known is not None and known[1] == body.attempt and body.outcome not in OPEN_OUTCOMES:
        del state.doubts[doubt]
    call = _call(lane, body.turn, body.index)
    turn = lane.turn
    if call is None or turn is None or turn.closed or not call.doubtful(body.attempt):
        return
    outcome = e.ToolFinished(
        body.turn, body.index, body.outcome, body.content, body.attempt, body.by
    )
    call.end(outcome, seq=entry.seq)
    _progressed(state, lane, turn, call)


def _left(state: RunState, lane: LaneState, turn: TurnState) -> None:
    """The run goes on from calls that may have taken effect."""
    for call in turn.in_doubt:
        doubt = (lane.lane, turn.answer.turn, call.index)
        state.doubts[doubt] = (call.record.name, call.attempt)


def _progressed(state: RunState, lane: LaneState, turn: TurnState, call: CallState) -> None:
    state.recoveries = 0
    call.question = call.decision = None
    lane.suspended = False
    lane.completed += call.settled
    if turn.settled:
        lane.transcript.add_results(turn.results)


def _step_completed(state: RunState, entry: e.Entry, body: e.StepCompleted) -> None:
    lane = state.lane(entry.lane)
    lane.iteration = body.iteration
    lane.suspended = body.status == "suspended"
    turn = lane.turn
    if turn is not None and not lane.suspended:
        if not turn.closed and not turn.settled:
            lane.transcript.repairs.append(f"entry {entry.seq}: calls of its step had no result")
            _left(state, lane, turn)
            lane.transcript.add_results(turn.results)
        turn.closed = True
    lane.versions.append(
        SavedVersion(body.version, entry.seq, body.iteration, body.status, entry.at / 1000)
    )


def _checkpoint_saved(state: RunState, entry: e.Entry, body: e.CheckpointSaved) -> None:
    state.lane(entry.lane).versions.append(
        SavedVersion(
            body.version, entry.seq, body.iteration, body.status, body.created_at, body.state
        )
    )


def _value_recorded(state: RunState, entry: e.Entry, body: e.ValueRecorded) -> None:
    call = _call(state.lane(entry.lane), body.turn, body.index)
    if call is not None:
        call.values[body.name] = body.value


def _message_added(state: RunState, entry: e.Entry, body: e.MessageAdded) -> None:
    if body.message_id in state.messages:
        return
    state.messages[body.message_id] = print_of(body.text)
    if state.started is None:
        state.early.append(body.text)
        return
    state.main.said += 1
    state.main.transcript.add_user(body.text)


def _decided(state: RunState, entry: e.Entry, body: e.Decided) -> None:
    wait = wait_asked(state.lanes.values(), body.question)
    if wait is not None and wait.question is not None:
        if wait.question.digest == body.digest and body.question not in state.decided:
            state.decided[body.question] = body
            wait.end("answer", body.value)
        return
    call = state.find_call(body.question)
    question = call.question if call is not None else None
    if call is not None and question is not None and question.digest == body.digest:
        if question.id in state.decided:
            return
        call.decision = state.decided[question.id] = body
        if question.kind == "approval":
            _remember_refusal(state, question.digest, body)


def _remember_refusal(state: RunState, digest: str, decision: e.Decided) -> None:
    """The newest word of a person about a call with these arguments is what counts."""
    state.asked_anew.discard(digest)
    if decision.answer == "reject":
        state.refused[digest] = decision
    else:
        state.refused.pop(digest, None)


def _forked(state: RunState, entry: e.Entry, body: e.Forked) -> None:
    """What was folded so far is another run's past: nothing of it is to be paid or mended here."""
    if any(_call(state.main, edit.turn, edit.index) is None for edit in body.edits):
        raise damaged(state.run_id, entry.seq, "it changes a result of a call that is not there")
    state.forked = body
    if body.task:
        _carried_on(state, entry, body)
    state.head_details.clear()
    state.started_at = entry.at
    state.inherited += state.usage
    state.usage = Usage()
    state.recoveries = 0
    state.stuck = state.pause = state.cancel = None
    state.doubts.clear()  # those of the other run, which tells of them
    state.mail.forget()
    said = body.message or body.task
    for name, lane in state.lanes.items():
        main = name == state.main_lane
        lane.fork(body.edits if main else (), said if main else "", seq=entry.seq)
    undecided = {question.id for question in state.questions}
    state.labels.clear()
    state.labelled.clear()  # what was said by these was said to the other run
    for question in state.questions:
        state.labelled.setdefault(question.call_id, []).append(question.id)
    state.decided = {asked: one for asked, one in state.decided.items() if asked not in undecided}


def _carried_on(state: RunState, entry: e.Entry, body: e.Forked) -> None:
    """The user has a new task: limits, ids of messages and words of refusal were of the old one."""
    state.carried, state.carried_at = body, entry.seq
    state.messages.clear()
    state.asked_anew = set(state.refused)
    for lane in state.lanes.values():
        lane.turns_before = lane.turns


def _parked(state: RunState, entry: e.Entry, body: e.Parked) -> None:
    state.stuck = body


def _unparked(state: RunState, entry: e.Entry, body: e.Unparked) -> None:
    state.pause = None
    if body.pause_only:
        return
    state.stuck = None
    state.recoveries = 0
    for lane in state.lanes.values():
        lane.failures.clear()


def _cancel_asked(state: RunState, entry: e.Entry, body: e.CancelAsked) -> None:
    state.cancel = state.cancel or body


def _pause_asked(state: RunState, entry: e.Entry, body: e.PauseAsked) -> None:
    by = f" by {body.actor}" if body.actor else ""
    text = f"It was paused{by}. `agentkit unpause {state.run_id}` lets it go on."
    state.pause = e.Parked("paused", f"{text} ({body.reason})" if body.reason else text)


def _ended(state: RunState, entry: e.Entry, body: e.Finished | e.Failed | e.Cancelled) -> None:
    state.end = body
    state.stuck = state.pause = None


def _call(lane: LaneState, turn: int, index: int) -> CallState | None:
    current = lane.turn
    if current is None or current.answer.turn != turn or not 0 <= index < len(current.calls):
        return None
    return current.calls[index]


_APPLY: dict[type, Callable[..., None]] = {
    e.RunSubmitted: _run_submitted,
    e.RunStarted: _run_started,
    e.LeaseTaken: _lease_taken,
    e.ModelAnswered: _model_answered,
    e.ModelFailed: _model_failed,
    e.ToolStarted: _tool_started,
    e.QuestionAsked: _question_asked,
    e.ToolFinished: _tool_finished,
    e.StepCompleted: _step_completed,
    e.CheckpointSaved: _checkpoint_saved,
    e.ValueRecorded: _value_recorded,
    e.Decided: _decided,
    e.WaitStarted: _wait_started,
    e.WaitEnded: _wait_ended,
    e.EventReceived: _event_received,
    e.MessageAdded: _message_added,
    e.OutcomeReported: _outcome_reported,
    e.Forked: _forked,
    e.Parked: _parked,
    e.Unparked: _unparked,
    e.CancelAsked: _cancel_asked,
    e.PauseAsked: _pause_asked,
    e.Finished: _ended,
    e.Failed: _ended,
    e.Cancelled: _ended,
}
