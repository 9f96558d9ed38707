"""Durable state: journals, leases, checkpoints and the stores that hold them."""

__all__: list[str] = []
