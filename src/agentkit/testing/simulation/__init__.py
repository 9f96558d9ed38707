"""Deterministic simulation: the real runtime, in a world that one seed describes.

`simulate(seed)` plays one schedule; `python -m agentkit.testing.simulation` plays many.
"""

from agentkit.testing.simulation.campaign import Tally, replay_command
from agentkit.testing.simulation.schedule import Outcome, simulate

__all__ = ["Outcome", "Tally", "replay_command", "simulate"]
