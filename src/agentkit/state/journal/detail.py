"""What a run's head shows beside its columns, so that lists and probes read no journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import RunStatus
from agentkit.core.contracts.types import Question, StopReason, Wait
from agentkit.state.journal.lanes import LaneState

__all__ = ["END_STATUS", "Detail", "Told", "detail_of", "end_in", "with_calls"]

END_STATUS: dict[type, RunStatus] = {
    e.Finished: "done",
    e.Failed: "failed",
    e.Cancelled: "cancelled",
}


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The opaque part of a `Summary`: what lists and probes show without reading the journal.

    `asking`: the next act is to ask the model, so an answer may be lost with the worker.
    `cancelling`: a cancel was asked for and is not carried out yet. `pending`: names of the tools
    that calls without a result are for; `completed`: how many calls have theirs. `after`: the run
    whose conversation this one carries on. `in_doubt`: see `Summary.in_doubt`; of ended runs.
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
    cancelling: bool = False
    waits: tuple[Wait, ...] = ()
    pending: tuple[str, ...] = ()
    completed: int = 0
    after: str = ""
    in_doubt: tuple[str, ...] = ()


class _Calls(msgspec.Struct, frozen=True, omit_defaults=True):
    pending: list[str] = []
    completed: int = 0


_encode = msgspec.json.Encoder().encode


def with_calls(detail: bytes, lanes: Iterable[LaneState]) -> bytes:
    """An encoded `Detail` that also tells of the calls. They change with every append, and the rest
    does not, so that it need not be encoded again.
    """
    pending: list[str] = []
    completed = 0
    for lane in lanes:
        completed += lane.completed
        if lane.turn is not None:
            pending += [call.record.name for call in lane.turn.calls if not call.settled]
    if not pending and not completed:
        return detail
    calls = _encode(_Calls(pending, completed))
    return calls if detail == b"{}" else b"%b,%b" % (detail[:-1], calls[1:])


def end_in(status: RunStatus, detail: Detail) -> e.Finished | e.Failed | e.Cancelled | None:
    """The last entry of an ended run, as its summary keeps it."""
    if status == "done":
        return e.Finished(detail.output, detail.stop_reason or "completed", detail.partial)
    if status == "failed":
        return e.Failed(detail.message)
    return e.Cancelled(reason=detail.message) if status == "cancelled" else None


class Told(Protocol):
    """What is needed of a run's state."""

    started: e.RunStarted | None
    end: e.Finished | e.Failed | e.Cancelled | None
    cancel: e.CancelAsked | None
    forked: e.Forked | None
    base_detail: Detail

    @property
    def parked(self) -> e.Parked | None:
        """Why the run is parked."""
        ...

    @property
    def task(self) -> str:
        """What the run is to do."""
        ...

    @property
    def after(self) -> str:
        """The run whose conversation this one carries on."""
        ...

    @property
    def asking(self) -> bool:
        """Whether the next act is to ask the model."""
        ...

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """Tools with a call that may have taken effect, and nobody knows."""
        ...

    @property
    def questions(self) -> tuple[Question, ...]:
        """Open questions that nobody has decided."""
        ...

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What the run waits for beside persons."""
        ...


def detail_of(state: Told, status: RunStatus) -> Detail:
    """The opaque part of the summary of a run in this status."""
    detail, base = _detail(state, status), state.base_detail
    if state.end is not None and state.in_doubt:
        detail = msgspec.structs.replace(detail, in_doubt=state.in_doubt)
    if state.after:
        return msgspec.structs.replace(detail, after=state.after)
    parent, version = base.forked_from, base.forked_version
    if state.forked is not None:
        parent, version = state.forked.parent, state.forked.version
    if not parent:
        return detail
    return msgspec.structs.replace(detail, forked_from=parent, forked_version=version)


def _detail(state: Told, status: RunStatus) -> Detail:
    task = state.task[:200] or state.base_detail.task
    match state.end:
        case e.Finished() as end:
            return Detail(task, (), "", "", end.output, end.stop_reason, end.partial)
        case e.Failed(message=message):
            return Detail(task, message=message, stop_reason="failed")
        case e.Cancelled(reason=reason):
            return Detail(task, message=reason, stop_reason="cancelled")
    if status == "running":
        return Detail(task, asking=state.asking, cancelling=state.cancel is not None)
    if state.parked is not None:
        asked = state.questions or state.base_detail.questions
        return Detail(task, asked, state.parked.reason, state.parked.message)
    if status != "suspended":
        return Detail(task)
    return Detail(task, state.questions, waits=state.waits)
