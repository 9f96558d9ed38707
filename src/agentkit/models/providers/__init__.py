"""Adapters to model providers. Start at `agentkit.models.providers.frontiers`; no SDK loads here."""

__all__: list[str] = []
