"""What a worker tells, in words."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from agentkit.agents import Suspended
from agentkit.core.contracts.heads import Claimable, Lease
from agentkit.dispatch.driving import Driven

__all__ = ["EventKind", "WorkerEvent", "about", "how_it_went", "why_due"]

EventKind: TypeAlias = Literal[
    "begun",
    "claimed",
    "ended",
    "suspended",
    "parked",
    "left",
    "failed",
    "unknown_agent",
    "outage",
    "back",
    "stopping",
    "stopped",
]
"""See `WorkerEvent`."""


class WorkerEvent(NamedTuple):
    """Something that a worker tells.

    Args:
        kind: `begun`, `stopping`, `stopped`: of the worker. `outage`, `back`: of its store.
            `claimed`: a run is this worker's, `text` says why it was due; then `ended`, `suspended`
            or `parked` with the `driven` run, `left` where it goes on elsewhere or later, or
            `failed` where an attempt at it came to nothing. `unknown_agent`: told once for each.
        text: one line.
        run_id, scope, agent: of the run, where it is about one; the scope's key.
        driven: see above.
    """

    kind: EventKind
    text: str
    run_id: str = ""
    scope: str = ""
    agent: str = ""
    driven: Driven | None = None


def about(one: Claimable, kind: EventKind, text: str) -> WorkerEvent:
    """What is told of a run that was taken."""
    return WorkerEvent(kind, text, one.run, one.scope, one.agent)


def why_due(lease: Lease) -> str:
    """Why the run that was taken with this lease wanted a worker."""
    summary = lease.head.summary
    if lease.took_over:
        return "its worker was gone"
    if summary is not None and summary.status == "submitted":
        return "it was submitted"
    return "its time has come" if summary is not None and summary.due_at else "it can go on"


def how_it_went(one: Claimable, driven: Driven) -> WorkerEvent:
    """How a run was given back that this worker has worked on."""
    result = driven.result
    kind: EventKind = "ended"
    if result.suspended is not None:
        kind, text = "suspended", _waits_for(result.suspended)
    else:
        kind = "parked" if result.stop_reason in {"parked", "max_iterations"} else "ended"
        word = result.parked if result.stop_reason == "parked" else result.stop_reason
        text = f"{word}: {result.message}" if result.message else word
    return WorkerEvent(kind, text, one.run, one.scope, driven.agent, driven)


def _waits_for(suspended: Suspended) -> str:
    counts = {
        "decision": len(suspended.questions),
        "event": sum(bool(wait.event) for wait in suspended.waits),
        "moment": sum(not wait.event for wait in suspended.waits),
    }
    open_ones = [f"{n} {word}{'s' * (n > 1)}" for word, n in counts.items() if n]
    return f"waits for {', '.join(open_ones)}"
