"""What is known of a run, from its entries or from its head: status, questions, summary."""

from __future__ import annotations

from typing import Self

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Head, RunStatus, Summary
from agentkit.core.contracts.types import Question, Usage, Wait
from agentkit.state.journal.detail import END_STATUS, Detail, detail_of, end_in, with_calls
from agentkit.state.journal.lanes import CallState, LaneState
from agentkit.state.journal.waits import (
    Mailbox,
    call_asked,
    due_at,
    open_questions,
    open_waits,
)

__all__ = ["RunFacts"]

_encode = msgspec.json.Encoder().encode


class RunFacts:
    """The facts of one run. Starts empty; only the fold writes.

    Attributes:
        labels: what the provider called the calls of earlier turns.
        labelled: by the provider's label of a call, the ids of all questions about such calls.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seq = 0
        self.check = b""
        self.epoch = 0
        self.recoveries = 0
        self.takeovers = 0
        self.submitted: e.RunSubmitted | None = None
        self.started: e.RunStarted | None = None
        self.started_at = 0
        self.updated_at = 0
        self.usage = Usage()
        self.forked: e.Forked | None = None
        self.carried: e.Forked | None = None
        self.carried_at = 0
        self.inherited = Usage()
        self.lanes: dict[str, LaneState] = {}
        self.labels: set[str] = set()
        self.labelled: dict[str, list[str]] = {}
        self.decided: dict[str, e.Decided] = {}
        self.refused: dict[str, e.Decided] = {}
        self.doubts: dict[tuple[str, int, int], tuple[str, int]] = {}
        self.asked_anew: set[str] = set()
        self.mail = Mailbox()
        self.messages: dict[str, bytes] = {}
        self.early: list[str] = []
        self.stuck: e.Parked | None = None
        self.pause: e.Parked | None = None
        self.cancel: e.CancelAsked | None = None
        self.end: e.Finished | e.Failed | e.Cancelled | None = None
        self.main_lane = ""
        self.head_details: dict[tuple[bool, bool], bytes] = {}
        self.base, self.base_detail = Summary("saved"), Detail()

    @classmethod
    def unread(cls, head: Head) -> Self:
        """What the head alone says, for a run whose entries must not be read, or are gone."""
        state = cls(head.run)
        state.seq, state.check, state.epoch = head.seq, head.check, head.epoch
        if head.summary is not None:
            state.base = head.summary
            state.base_detail = msgspec.json.decode(head.summary.detail, type=Detail)
            state.usage, state.started_at = head.summary.usage, head.summary.started_at
            state.updated_at = head.summary.updated_at
            if head.tombstone:
                state.end = end_in(head.summary.status, state.base_detail)
        return state

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
    def task(self) -> str:
        """What the run is to do; empty where that is not known."""
        begun = self._begun or self.submitted
        return begun.task if begun is not None else ""

    @property
    def autonomy(self) -> str:
        """What needs a person's approval, see `RunContext`; empty for `gated`."""
        begun = self._begun or self.submitted
        return begun.autonomy if begun is not None else ""

    @property
    def identity(self) -> str:
        """Who asked for the run; empty where that is not known."""
        begun = self._begun or self.submitted
        return begun.identity if begun is not None else ""

    @property
    def reference(self) -> str:
        """Where the agent's definition is, `module:variable`; empty where that is not known."""
        if self.started is None:
            given = self.submitted.agent if self.submitted is not None else ""
            return given if ":" in given else ""
        own = self._begun.reference if self._begun is not None else ""
        return own or self.started.reference

    @property
    def after(self) -> str:
        """The run whose conversation this one carries on; empty for none."""
        if self.forked is None:
            return self.base_detail.after
        return self.forked.parent if self.forked.task else ""

    @property
    def _begun(self) -> e.RunStarted | e.Forked | None:
        """What tells for which task the run is there, and how it was asked for."""
        return self.carried or self.started

    @property
    def main(self) -> LaneState:
        """The lane of the agent that the run was started for."""
        return self.lane(self.main_lane)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Open questions that nobody has decided, in journal order."""
        return tuple(open_questions(self.lanes.values()))

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What the run waits for beside persons."""
        return tuple(open_waits(self.run_id, self.lanes.values()))

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """Tools with a call that may have taken effect and that nobody has settled: of calls that
        the run went on from without knowing, and of those that are open.
        """
        left = tuple(tool for tool, _ in self.doubts.values())
        turns = [lane.turn for lane in self.lanes.values() if lane.turn is not None]
        open_ = tuple(call.record.name for turn in turns for call in turn.in_doubt)
        return left + open_ or self.base_detail.in_doubt

    @property
    def status(self) -> RunStatus:
        """The run's status; never stored apart from the entries that imply it."""
        if self.end is not None:
            return END_STATUS[type(self.end)]
        if self.cancel is not None:
            return "running"  # somebody is to carry the cancel out
        if self.parked is not None:
            return "parked"
        if self.started is None:
            return "saved" if self.submitted is None else "submitted"
        if any(lane.suspended for lane in self.lanes.values()) and (self.questions or self.waits):
            return "suspended"
        return "running"

    def find_call(self, question_id: str) -> CallState | None:
        """The call whose question has this id, decided or not; `None` once it was applied."""
        return call_asked(self.lanes.values(), question_id)

    def summary(self) -> Summary:
        """The head's columns for this state."""
        status = self.status
        shown = (self.asking, self.cancel is not None)
        known = self.head_details.get(shown) if status == "running" else None
        detail = _encode(detail_of(self, status)) if known is None else known
        if status == "running":
            self.head_details[shown] = detail
        return Summary(
            status=status,
            agent=self._agent,
            iteration=self.main.iteration or self.base.iteration,
            usage=self.usage,
            started_at=self.started_at,
            updated_at=self.updated_at,
            recoveries=self.recoveries,
            detail=with_calls(detail, self.lanes.values()),
            due_at=self._due_at(status),
        )

    @property
    def _agent(self) -> str:
        if self.started is not None:
            return self.started.agent
        return self.submitted.agent if self.submitted is not None else self.base.agent

    def _due_at(self, status: RunStatus) -> int | None:
        if status in {"running", "submitted"}:
            return 0
        return due_at(self.lanes.values()) if status == "suspended" else None

    @property
    def paused(self) -> bool:
        """Whether somebody has paused the run."""
        return self.pause is not None

    @property
    def parked(self) -> e.Parked | None:
        """Why the run is parked: somebody has paused it, or else what it is stuck at."""
        return self.pause or self.stuck

    @property
    def stopping(self) -> bool:
        """Whether no act may begin: somebody cancelled or paused the run, or it is parked."""
        return self.cancel is not None or self.parked is not None

    @property
    def asking(self) -> bool:
        """Whether the next act is to ask the model."""
        return self.main.wants_model if self.started is not None else self.base_detail.asking
