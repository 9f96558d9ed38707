"""Checkpoints: numbered states of a run's producers, read from its journal."""

__all__: list[str] = []
