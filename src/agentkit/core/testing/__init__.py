"""Doubles that need contracts alone: a scripted model and a clock that tests move."""

from agentkit.core.testing.clock import FakeClock
from agentkit.core.testing.fake_llm import FakeLLM, ScriptExhausted, Turn

__all__ = ["FakeClock", "FakeLLM", "ScriptExhausted", "Turn"]
