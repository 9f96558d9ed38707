"""The pure fold: entries in, state of the run out. No clock, no chance, no I/O, no user code.

`RunState` is a private buffer that only `apply` writes; everybody else reads it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Head, RunStatus, Summary
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import Question, StopReason, Usage
from agentkit.state.journal.lanes import CallState, LaneState, SavedVersion, TurnState

__all__ = ["Detail", "RunState"]


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The opaque part of a `Summary`: what lists and probes show without reading the journal.

    `asking`: the next act is to ask the model, so an answer may be lost with the worker.
    """

    task: str = ""
    questions: tuple[Question, ...] = ()
    parked: str = ""
    message: str = ""
    output: str = ""
    stop_reason: StopReason | None = None
    partial: bool = False
    forked_from: str = ""
    forked_version: int = 0
    asking: bool = False


_encode = msgspec.json.Encoder().encode


class RunState:
    """What a run's entries say. Starts empty; grows by `apply`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seq = 0
        self.check = b""
        self.epoch = 0
        self.recoveries = 0
        self.takeovers = 0
        self.started: e.RunStarted | None = None
        self.started_at = 0
        self.updated_at = 0
        self.usage = Usage()
        self.forked: e.Forked | None = None
        self.inherited = Usage()
        self.lanes: dict[str, LaneState] = {}
        self.decided: dict[str, e.Decided] = {}
        self.parked: e.Parked | None = None
        self.end: e.Finished | e.Failed | e.Cancelled | None = None
        self.main_lane = ""
        self.head_details: dict[bool, bytes] = {}
        self.base, self.base_detail = Summary("saved"), Detail()

    @classmethod
    def unread(cls, head: Head) -> RunState:
        """What the head alone says, for a run whose entries must not be read, or are gone."""
        state = cls(head.run)
        state.seq, state.check, state.epoch = head.seq, head.check, head.epoch
        if head.summary is not None:
            state.base = head.summary
            state.base_detail = msgspec.json.decode(head.summary.detail, type=Detail)
            state.usage, state.started_at = head.summary.usage, head.summary.started_at
            state.updated_at = head.summary.updated_at
            if head.tombstone:
                state.end = _end_in(head.summary.status, state.base_detail)
        return state

    def apply(self, entry: e.Entry, check: bytes) -> None:
        """Take in the next entry, whose checksum is `check`."""
        self.seq = entry.seq
        self.check = check
        self.epoch = entry.epoch
        self.updated_at = entry.at
        _APPLY[type(entry.body)](self, entry, entry.body)

    def lane(self, name: str) -> LaneState:
        """The lane of that name, empty where it has no entry yet."""
        return self.lanes.get(name) or self.lanes.setdefault(name, LaneState(name))

    @property
    def nonce(self) -> str:
        """What makes this run's keys differ from those of any other one."""
        if self.forked is not None:
            return self.forked.nonce
        return self.started.nonce if self.started is not None else ""

    @property
    def main(self) -> LaneState:
        """The lane of the agent that the run was started for."""
        return self.lane(self.main_lane)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Open questions that nobody has decided, in journal order."""
        return tuple(
            call.question
            for lane in self.lanes.values()
            if lane.turn is not None
            for call in lane.turn.calls
            if call.question is not None and call.waiting
        )

    @property
    def status(self) -> RunStatus:
        """The run's status; never stored apart from the entries that imply it."""
        if self.end is not None:
            return _END_STATUS[type(self.end)]
        if self.parked is not None:
            return "parked"
        if self.started is None:
            return "saved"
        if any(lane.suspended for lane in self.lanes.values()) and self.questions:
            return "suspended"
        return "running"

    def find_call(self, question_id: str) -> CallState | None:
        """The call whose question has this id, decided or not; `None` once it was applied."""
        for lane in self.lanes.values():
            for call in lane.turn.calls if lane.turn is not None else ():
                if call.question is not None and call.question.id == question_id:
                    return call
        return None

    def summary(self) -> Summary:
        """The head's columns for this state."""
        status = self.status
        known = self.head_details.get(self.asking) if status == "running" else None
        detail = _encode(self.detail(status)) if known is None else known
        if status == "running":
            self.head_details[self.asking] = detail
        return Summary(
            status=status,
            agent=self.started.agent if self.started is not None else self.base.agent,
            iteration=self.main.iteration or self.base.iteration,
            usage=self.usage,
            started_at=self.started_at,
            updated_at=self.updated_at,
            recoveries=self.recoveries,
            detail=detail,
            due_at=0 if status == "running" else None,
        )

    @property
    def asking(self) -> bool:
        """Whether the next act is to ask the model."""
        return self.main.wants_model if self.started is not None else self.base_detail.asking

    def detail(self, status: RunStatus) -> Detail:
        """The summary's opaque part."""
        detail, base = self._detail(status), self.base_detail
        parent, version = base.forked_from, base.forked_version
        if self.forked is not None:
            parent, version = self.forked.parent, self.forked.version
        if not parent:
            return detail
        return msgspec.structs.replace(detail, forked_from=parent, forked_version=version)

    def _detail(self, status: RunStatus) -> Detail:
        task = self.started.task[:200] if self.started is not None else self.base_detail.task
        if isinstance(self.end, e.Finished):
            end = self.end
            return Detail(task, (), "", "", end.output, end.stop_reason, end.partial)
        if isinstance(self.end, e.Failed):
            return Detail(task, message=self.end.message, stop_reason="failed")
        if isinstance(self.end, e.Cancelled):
            return Detail(task, message=self.end.reason, stop_reason="cancelled")
        if self.parked is not None:
            return Detail(task, parked=self.parked.reason, message=self.parked.message)
        if status == "running":
            return Detail(task, asking=self.asking)
        return Detail(task, self.questions if status == "suspended" else ())


