"""The agent of all schedules."""

from __future__ import annotations

from functools import cache
from typing import Final

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.testing.simulation._tools import plain_tools
from agentkit.testing.simulation._waiting_tools import waiting_tools

__all__ = ["TASK", "the_agent"]

TASK: Final = "Do what the script says."


@cache
def the_agent() -> Agent:
    """One definition for all schedules: it holds no state of any run."""
    tools = [*plain_tools(), *waiting_tools()]
    return Agent("worker", prompt="Work.", cognition=ReActCognition(tools, max_iterations=12))
