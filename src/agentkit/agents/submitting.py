"""Asking for a run without making it: the start is on record, and a worker that has its agent
begins it.
"""

from __future__ import annotations

from typing import NamedTuple

from agentkit.agents.checking import checked_task
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, RunIdReused
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.core.runtime.context import AUTONOMIES, Autonomy
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import append_note, load

__all__ = ["Submitted", "submit"]


class Submitted(NamedTuple):
    """What became of a submission.

    Args:
        state: the run with it.
        repeated: the run was there before, with this task, so nothing was changed.
    """

    state: RunState
    repeated: bool


async def submit(
    port: JournalPort,
    run_id: str,
    task: str,
    *,
    agent: str,
    identity: str = "",
    autonomy: Autonomy = "gated",
    clock: ClockPort | None = None,
) -> Submitted:
    """Have a run made by whichever worker has its agent. That it is wanted is durable when this
    returns; of any number of submissions of one id, at once or later, one counts.

    Args:
        port: the store, looking at the run's scope.
        run_id: the run.
        task: what to do.
        agent: its name, or where its definition is (`module:variable`) as the worker was told. It
            is not imported here.
        identity: who asks for it, for the run's tools and the record.
        autonomy: which of its calls wait for a person's approval, see `RunContext`.
        clock: for the time shown beside the note.

    Raises:
        RunIdReused: the id belongs to another task, agent, identity or autonomy.
        InvalidId, InvalidSpec: the id, agent, identity, task or autonomy is none.
    """
    body = _checked(run_id, task, agent, identity, autonomy)
    repeated = False

    def note(state: RunState) -> list[e.Body]:
        nonlocal repeated
        repeated = _is_there(state)
        if repeated:
            _refuse_other(state, body)
        return [] if repeated else [body]

    time = clock or SystemClock()
    state = await load(port, run_id)
    if note(state):
        note_id = f"submission-{SystemChance().token()}"
        state = await append_note(port, run_id, note, note_id=note_id, lane="", clock=time)
    return Submitted(state, repeated)


def _checked(
    run_id: str, task: str, agent: str, identity: str, autonomy: Autonomy
) -> e.RunSubmitted:
    check_id(run_id)
    check_id(agent, what="agent name")
    if identity:
        check_id(identity, what="identity")
    if autonomy not in AUTONOMIES:
        known = ", ".join(AUTONOMIES)
        raise InvalidSpec(f"run {run_id!r}: autonomy is one of {known}; not {autonomy!r}")
    recorded = "" if autonomy == "gated" else autonomy
    return e.RunSubmitted(checked_task(task), agent, identity, recorded)


def _is_there(state: RunState) -> bool:
    """Whether somebody has asked for the run before; a user's own snapshots ask for nothing."""
    return state.started is not None or state.submitted is not None or state.end is not None


def _refuse_other(state: RunState, wanted: e.RunSubmitted) -> None:
    """Refuse a submission for which the run that is there does not stand.

    Raises:
        RunIdReused: see `submit`.
    """
    other = ""
    begun = state.base_detail.task  # of a tombstone this is all that is left
    if (state.started or state.submitted) is None:
        other = "task" if begun != wanted.task[: len(begun)] else ""
    elif state.task != wanted.task or state.after:
        other = "task"
    elif wanted.agent not in _names(state):
        other = "agent"
    elif state.identity != wanted.identity:
        other = "identity"
    elif state.autonomy != wanted.autonomy:
        other = "autonomy"
    if other:
        message = f"run {state.run_id!r} is there already, with another {other}; choose another id"
        raise RunIdReused(message, run_id=state.run_id)


def _names(state: RunState) -> set[str]:
    """What the run's agent is called."""
    names = {state.submitted.agent} if state.submitted is not None else set()
    return names if state.started is None else names | {state.started.agent, state.reference}
