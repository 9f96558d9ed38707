"""Values and promises. Nothing here does I/O, reads a clock or knows another layer."""

__all__: list[str] = []
