"""How an agent thinks: which decisions its loop makes. None of them has a loop of its own."""

from agentkit.agents.cognition.react import Cognition, ReActCognition, SingleCallCognition

__all__ = ["Cognition", "ReActCognition", "SingleCallCognition"]
