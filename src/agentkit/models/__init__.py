"""Language models behind one port: the adapters are in `agentkit.models.providers`."""

__all__: list[str] = []
