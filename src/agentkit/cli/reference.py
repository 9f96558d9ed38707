"""Agent references: `package.module:variable`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from agentkit.agents import Agent
from agentkit.core.contracts.errors import InvalidSpec

__all__ = ["is_here", "load_agent", "load_recorded"]


def load_agent(reference: str) -> Agent:
    """Import the agent that `reference` names; the current folder comes first on the path.

    Raises:
        InvalidSpec: it is malformed, does not import, or names no agent.
    """
    module_name, colon, variable = reference.partition(":")
    if not colon or not module_name or not variable:
        message = f"agent reference {reference!r} must look like package.module:variable"
        raise InvalidSpec(message)
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InvalidSpec(
            f"agent reference {reference!r} names a file; name the module: {dotted}:{variable}"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as exc:
        message = f"agent reference {reference!r}: cannot import {module_name!r}: {_why_not(exc)}"
        raise InvalidSpec(message) from exc
    value: object = module
    for part in variable.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, Agent):
        found = "has nothing of that name" if value is None else f"holds {type(value).__name__!r}"
        must = "it must name an agentkit.Agent"
        raise InvalidSpec(f"agent reference {reference!r} {found}; {must}{_agents_of(module)}")
    value.reference = reference
    return value


def load_recorded(reference: str, *, run_id: str) -> Agent:
    """Import the agent that a run's start entry names.

    A store is data and may come from elsewhere, so only code of the current folder is imported
    this way; anything else must be named by the person who runs the command.

    Raises:
        InvalidSpec: the run names no agent, or one that is not in the current folder.
    """
    if not is_here(reference):
        known = (
            f"it was started as {reference!r}, which is not in the current folder"
            if reference
            else "it was started from Python, so it does not say where its agent is"
        )
        message = f"run {run_id!r}: {known}; say which agent carries it on: --agent module:variable"
        raise InvalidSpec(message)
    return load_agent(reference)


def is_here(reference: str) -> bool:
    """Whether the module that `reference` names is one of the current folder."""
    top = reference.partition(":")[0].partition(".")[0]
    here = Path.cwd()
    return bool(top) and ((here / top).is_dir() or (here / f"{top}.py").is_file())


def _why_not(error: BaseException) -> str:
    """What kept a module from being imported, and where it was looked for."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error}. It is looked for in the current folder and on PYTHONPATH"
    return repr(error)


def _agents_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Agent)]
    return f"; {module.__name__} has {', '.join(names)}" if names else ""
