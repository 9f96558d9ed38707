"""The facts of a run. Each is a tagged frozen struct; a kind that changes gets a new tag.

Every field with a default may be absent in stored bytes. Texts that hold JSON (arguments, recorded
values) are kept as the text itself, so that nothing is re-encoded.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from agentkit.core.contracts.model import AnswerStop
from agentkit.core.contracts.types import CallRecord, Native, StopReason, ToolDefinition, Usage

__all__ = [
    "ACT_KINDS",
    "NOTE_KINDS",
    "Body",
    "CancelAsked",
    "Cancelled",
    "CheckpointSaved",
    "Decided",
    "Entry",
    "EventReceived",
    "Failed",
    "Finished",
    "Forked",
    "LeaseTaken",
    "MessageAdded",
    "ModelAnswered",
    "ModelFailed",
    "Outcome",
    "OutcomeReported",
    "Parked",
    "PauseAsked",
    "QuestionAsked",
    "ResultEdit",
    "RunStarted",
    "RunSubmitted",
    "StepCompleted",
    "StepStatus",
    "ToolFinished",
    "ToolStarted",
    "Unparked",
    "ValueRecorded",
    "WaitEnded",
    "WaitStarted",
]

Outcome: TypeAlias = Literal[
    "ok",
    "error",
    "unknown",
    "retrying",
    "skipped",
    "rejected",
    "duplicate",
    "not_started",
    "in_doubt",
    "cancelled",
    "interrupted",
]
"""How a call ended. `cancelled`: its run was cancelled before it took effect. `interrupted`: its
worker was told to stop and cut it off, so it may have happened, and the attempt does not count.
`unknown`: it may have happened. `skipped`: a human said so. `rejected`: a human
refused it, or did not approve it in time, and it was never made. `in_doubt`: it may
have happened, and its tool chose that the model is told so. `duplicate`: an exact replay of a call
of the same turn. `not_started`: its intent was recorded but never dispatched, so the call is still
to be made. `retrying`: this attempt failed and another follows. Only `unknown`, `retrying`,
`interrupted` and `not_started` leave it open."""

StepStatus: TypeAlias = Literal["running", "suspended", "done", "failed"]


class RunStarted(msgspec.Struct, frozen=True, omit_defaults=True, tag="run_started"):
    """The run exists. Prompt and tools are kept as they are sent on every request of the run.

    `fingerprint` identifies the definition (prompt, tools, model); `nonce` is random and makes
    idempotency keys of different runs differ even where a run id is used again. `reference` tells
    a person, or the command line, where the agent's definition is (`module:variable`). `autonomy`:
    what needs a person's approval, see `RunContext`; empty for `gated`.
    """

    task: str
    agent: str
    model: str
    system: str
    tools: tuple[ToolDefinition, ...]
    fingerprint: str
    nonce: str
    scope: str = ""
    identity: str = ""
    parent: str = ""
    reference: str = ""
    autonomy: str = ""


class RunSubmitted(msgspec.Struct, frozen=True, omit_defaults=True, tag="run_submitted"):
    """Note: somebody wants this run made; whoever has its agent begins it with `RunStarted`.

    `agent` is its name, or where its definition is (`module:variable`). `identity` and `autonomy`
    are those of the run, see `RunStarted`.
    """

    task: str
    agent: str
    identity: str = ""
    autonomy: str = ""


class LeaseTaken(msgspec.Struct, frozen=True, omit_defaults=True, tag="lease_taken"):
    """A worker took the run. `recoveries`: takeovers without progress, this one included."""

    owner: str
    why: Literal["start", "resume", "takeover"]
    recoveries: int = 0


class ModelAnswered(msgspec.Struct, frozen=True, omit_defaults=True, tag="model_answered"):
    """A complete answer of the model. `unseen`: how many of the newest user messages had come in
    while it was on its way, so that it knows nothing of them.
    """

    turn: int
    text: str = ""
    calls: tuple[CallRecord, ...] = ()
    stop: AnswerStop = "end"
    usage: Usage = Usage()
    model: str = ""
    response_id: str = ""
    native: Native | None = None
    unseen: int = 0


class ModelFailed(msgspec.Struct, frozen=True, omit_defaults=True, tag="model_failed"):
    """An attempt failed. `retry_at` (ms since the epoch) where it will be tried again.

    `unknown`: the provider may have produced and billed an answer that was lost.
    """

    turn: int
    attempt: int
    kind: str
    message: str
    status: int | None = None
    retry_at: int | None = None
    unknown: bool = False


class ToolStarted(msgspec.Struct, frozen=True, omit_defaults=True, tag="tool_started"):
    """Intent: the call is about to be made. `key` is empty for tools without side effects.

    `by`: who had a call in doubt made again: a person, or `reconcile` where its tool found that the
    earlier attempt cannot have happened; `wait` where an attempt that waited is entered again.
    Empty for what the runtime decides by itself.
    `transactional`: the effect is committed with the outcome; without outcome there is none.
    `arguments`: canonical JSON text, where a person has changed the model's; `digest` is of those
    that run.
    """

    turn: int
    index: int
    name: str
    digest: str
    key: str = ""
    attempt: int = 1
    by: str = ""
    transactional: bool = False
    arguments: str = ""


class QuestionAsked(msgspec.Struct, frozen=True, omit_defaults=True, tag="question_asked"):
    """The call waits for a human. The question's id is `q{seq}` of this entry.

    `deadline`: until when (ms since the epoch; 0 for ever), and `on_deadline` what becomes of the
    call then. `name`: of the wait within the call, where its tool asks while it runs. `schema`:
    JSON text of what an answer must be; empty for anything.
    """

    turn: int
    index: int
    kind: str
    tool: str
    arguments: str
    digest: str
    answers: tuple[str, ...]
    prompt: str
    deadline: int = 0
    on_deadline: str = ""
    name: str = ""
    schema: str = ""


class WaitStarted(msgspec.Struct, frozen=True, omit_defaults=True, tag="wait_started"):
    """The newest attempt of a call waits and is left: it will be entered again from its first line.

    `name` is the wait's identity within the call. For a wait that is on record already this says
    that the newest attempt waits for it too, and nothing else of it counts.

    Args:
        until: of `time`: when it is over; else the deadline, 0 for none. In ms since the epoch.
        event: of `event`: its name.
        on_deadline: what the tool gets then.
    """

    turn: int
    index: int
    name: str
    kind: Literal["time", "event", "input"]
    until: int = 0
    event: str = ""
    on_deadline: str = ""


class WaitEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag="wait_ended"):
    """A wait is over because its time, or its deadline, has come."""

    turn: int
    index: int
    name: str
    how: Literal["time", "deadline"]


class ToolFinished(msgspec.Struct, frozen=True, omit_defaults=True, tag="tool_finished"):
    """Outcome of a call; `content` is the text that the model sees."""

    turn: int
    index: int
    outcome: Outcome = "ok"
    content: str = ""
    attempt: int = 1
    by: str = ""


class StepCompleted(msgspec.Struct, frozen=True, omit_defaults=True, tag="step_completed"):
    """A boundary in the lane: the checkpoint of this `version`."""

    version: int
    iteration: int
    status: StepStatus = "running"


class CheckpointSaved(msgspec.Struct, frozen=True, omit_defaults=True, tag="checkpoint_saved"):
    """Note: a user's own snapshot. `state` is JSON text in tagged form."""

    version: int
    status: StepStatus
    state: str
    iteration: int = 0
    created_at: float = 0.0