def _end_in(status: RunStatus, detail: Detail) -> e.Finished | e.Failed | e.Cancelled | None:
    """The last entry of an ended run, as its summary keeps it."""
    if status == "done":
        return e.Finished(detail.output, detail.stop_reason or "completed", detail.partial)
    if status == "failed":
        return e.Failed(detail.message)
    return e.Cancelled(reason=detail.message) if status == "cancelled" else None


_END_STATUS: dict[type, RunStatus] = {
    e.Finished: "done",
    e.Failed: "failed",
    e.Cancelled: "cancelled",
}


def _run_started(state: RunState, entry: e.Entry, body: e.RunStarted) -> None:
    state.started = body
    state.started_at = entry.at
    state.main_lane = agent_lane(body.agent)
    state.head_details.clear()
    state.main.transcript.add_user(body.task)


def _lease_taken(state: RunState, entry: e.Entry, body: e.LeaseTaken) -> None:
    state.recoveries = body.recoveries
    for lane in state.lanes.values():
        lane.hand_over(body.why)
    if body.why != "takeover":
        return
    state.takeovers += 1
    if state.parked is None and state.asking:
        # The worker that died was between two answers: one may have been paid for and lost.
        state.usage += Usage(unknown=1)


def _model_answered(state: RunState, entry: e.Entry, body: e.ModelAnswered) -> None:
    lane = state.lane(entry.lane)
    before = lane.turn
    if before is not None and not before.closed and not before.settled:
        lane.transcript.repairs.append(f"entry {entry.seq}: calls before it had no result")
        lane.transcript.add_results(before.results)
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
    if call is not None:
        call.decision = None
        call.question = Question(
            id=f"q{entry.seq}",
            kind=body.kind,
            tool=body.tool,
            call_id=call.record.id,
            arguments=body.arguments,
            digest=body.digest,
            answers=body.answers,
            prompt=body.prompt,
        )


def _tool_finished(state: RunState, entry: e.Entry, body: e.ToolFinished) -> None:
    lane = state.lane(entry.lane)
    call = _call(lane, body.turn, body.index)
    turn = lane.turn
    if call is None or turn is None or call.settled:
        lane.transcript.repairs.append(f"entry {entry.seq}: a result without a call was ignored")
        return
    call.end(body, seq=entry.seq)
    if body.outcome != "not_started":
        _progressed(state, lane, turn, call)


def _outcome_reported(state: RunState, entry: e.Entry, body: e.OutcomeReported) -> None:
    """A fact about an attempt that is in doubt settles it, whoever told it and whatever was asked;
    about an attempt that was followed by another, or has its outcome, it is only on record.
    """
    lane = state.lane(entry.lane)
    call = _call(lane, body.turn, body.index)
    turn = lane.turn
    if call is None or turn is None or turn.closed or not call.doubtful(body.attempt):
        return
    outcome = e.ToolFinished(
        body.turn, body.index, body.outcome, body.content, body.attempt, body.by
    )
    call.end(outcome, seq=entry.seq)
    _progressed(state, lane, turn, call)


def _progressed(state: RunState, lane: LaneState, turn: TurnState, call: CallState) -> None:
    state.recoveries = 0
    call.question = call.decision = None
    lane.suspended = False
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


def _decided(state: RunState, entry: e.Entry, body: e.Decided) -> None:
    call = state.find_call(body.question)
    question = call.question if call is not None else None
    if call is not None and question is not None and question.digest == body.digest:
        call.decision = call.decision or body
        state.decided.setdefault(question.id, body)


def _forked(state: RunState, entry: e.Entry, body: e.Forked) -> None:
    """What was folded so far is another run's past: nothing of it is to be paid or mended here."""
    state.forked = body
    state.head_details.clear()
    state.started_at = entry.at
    state.inherited += state.usage
    state.usage = Usage()
    state.recoveries = 0
    state.parked = None
    for name, lane in state.lanes.items():
        main = name == state.main_lane
        lane.fork(body.edits if main else (), body.message if main else "", seq=entry.seq)
    undecided = {question.id for question in state.questions}
    state.decided = {asked: one for asked, one in state.decided.items() if asked not in undecided}


def _parked(state: RunState, entry: e.Entry, body: e.Parked) -> None:
    state.parked = body


def _unparked(state: RunState, entry: e.Entry, body: e.Unparked) -> None:
    state.parked = None
    state.recoveries = 0
    for lane in state.lanes.values():
        lane.failures.clear()


def _ended(state: RunState, entry: e.Entry, body: e.Finished | e.Failed | e.Cancelled) -> None:
    state.end = body
    state.parked = None


def _call(lane: LaneState, turn: int, index: int) -> CallState | None:
    current = lane.turn
    if current is None or current.answer.turn != turn or not 0 <= index < len(current.calls):
        return None
    return current.calls[index]


_APPLY: dict[type, Callable[..., None]] = {
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
    e.OutcomeReported: _outcome_reported,
    e.Forked: _forked,
    e.Parked: _parked,
    e.Unparked: _unparked,
    e.Finished: _ended,
    e.Failed: _ended,
    e.Cancelled: _ended,
}
