"""What one check works with: a place of its own, handles on it, and the store's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pkgutil import resolve_name
from random import Random  # noqa: TID251 - seeded: a check can be repeated

from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.core.contracts.ports import CheckpointPort, JournalPort
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeClock
from agentkit.testing.conformance.harness import Harness
from agentkit.testing.conformance.materials import TTL_SECONDS

__all__ = ["Bench"]

_BRIEF_SECONDS = 1.0


class Bench:
    """One check's own place; what it opened is closed by `clear`.

    Attributes:
        port: the first handle, as the harness opened it.
        random: seeded alike for each check.
    """

    def __init__(self, harness: Harness, place: str, *, clock: FakeClock | None = None) -> None:
        self.harness = harness
        self.place = place
        self.clock = clock or FakeClock()
        self.random = Random(1)  # noqa: S311 - not for secrets
        self._opened: list[JournalPort] = []
        self._beside: list[Bench] = []
        self.port: CheckpointPort = self._kept(harness.open(place, self.clock))

    @property
    def store(self) -> JournalPort:
        """The first handle, as the full port."""
        return _journal(self.port)

    @property
    def brief_seconds(self) -> float:
        """Of leases whose end a check waits for: short where time has to be waited for."""
        return _BRIEF_SECONDS if self.harness.clock == "real" else TTL_SECONDS

    def another(self, *, real_time: bool = False) -> JournalPort:
        """A further handle on the same place; with `real_time` it judges by the machine's clock."""
        clock = SystemClock() if real_time else self.clock
        return _journal(self._kept(self.harness.open(self.place, clock)))

    def as_a_child_opens_it(self) -> JournalPort:
        """A handle from the function that child processes use."""
        opened: CheckpointPort = resolve_name(self.harness.opener)(self.place)
        return _journal(self._kept(opened))

    def expiring(self, *, seconds: float) -> JournalPort:
        """A handle whose ended runs keep their entries for `seconds`."""
        opened = self.harness.open_expiring(self.place, seconds=seconds)
        if opened is None:
            raise AssertionError("asked of harnesses that have one")
        return _journal(self._kept(opened))

    async def beside(self) -> Bench:
        """A bench at another place, with the same clock."""
        bench = Bench(self.harness, await self.harness.new_place(), clock=self.clock)
        self._beside.append(bench)
        return bench

    async def let_pass(self, seconds: float) -> None:
        """Let `seconds` pass by the store's clock."""
        await self.harness.let_pass(self.place, self.clock, seconds)

    async def outlive(self, *leases: Lease) -> None:
        """Let these leases lapse: they were acquired for `brief_seconds`."""
        await self.let_pass(max(lease.ttl_seconds for lease in leases) * 1.05)

    async def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """`renew`, which blocks, from a thread."""
        return await asyncio.to_thread(self.store.renew, leases)

    async def clear(self) -> None:
        """Close what was opened and give the place back."""
        for bench in self._beside:
            await bench.clear()
        for store in self._opened:
            await store.aclose()
        await self.harness.remove(self.place)

    def _kept(self, port: CheckpointPort) -> CheckpointPort:
        if isinstance(port, JournalPort):
            self._opened.append(port)
        return port


def _journal(port: CheckpointPort) -> JournalPort:
    if not isinstance(port, JournalPort):
        raise TypeError(f"{type(port).__name__} is no JournalPort")
    return port
