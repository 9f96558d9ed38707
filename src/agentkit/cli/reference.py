"""Agent references: `package.module:variable`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from agentkit.agents import Agent
from agentkit.core.contracts.errors import InvalidSpec

__all__ = ["load_agent", "load_recorded"]


def load_agent(reference: str) -> Agent:
    """Import the agent that `reference` names; the current folder comes first on the path.

    Raises:
        InvalidSpec: it is malformed, does not import, or names no agent.
    """
    module_name, colon, variable = reference.partition(":")
    if not colon or not module_name or not variable:
        message = f"agent reference {reference!r} must look like package.module:variable"
        raise InvalidSpec(message)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        value: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as exc:
        message = f"agent reference {reference!r}: cannot import {module_name!r}: {exc!r}"
        raise InvalidSpec(message) from exc
    for part in variable.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, Agent):
        found = "has nothing of that name" if value is None else f"holds {type(value).__name__!r}"
        message = f"agent reference {reference!r} {found}; it must name an agentkit.Agent"
        raise InvalidSpec(message)
    value.reference = reference
    return value


def load_recorded(reference: str, *, run_id: str) -> Agent:
    """Import the agent that a run's start entry names.

    A store is data and may come from elsewhere, so only code of the current folder is imported
    this way; anything else must be named by the person who runs the command.

    Raises:
        InvalidSpec: the run names no agent, or one that is not in the current folder.
    """
    top = reference.partition(":")[0].partition(".")[0]
    here = Path.cwd()
    if not top or not ((here / top).is_dir() or (here / f"{top}.py").is_file()):
        known = (
            f"it was started as {reference!r}, which is not in the current folder"
            if reference
            else "it was started from Python, so it does not say where its agent is"
        )
        message = f"run {run_id!r}: {known}; say which agent carries it on: --agent module:variable"
        raise InvalidSpec(message)
    return load_agent(reference)
