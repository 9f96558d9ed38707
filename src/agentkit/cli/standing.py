"""Which status a run is shown with: the store's, or that nobody works on it."""

from __future__ import annotations

from agentkit.core.contracts.heads import Head, RunSummary, Summary
from agentkit.state.journal.drives import known
from agentkit.state.journal.owner import is_dead

__all__ = ["status_in_head", "status_in_list"]


def status_in_list(run: RunSummary, *, now_ms: int) -> str:
    """A listed run's status; `now_ms` since the Unix epoch."""
    return _status(run.summary, run.owner, held=run.live, now_ms=now_ms)


def status_in_head(head: Head | None, status: str, *, now_ms: int) -> str:
    """The status of a run of which more is known than its head; `status` is the store's."""
    if head is None or head.summary is None or head.summary.status != status:
        return status
    return _status(head.summary, head.owner, held=head.held, now_ms=now_ms)


def _status(summary: Summary, owner: str, *, held: bool, now_ms: int) -> str:
    """A local worker that died leaves a lease that lapses only later, so the process is looked
    for.
    """
    works = held and not is_dead(owner, known_drives=known)
    if summary.status == "running" and not works:
        return "interrupted" if owner else "ready"
    due = summary.due_at is not None and summary.due_at <= now_ms
    return "ready" if summary.status == "suspended" and due and not works else summary.status
