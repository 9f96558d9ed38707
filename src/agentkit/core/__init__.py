"""What every layer stands on: contracts, the runtime's values, and doubles that need contracts alone."""

__all__: list[str] = []
