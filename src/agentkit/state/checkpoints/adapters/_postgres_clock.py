"""Whose time a Postgres store goes by: the server's, or in a test a clock of its own."""

from __future__ import annotations

from agentkit.core.contracts.ports import ClockPort


class ServerClock:
    """What is sent along for the server to go by: nothing, so that it takes its own time.

    Args:
        clock: a test's, which stands still until it is moved; `None` for the server's.
    """

    def __init__(self, clock: ClockPort | None = None) -> None:
        self._clock = clock

    def at_ms(self) -> int | None:
        """What leases and claims lapse by."""
        return None if self._clock is None else round(self._clock.elapsed() * 1000)

    def wall_ms(self) -> int | None:
        """What epochs are at least, and runs are due by."""
        return None if self._clock is None else round(self._clock.now() * 1000)
