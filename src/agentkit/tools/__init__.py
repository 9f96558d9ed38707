"""Functions that a model may call.

Names are loaded when they are first asked for; neither pydantic nor docstring-parser is loaded
before a tool's definition is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.tools.context import ToolContext
    from agentkit.tools.decorator import FunctionTool, Tool, tool
    from agentkit.tools.schema import ArgumentsInvalid

__all__ = ["ArgumentsInvalid", "FunctionTool", "Tool", "ToolContext", "tool"]

_HOMES = {
    "ArgumentsInvalid": "agentkit.tools.schema",
    "FunctionTool": "agentkit.tools.decorator",
    "Tool": "agentkit.tools.decorator",
    "ToolContext": "agentkit.tools.context",
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
