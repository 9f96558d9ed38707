"""What is looked at before a run goes on: its task, and whether its agent has changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.values import to_text
from agentkit.state.journal.fold import RunState

__all__ = [
    "CarryOn",
    "DefinitionChangedWarning",
    "Start",
    "checked_start",
    "checked_task",
    "warn_if_changed",
]


class DefinitionChangedWarning(UserWarning):
    """Prompt, tools or model differ from what the run was started with; the recorded ones are
    sent.
    """


class Start(NamedTuple):
    """What a run is started with.

    Args:
        task: what to do.
        after: the run whose conversation it carries on; empty for none.
    """

    task: str
    after: str = ""


class CarryOn(NamedTuple):
    """A run is to go on as far as it wants a worker: one that is parked is let be.

    Args:
        claimed: called with the lease once that is taken and on record.
    """

    claimed: Callable[[Lease], None]


def checked_start(task: str, after: str | None, *, run_id: str) -> Start:
    """What run `run_id` is started with, as it can be kept.

    Raises:
        InvalidSpec: the task is empty, or no text; or the run is to come after itself.
        InvalidId: `after` is no run's id.
    """
    checked_task(task)
    if after is None:
        return Start(task)
    if check_id(after) == run_id:
        message = (
            f"run {run_id!r} cannot carry on its own conversation: give the new run another id"
        )
        raise InvalidSpec(message)
    return Start(task, after)


def checked_task(task: str) -> str:
    """The task, as it can be kept.

    Raises:
        InvalidSpec: it is empty, or no text.
    """
    if not isinstance(task, str) or not task.strip():
        message = f"the task must be a non-empty string, not {task!r}"
        raise InvalidSpec(message)
    if task != to_text(task):
        message = f"the task {task[:80]!r} holds lone surrogates, so it is no text"
        raise InvalidSpec(message)
    return task


def warn_if_changed(state: RunState, spec: AgentSpec) -> None:
    """Say that the recorded definition is used, where the agent's is another one by now."""
    started = state.started
    if started is not None and started.fingerprint != spec.fingerprint:
        text = (
            f"run {state.run_id!r}: agent {spec.name!r} has changed since the run was started; "
            "the recorded prompt, tools and model are used for it"
        )
        warnings.warn(text, DefinitionChangedWarning, stacklevel=2)
