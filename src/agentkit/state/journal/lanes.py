"""What the fold knows of one producer: its newest turn, the calls of it, its boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import CallRecord, Question
from agentkit.core.contracts.values import canonical
from agentkit.state.journal.transcript import Transcript

__all__ = [
    "EDITED",
    "OPEN_OUTCOMES",
    "CallState",
    "LaneState",
    "SavedVersion",
    "TurnState",
    "WaitState",
]

OPEN_OUTCOMES: frozenset[str] = frozenset({"unknown", "not_started", "retrying", "interrupted"})
"""Outcomes that leave a call open."""


EDITED = "[A person changed the arguments of this call before it ran. It ran with: {arguments}]"
"""What the model reads above the result of such a call."""


class WaitState:
    """One wait of a call, by its name.

    Attributes:
        attempt: the newest one that was left for it; 0 where none had to be.
        ended: it is over; `how` tells by what, `value` (JSON text in tagged form) with what.
    """

    __slots__ = ("attempt", "ended", "how", "question", "seq", "started", "value")

    def __init__(
        self, started: e.WaitStarted, *, attempt: int, seq: int, question: Question | None = None
    ) -> None:
        self.started = started
        self.question = question
        self.seq = seq
        self.attempt = attempt
        self.ended = False
        self.how = ""
        self.value = "null"

    def end(self, how: str, value: str = "null") -> None:
        """It is over; the first end counts."""
        if not self.ended:
            self.ended, self.how, self.value = True, how, value


class CallState:
    """One call of a turn: its intents, outcome, question and recorded values.

    Attributes:
        settled: the model can be given a result.
        interrupted: attempts that were cut off by a worker told to stop, or left because they
            wait; they do not count.
        left: how the next worker came to the run, where this one left the newest attempt without
            an outcome: `takeover` from one that died or was cut off, `resume` after one that gave
            the run back.
    """

    __slots__ = (
        "attempt",
        "decision",
        "finished_seq",
        "index",
        "interrupted",
        "left",
        "outcome",
        "question",
        "record",
        "settled",
        "started",
        "started_epoch",
        "started_seq",
        "values",
        "waits",
    )

    def __init__(self, index: int, record: CallRecord) -> None:
        self.index = index
        self.record = record
        self.started: e.ToolStarted | None = None
        self.started_epoch = 0
        self.started_seq = 0
        self.finished_seq = 0
        self.attempt = self.interrupted = 0
        self.settled = False
        self.outcome: e.ToolFinished | None = None
        self.question: Question | None = None
        self.decision: e.Decided | None = None
        self.left = ""
        self.values: dict[str, str] = {}
        self.waits: dict[str, WaitState] = {}

    def begin(self, started: e.ToolStarted, *, epoch: int, seq: int) -> None:
        """An attempt is about to be made; whatever came before is over."""
        self.interrupted += self.asleep
        self.started = started
        self.started_epoch = epoch
        self.started_seq = seq
        self.attempt = started.attempt
        self.settled = False
        self.outcome = self.question = self.decision = None
        self.left = ""

    def end(self, outcome: e.ToolFinished, *, seq: int) -> None:
        """The newest attempt has ended; some outcomes leave the call open."""
        self.outcome = outcome
        self.finished_seq = seq
        self.interrupted += outcome.outcome == "interrupted"
        self.settled = outcome.outcome not in OPEN_OUTCOMES

    def doubtful(self, attempt: int) -> bool:
        """Whether this attempt is the newest one and nobody knows how it ended. That somebody had
        it made again says nothing of that, as long as the next one has not begun.
        """
        begun, outcome = self.started is not None and self.attempt == attempt, self.outcome
        told = outcome is not None and outcome.outcome == "retrying" and outcome.by != ""
        unsure = outcome is None or outcome.outcome in {"unknown", "interrupted"}
        return begun and (unsure or told)

    @property
    def may_have_acted(self) -> bool:
        """Whether the newest attempt had effects of which nobody knows, by its entries: it is in
        doubt, or under way. The effect of a transactional call stands where its outcome does.
        """
        started = self.started
        if self.settled or started is None or not started.key or started.transactional:
            return False
        return self.doubtful(self.attempt)

    @property
    def arguments(self) -> str:
        """JSON text of what the call is, or would be, run with: the model's arguments, or those
        that a person gave it instead.
        """
        if self.decision is not None and self.decision.answer == "edit":
            return canonical(self.decision.value)
        return self.own_arguments

    @property
    def own_arguments(self) -> str:
        """`arguments`, whatever a decision that has not been applied yet says of them."""
        edited = self.started.arguments if self.started is not None else ""
        return edited or self.record.arguments

    @property
    def asleep(self) -> bool:
        """Whether the newest attempt waits, and so is left: it is neither acting nor in doubt."""
        return self.outcome is None and any(self._newest_waits())

    @property
    def woken(self) -> bool:
        """Whether something that the newest attempt waits for has come."""
        return self.outcome is None and any(wait.ended for wait in self._newest_waits())

    def _newest_waits(self) -> list[WaitState]:
        if not self.waits:
            return []
        return [wait for wait in self.waits.values() if wait.attempt == self.attempt]

    @property
    def waiting(self) -> bool:
        """Whether a question is open and nobody has decided it."""
        return self.question is not None and self.decision is None


class TurnState:
    """The newest answer of a lane with its calls."""

    __slots__ = ("answer", "calls", "closed")

    def __init__(self, answer: e.ModelAnswered) -> None:
        self.answer = answer
        self.calls = [CallState(index, record) for index, record in enumerate(answer.calls)]
        self.closed = False

    @property
    def settled(self) -> bool:
        """Whether every call has its result."""
        for call in self.calls:  # noqa: SIM110 - asked for every entry of a long journal
            if not call.settled:
                return False
        return True

    @property
    def in_doubt(self) -> list[CallState]:
        """Calls that may have taken effect, and nobody knows; of a closed turn there are none."""
        return [] if self.closed else [call for call in self.calls if call.may_have_acted]

    @property
    def results(self) -> dict[int, e.ToolFinished]:
        """Outcomes that the model is given, by call index."""
        return {
            call.index: _with_edit(call, call.outcome)
            for call in self.calls
            if call.outcome is not None and call.settled
        }


def _with_edit(call: CallState, outcome: e.ToolFinished) -> e.ToolFinished:
    """The outcome as the model sees it, who does not know that a person changed its call."""
    edited = call.started.arguments if call.started is not None else ""
    if not edited:
        return outcome
    told = f"{EDITED.format(arguments=edited)}\n{outcome.content}"
    return msgspec.structs.replace(outcome, content=told)


class SavedVersion(NamedTuple):
    """A boundary: checkpoint `version` is the fold of the entries up to `seq`."""

    version: int
    seq: int
    iteration: int
    status: e.StepStatus
    at: float
    state: str | None = None


class LaneState:
    """One producer's part of the run.

    Attributes:
        turns: answers of the model, those of `turns_before` included, which another run asked for
            whose conversation this one carries on.
    """

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.turns = self.turns_before = 0
        self.iteration = 0
        self.completed = 0
        self.turn: TurnState | None = None
        self.failures: list[e.ModelFailed] = []
        self.versions: list[SavedVersion] = []
        self.suspended = False
        self.said = 0
        self.transcript = Transcript()

    def hand_over(self, how: str) -> None:
        """Another worker has the run: what is under way was left by the one before it."""
        turn = self.turn
        for call in turn.calls if turn is not None and not turn.closed else ():
            if call.started is not None and call.outcome is None:
                call.left = call.left or how

    def fork(self, edits: Sequence[e.ResultEdit], message: str, *, seq: int) -> None:
        """Go on as another run's lane: nothing of the copied past is under way here, and a person
        who decided about an open call decided it for the run that this was copied from.

        Calls that were in doubt stay so, under the key that they had: whether they took effect does
        not depend on who looks.
        """
        self.failures.clear()
        calls = self.turn.calls if self.turn is not None else []
        shown = bool(self.turn and (self.turn.closed or self.turn.settled))
        for call in calls:
            if not call.settled:
                call.decision = None
        for edit in edits:
            call = calls[edit.index]
            changed = e.ToolFinished(edit.turn, edit.index, "ok", edit.content, call.attempt)
            call.end(changed, seq=seq)
        if edits and shown:
            contents = {edit.index: edit.content for edit in edits}
            self.transcript.change_results(contents)
        if message:
            self.transcript.add_user(message)

    @property
    def version(self) -> int:
        """The highest version, 0 for none."""
        return self.versions[-1].version if self.versions else 0

    @property
    def wants_model(self) -> bool:
        """Whether the next act is to ask the model."""
        turn = self.turn
        if turn is None or turn.answer.stop == "pause":
            return True
        if not turn.calls:
            return self.transcript.ends_with_user
        return bool(turn.calls) and turn.closed
