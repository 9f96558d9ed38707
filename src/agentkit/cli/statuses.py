"""Statuses of runs as they are shown."""

__all__ = ["LEFT_OPEN", "STATUSES"]

STATUSES = (
    "submitted",
    "ready",
    "running",
    "interrupted",
    "suspended",
    "parked",
    "done",
    "failed",
    "cancelled",
    "saved",
)
"""As in the store, with two more for runs that nobody works on and that can go on. `interrupted`:
the worker died, it never gave the run back. `ready`: it gave the run back, or none ever had it, and
what the run waited for has come.
"""

LEFT_OPEN = frozenset({"ready", "interrupted"})
"""Statuses in which a call may be in doubt."""
