"""The tool loop and the single call: two settings of the same decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentkit.agents.spec import DEFAULT_MAX_ITERATIONS
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.slots import agent_slot
from agentkit.tools import Tool

__all__ = ["Cognition", "ReActCognition", "SingleCallCognition"]


class Cognition(Protocol):
    """What an agent's loop decides by."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the model may call."""
        ...

    @property
    def max_iterations(self) -> int:
        """Model answers of one run, over its whole life, before it is parked."""
        ...


class ReActCognition:
    """Ask the model, run the tools it calls, give it the results, and again until it answers.

    A checkpoint is taken after every turn whose calls all have their results.

    Args:
        tools: made with `@tool`.
        max_iterations: model answers of one run, over its whole life, before it is parked.

    Raises:
        InvalidSpec: `tools` is no list, something in it was not made with `@tool`, or
            `max_iterations` is less than 1.
    """

    def __init__(
        self, tools: Sequence[Tool] = (), *, max_iterations: int = DEFAULT_MAX_ITERATIONS
    ) -> None:
        candidates: object = tools
        if not isinstance(candidates, Sequence):
            raise InvalidSpec(f"tools is a list, [{_name(tools)}] for one tool; not {tools!r}")
        for candidate in candidates:
            if not isinstance(candidate, Tool):
                message = f"{candidate!r} is not a tool; decorate it with @tool(side_effecting=…)"
                raise InvalidSpec(message)
        if max_iterations < 1:
            raise InvalidSpec(f"max_iterations must be at least 1, not {max_iterations}")
        self.tools = tuple(tools)
        self.max_iterations = max_iterations

    @staticmethod
    def checkpoint_slot(run_id: str, agent_name: str) -> str:
        """Where the loop of agent `agent_name` keeps its checkpoints: `{run_id}:agent:{name}`."""
        return agent_slot(run_id, agent_name)


class SingleCallCognition:
    """Ask the model once; its answer is the result."""

    tools: tuple[Tool, ...] = ()
    max_iterations = 1


def _name(thing: object) -> str:
    return thing.name if isinstance(thing, Tool) else getattr(thing, "__name__", "…")
