"""Adapters to model providers; start at `agentkit.models.providers.frontiers`."""

__all__: list[str] = []
