"""The clock by which a store judges leases: elapsed time, and wall time for epochs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agentkit.core.contracts.ports import ClockPort
from agentkit.core.runtime.clock import SystemClock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Expiry(NamedTuple):
    """When something lapses that outlives a boot: by elapsed time of `boot`, and by wall time."""

    boot: str
    expires_ms: int
    expires_wall_ms: int


class StoreClock:
    """Milliseconds that never step back within one boot, the boot's id, and wall time.

    Where the system does not name its boots, elapsed time from before a restart could not be told
    from elapsed time after it; there wall time judges leases instead.

    Args:
        clock: what is asked; the machine's own clocks if `None`.
    """

    def __init__(self, clock: ClockPort | None = None) -> None:
        self._clock = clock or SystemClock()
        self.boot = boot_id()
        self._elapsed = self._clock.elapsed if self.boot or clock else self._clock.now

    def elapsed_ms(self) -> int:
        """Elapsed time; comparable between the processes of one boot."""
        return round(self._elapsed() * 1000)

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step back."""
        return round(self._clock.now() * 1000)

    def expiry(self, ttl_seconds: float) -> Expiry:
        """The moment `ttl_seconds` from now."""
        ttl_ms = round(ttl_seconds * 1000)
        return Expiry(self.boot, self.elapsed_ms() + ttl_ms, self.wall_ms() + ttl_ms)

    def has_lapsed(self, expiry: Expiry) -> bool:
        """Whether that moment has come; by the wall clock alone only after a restart, since within
        one boot a wall clock that was moved forward must not make it come early.
        """
        if self.wall_ms() < expiry.expires_wall_ms:
            return False
        return expiry.boot != self.boot or self.elapsed_ms() >= expiry.expires_ms


def boot_id() -> str:
    """What distinguishes this boot of the machine from all others; empty where unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
