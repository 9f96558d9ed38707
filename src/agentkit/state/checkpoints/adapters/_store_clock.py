"""The clock by which a store judges leases: elapsed time, and wall time for epochs."""

from __future__ import annotations

import time
from pathlib import Path

from agentkit.core.contracts.ports import ClockPort

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class StoreClock:
    """Milliseconds that never step back within one boot, the boot's id, and wall time.

    Where the system cannot name its boot, elapsed time could not be compared between processes
    before and after a restart; wall time stands in for it there.
    """

    def __init__(self, clock: ClockPort | None = None) -> None:
        self._clock = clock
        self.boot = boot_id()

    def elapsed_ms(self) -> int:
        """Elapsed time; comparable between processes of the same boot."""
        if self._clock is not None:
            return round(self._clock.elapsed() * 1000)
        if self.boot and _BOOT_CLOCK is not None:
            # A lease is judged in worker threads and across processes, where no port reaches.
            return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000
        return self.wall_ms()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step back."""
        if self._clock is not None:
            return round(self._clock.now() * 1000)
        return time.time_ns() // 1_000_000  # noqa: TID251 (the store's own clock makes epochs)


def boot_id() -> str:
    """What distinguishes this boot of the machine from all others; empty where unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
