"""Functions that a model may call.

Names are loaded when they are first asked for; neither pydantic nor docstring-parser is loaded
before a tool's definition is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.core.contracts.transactions import Transaction
    from agentkit.tools.commands import CommandResult, CommandTimedOut, run_command
    from agentkit.tools.context import ToolContext
    from agentkit.tools.decorator import FunctionTool, Tool, tool
    from agentkit.tools.human import ask_human
    from agentkit.tools.reconcile import CannotHappen, Done, Reconciled, Unknown
    from agentkit.tools.schema import ArgumentsInvalid

__all__ = [
    "ArgumentsInvalid",
    "CannotHappen",
    "CommandResult",
    "CommandTimedOut",
    "Done",
    "FunctionTool",
    "Reconciled",
    "Tool",
    "ToolContext",
    "Transaction",
    "Unknown",
    "ask_human",
    "run_command",
    "tool",
]

_HOMES = {
    "ArgumentsInvalid": "agentkit.tools.schema",
    "CannotHappen": "agentkit.tools.reconcile",
    "CommandResult": "agentkit.tools.commands",
    "CommandTimedOut": "agentkit.tools.commands",
    "Done": "agentkit.tools.reconcile",
    "FunctionTool": "agentkit.tools.decorator",
    "Reconciled": "agentkit.tools.reconcile",
    "Tool": "agentkit.tools.decorator",
    "ToolContext": "agentkit.tools.context",
    "Transaction": "agentkit.core.contracts.transactions",
    "Unknown": "agentkit.tools.reconcile",
    "ask_human": "agentkit.tools.human",
    "run_command": "agentkit.tools.commands",
    "tool": "agentkit.tools.decorator",
}


if not TYPE_CHECKING:  # a type checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
