"""Agents: definitions that any number of runs go through, and what a run gives back."""

from agentkit.agents.agent import Agent
from agentkit.agents.deciding import record_decisions
from agentkit.agents.draining import drain, draining
from agentkit.agents.inbox import open_questions
from agentkit.agents.noting import add_message, send_event
from agentkit.agents.result import AgentEvent, AgentResult, Suspended
from agentkit.agents.settling import settle_call, unpark
from agentkit.agents.stopping import cancel, pause, unpause
from agentkit.agents.stream import RunStream
from agentkit.agents.submitting import Submitted, submit

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentResult",
    "RunStream",
    "Submitted",
    "Suspended",
    "add_message",
    "cancel",
    "drain",
    "draining",
    "open_questions",
    "pause",
    "record_decisions",
    "send_event",
    "settle_call",
    "submit",
    "unpark",
    "unpause",
]