class ValueRecorded(msgspec.Struct, frozen=True, omit_defaults=True, tag="value_recorded"):
    """What `ToolContext.record(name, fn)` returned within a call; JSON text in tagged form."""

    turn: int
    index: int
    name: str
    value: str


class Decided(msgspec.Struct, frozen=True, omit_defaults=True, tag="decided"):
    """Note: a human answered a question. Bound to the digest that was shown; applied once.

    `value` is JSON text in tagged form; of an `edit` the arguments to run with.
    """

    question: str
    answer: str
    digest: str
    value: str = "null"
    actor: str = ""
    reason: str = ""


class OutcomeReported(msgspec.Struct, frozen=True, omit_defaults=True, tag="outcome_reported"):
    """Note: how an attempt ended, told by somebody without the lease.

    A worker that lost its lease tells what its tool returned, or a person what happened. It settles
    the call while that attempt is the newest one and in doubt; otherwise it is only on record.

    Args:
        turn, index, attempt: which attempt.
        outcome: `ok`, `error`, `skipped`, or `retrying` to have the call made again.
        content: what the model sees.
        by: who told it; empty for the worker that made the attempt.
        reason: why, for the record.
    """

    turn: int
    index: int
    attempt: int
    outcome: Outcome
    content: str = ""
    by: str = ""
    reason: str = ""


class EventReceived(msgspec.Struct, frozen=True, omit_defaults=True, tag="event_received"):
    """Note: something happened outside. It goes to the oldest wait for that name, or is kept until
    there is one. `payload` is JSON text in tagged form; `event_id` names it once for all.
    """

    name: str
    payload: str
    event_id: str
    actor: str = ""


