"""A run's journal: codec, fold and recovery rules (pure), the appender, leases."""

__all__: list[str] = []
