"""Statuses of runs as they are shown."""

__all__ = ["STATUSES"]

STATUSES = (
    "submitted",
    "running",
    "interrupted",
    "suspended",
    "parked",
    "done",
    "failed",
    "cancelled",
    "saved",
)
"""A run that is `running` in the store and has no living worker is shown as `interrupted`."""
