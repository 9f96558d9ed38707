"""When a run that waits wants a worker: pure rules over the calls of its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit.state.journal.lanes import CallState, LaneState

__all__ = ["due_at", "is_due"]


def due_at(lanes: Iterable[LaneState]) -> int | None:
    """The earliest moment (ms since the epoch) at which a call that waits can move by itself: 0
    where one can now, since it was decided; `None` where only a person can move any.
    """
    return min(_moments(lanes), default=None)


def is_due(lanes: Iterable[LaneState], now_ms: int) -> bool:
    """Whether a call that waits can move by itself at `now_ms`."""
    moment = due_at(lanes)
    return moment is not None and moment <= now_ms


def _moments(lanes: Iterable[LaneState]) -> Iterator[int]:
    for call in _open_calls(lanes):
        if call.question is not None and call.decision is not None:
            yield 0
        elif call.question is not None and call.question.deadline:
            yield call.question.deadline


def _open_calls(lanes: Iterable[LaneState]) -> Iterator[CallState]:
    for lane in lanes:
        if lane.turn is not None and not lane.turn.closed:
            yield from (call for call in lane.turn.calls if not call.settled)
