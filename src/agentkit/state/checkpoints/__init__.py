"""Checkpoints: numbered states of a run's producers, read from its journal."""

from agentkit.core.contracts.ports import Checkpoint, CheckpointPort, CheckpointStatus
from agentkit.state.checkpoints.checkpointer import Checkpointer

__all__ = ["Checkpoint", "CheckpointPort", "CheckpointStatus", "Checkpointer"]
