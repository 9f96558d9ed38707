"""What every layer stands on: contracts, the runtime's values, doubles that need no more."""

__all__: list[str] = []
