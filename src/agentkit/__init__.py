"""LLM agents whose runs outlive their process.

The dozen names a newcomer needs are importable from here. Each is loaded from its own module when
it is first asked for, so `import agentkit` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.agents import Agent, AgentResult
    from agentkit.agents.cognition import ReActCognition, SingleCallCognition
    from agentkit.core.contracts.types import Decision, Scope, ToolCall
    from agentkit.core.runtime import Invoker, RunContext, Services
    from agentkit.state.checkpoints import Checkpointer
    from agentkit.tools import ToolContext, tool

    __version__: str

__all__ = [
    "Agent",
    "AgentResult",
    "Checkpointer",
    "Decision",
    "Invoker",
    "ReActCognition",
    "RunContext",
    "Scope",
    "Services",
    "SingleCallCognition",
    "ToolCall",
    "ToolContext",
    "__version__",
    "tool",
]

_HOMES = {
    "Agent": "agentkit.agents",
    "AgentResult": "agentkit.agents",
    "Checkpointer": "agentkit.state.checkpoints",
    "Decision": "agentkit.core.contracts.types",
    "Invoker": "agentkit.core.runtime",
    "ReActCognition": "agentkit.agents.cognition",
    "RunContext": "agentkit.core.runtime",
    "Scope": "agentkit.core.contracts.types",
    "Services": "agentkit.core.runtime",
    "SingleCallCognition": "agentkit.agents.cognition",
    "ToolCall": "agentkit.core.contracts.types",
    "ToolContext": "agentkit.tools",
    "tool": "agentkit.tools",
}


if not TYPE_CHECKING:  # a type checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        value: object
        if name == "__version__":
            from importlib.metadata import version

            value = version("arc-agentkit")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