class MessageAdded(msgspec.Struct, frozen=True, omit_defaults=True, tag="message_added"):
    """Note: the user says something more. The model reads it behind the results of open calls."""

    text: str
    actor: str = ""
    message_id: str = ""


class ResultEdit(msgspec.Struct, frozen=True):
    """Another result of a call, as the model is to see it in a fork."""

    turn: int
    index: int
    content: str


class Forked(msgspec.Struct, frozen=True, omit_defaults=True, tag="forked"):
    """Everything before this entry is a copy of what `parent` had recorded up to a version.

    It was done and paid for by that run. From here on it is a run of its own: calls that begin
    later have keys of the new nonce, and usage counts from zero.

    With a `task` the parent had ended, what is copied is its whole conversation, and this run
    carries it on: it is the run of that task, which the model reads behind the parent's answer.

    Args:
        parent: the run that was forked, of the same store and scope.
        version: of its agent's slot; the copied entries end with it, or with the parent's answer.
        nonce: takes the place of `RunStarted.nonce`.
        edits: results of the last turn that the model sees changed. The entries stay as they were.
        message: of the user, behind the results of the last turn; empty for none.
        actor: who forked it, for the record.
        task: see above; empty for a fork.
        identity, reference, autonomy: with a task, they take the place of those of `RunStarted`.
    """

    parent: str
    version: int
    nonce: str
    edits: tuple[ResultEdit, ...] = ()
    message: str = ""
    actor: str = ""
    task: str = ""
    identity: str = ""
    reference: str = ""
    autonomy: str = ""


class Parked(msgspec.Struct, frozen=True, omit_defaults=True, tag="parked"):
    """The run stopped at a limit or at something to mend."""

    reason: str
    message: str
    stop_reason: StopReason = "parked"


class Unparked(msgspec.Struct, frozen=True, omit_defaults=True, tag="unparked"):
    """Somebody asked a parked run to go on; `pause_only` leaves it parked for any other reason."""

    actor: str = ""
    reason: str = ""
    pause_only: bool = False


class CancelAsked(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancel_asked"):
    """Note: the run is to end, for good. No act begins after it; whoever holds the run, or takes it
    next, records `Cancelled`.
    """

    actor: str = ""
    reason: str = ""


class PauseAsked(msgspec.Struct, frozen=True, omit_defaults=True, tag="pause_asked"):
    """Note: the run is to stop until it is unpaused. What is under way ends; no act begins."""

    actor: str = ""
    reason: str = ""


class Finished(msgspec.Struct, frozen=True, omit_defaults=True, tag="finished"):
    """The run has its result. Terminal."""

    output: str
    stop_reason: StopReason = "completed"
    partial: bool = False


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, tag="failed"):
    """The run cannot be mended by any retry. Terminal."""

    message: str


class Cancelled(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancelled"):
    """The run was cancelled for good. Terminal."""

    actor: str = ""
    reason: str = ""


Body: TypeAlias = (
    RunSubmitted
    | RunStarted
    | LeaseTaken
    | ModelAnswered
    | ModelFailed
    | ToolStarted
    | QuestionAsked
    | WaitStarted
    | WaitEnded
    | ToolFinished
    | StepCompleted
    | CheckpointSaved
    | ValueRecorded
    | Decided
    | OutcomeReported
    | EventReceived
    | MessageAdded
    | Forked
    | Parked
    | Unparked
    | CancelAsked
    | PauseAsked
    | Finished
    | Failed
    | Cancelled
)

NOTE_KINDS: tuple[type, ...] = (
    RunSubmitted,
    CheckpointSaved,
    Decided,
    OutcomeReported,
    EventReceived,
    MessageAdded,
    Unparked,
    CancelAsked,
    PauseAsked,
)
"""Kinds that anybody may append without the lease."""

ACT_KINDS: tuple[type, ...] = (ModelAnswered, ToolFinished)
"""Kinds that count as progress of a run."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One recorded fact with its place.

    Args:
        seq: 1, 2, 3 … within the run, without gaps.
        id: a note's own id; empty for the lease holder's entries, whose id is `{epoch}.{seq}`.
        epoch: the lease's epoch; for a note the head's epoch when it was appended.
        lane: the producer's lane, see `slots`.
        at: wall-clock time in ms since the Unix epoch; for display only.
        body: the fact.
    """

    seq: int
    id: str
    epoch: int
    lane: str
    at: int
    body: Body

    @property
    def identity(self) -> str:
        """The entry's id: the note's own, else `{epoch}.{seq}`."""
        return self.id or f"{self.epoch}.{self.seq}"
