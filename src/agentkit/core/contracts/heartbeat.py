"""Who keeps leases alive while their drives work."""

from __future__ import annotations

from typing import Protocol

from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.core.contracts.ports import ClockPort, JournalPort

__all__ = ["HeartbeatPort", "Renewable"]


class Renewable(Protocol):
    """A lease that a drive holds, as its heartbeat sees it. Every method is thread-safe."""

    @property
    def lease(self) -> Lease:
        """As it was acquired."""
        ...

    def wants_renewal(self) -> bool:
        """Whether its drive still needs it."""
        ...

    def take(self, renewal: Renewal, *, sent_at: float) -> None:
        """Hear the store's answer to a renewal that was sent at `sent_at` (elapsed time)."""
        ...

    def lose(self) -> None:
        """Hear that another process has it, as after a fork; nothing but this object is told."""
        ...


class HeartbeatPort(Protocol):
    """Renews the leases of whoever asks, behind the back of whatever blocks the event loop.

    A simulator may put a task on a virtual clock in its place.
    """

    @property
    def clock(self) -> ClockPort:
        """Whose elapsed time renewals are stamped with, and leases are judged by."""
        ...

    def watch(self, port: JournalPort, held: Renewable) -> None:
        """Renew `held` from now on, for as long as it wants that.

        Args:
            port: any port on the data that the lease is of; its scope does not matter.
            held: just acquired.
        """
        ...

    def unwatch(self, held: Renewable) -> None:
        """Stop renewing; call it before the lease is released, or the release looks like a loss.

        After it `held.take` is not called, unless a call was already under way. Unwatching what is
        not watched does nothing.
        """
        ...
