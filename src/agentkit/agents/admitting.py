"""Whether there is anything to drive in a run, and whether the caller may: pure rules."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts.errors import RunIdReused, RunNotFound, RunSuspended
from agentkit.core.contracts.heads import Summary
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.waits import is_due

__all__ = ["Wanted", "admit", "refuse_unread"]


class Wanted(NamedTuple):
    """What a run is claimed for.

    Args:
        task: of a run to start or continue; `None` to resume whatever is there.
        after: the run whose conversation a new one carries on; empty for none.
        unparks: a run to resume goes on where it is parked, unless somebody has paused it;
            otherwise it is let be.
    """

    task: str | None = None
    after: str = ""
    unparks: bool = True


def admit(state: RunState, spec: AgentSpec, wanted: Wanted, *, now_ms: int) -> bool:
    """Whether there is something to drive at `now_ms` (ms since the epoch).

    Raises:
        RunNotFound, RunIdReused, RunSuspended: the call does not fit the run, see `claim`.
    """
    run_id, task = state.run_id, wanted.task
    started, submitted = state.started, state.submitted
    if started is None and submitted is None:
        if state.end is not None:  # a tombstone
            refuse_unread(run_id, state.base, spec, wanted)
            return False
        if task is None:
            message = f"run {run_id!r} does not exist in this store and scope; start it with run()"
            raise RunNotFound(message, run_id=run_id)
        return True
    if started is not None and started.agent != spec.name:
        raise _other_agent(run_id, started.agent, spec)
    if started is None and submitted is not None and not spec.goes_by(submitted.agent):
        raise _other_agent(run_id, submitted.agent, spec)
    if task is not None and state.task != task:
        raise _other_task(run_id, state.task)
    if task is not None and state.after != wanted.after:
        raise _other_past(run_id, state.after)
    if state.end is not None:
        return False
    waits = state.status == "suspended" and not is_due(state.lanes.values(), now_ms)
    parked = state.parked is not None and (task is not None or not wanted.unparks)
    stays = state.paused or parked
    if task is None or state.cancel is not None:
        return state.cancel is not None or not (waits or stays)
    if waits:
        ids = ", ".join(question.id for question in state.questions)
        message = (
            f"run {run_id!r} waits for decisions on {ids}; answer with "
            "agent.resume(run_id, {id: decision}, ctx) or `agentkit resume`"
        )
        if not ids:
            what = ", ".join(wait.event or wait.name for wait in state.waits)
            message = f"run {run_id!r} waits for {what}; resume it once that has come"
        raise RunSuspended(message, run_id=run_id, questions=state.questions)
    return not stays


def refuse_unread(run_id: str, summary: Summary | None, spec: AgentSpec, wanted: Wanted) -> None:
    """Refuse what the head alone shows not to fit; where there are entries, `admit` looks at the
    whole run later.
    """
    if summary is None or not summary.agent:
        return
    if not spec.goes_by(summary.agent):
        raise _other_agent(run_id, summary.agent, spec)
    detail = msgspec.json.decode(summary.detail, type=Detail)
    begun, task = detail.task, wanted.task
    if task is not None and begun and begun != task[: len(begun)]:
        raise _other_task(run_id, begun)
    if task is not None and begun and wanted.after != detail.after:
        raise _other_past(run_id, detail.after)


def _other_agent(run_id: str, agent: str, spec: AgentSpec) -> RunIdReused:
    message = (
        f"run {run_id!r} belongs to agent {agent!r}, not {spec.name!r}; resume it with that agent, "
        "or use another run id"
    )
    return RunIdReused(message, run_id=run_id)


def _other_task(run_id: str, task: str) -> RunIdReused:
    message = (
        f"run {run_id!r} was started with another task ({task[:80]!r}); a run keeps its task: use "
        "another run id, resume it, or say more to it with add_message"
    )
    return RunIdReused(message, run_id=run_id)


def _other_past(run_id: str, after: str) -> RunIdReused:
    past = f"after run {after!r}" if after else "after no other run"
    message = f"run {run_id!r} was started {past}; a run keeps its past: use another run id"
    return RunIdReused(message, run_id=run_id)
