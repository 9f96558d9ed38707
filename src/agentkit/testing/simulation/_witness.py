"""What an onlooker at the store sees: who holds the run, since when, and how long nobody did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentkit.core.contracts.heads import Lease, Renewal, Row
from agentkit.state.journal.lease import HEARTBEAT_SECONDS, LEASE_SECONDS
from agentkit.testing.simulation._process import Process
from agentkit.testing.simulation._weather import Weather
from agentkit.testing.simulation._world import World

SLACK_SECONDS = 15.0
"""How long after a lease has lapsed some worker must have noticed."""

HEARD_SECONDS = HEARTBEAT_SECONDS + 1.0
"""How long after it was stopped a run's worker may begin something, where nothing goes wrong."""

_STOPS = (b'"cancel_asked"', b'"pause_asked"')
_GOES_ON = b'"unparked"'
_TAG = b'{"type":'
_ENDS = (b'"finished"', b'"cancelled"', b'"failed"')


class Witness:
    """Sees each lease that is granted, renewed and released.

    Args:
        world: whose time it is.
        weather: tells when faults are over.
        rows: reads the run's journal as it is in the store.

    Attributes:
        epoch: of the last lease that was granted.
        takeovers: leases granted after a holder that had not released.
        late: takeovers that took too long, as texts.
        earlier: the journal as it was at some moments.
        ended: the run has its end.
        stopped_too_late: tools that began when the run had long been stopped, as texts.
    """

    def __init__(self, world: World, weather: Weather, rows: Callable[[], tuple[Row, ...]]) -> None:
        self.epoch = 0
        self.takeovers = 0
        self.late: list[str] = []
        self.earlier: list[tuple[Row, ...]] = []
        self.ended = False
        self.stopped_too_late: list[str] = []
        self._world = world
        self._weather = weather
        self._rows = rows
        self._holders: dict[str, Process] = {}
        self._holder: Process | None = None
        self._touched_at = 0.0
        self._stopped_at: float | None = None
        self._seen = 0

    def holder_of(self, owner: str) -> Process | None:
        """The process that an owner names."""
        return self._holders.get(owner)

    def granted(self, lease: Lease, process: Process) -> None:
        """The store gave the lease to a drive of the process."""
        before = self._holder
        if before is not None and before.gone and self._weather.calm:
            free_at = max(self._touched_at + LEASE_SECONDS, self._weather.settled_from)
            late = self._world.now - free_at
            if late > SLACK_SECONDS:
                self.late.append(f"taken over {late:.1f} s after the dead holder's lease had ended")
        self.takeovers += lease.took_over
        self.epoch = lease.epoch
        self.earlier.append(self._rows())
        self._holders[lease.owner] = process
        self._holder = process
        self._touched_at = self._world.now
        process.driving = True

    def renewed(self, leases: Mapping[str, Lease], renewals: Mapping[str, Renewal]) -> None:
        """The store answered a renewal."""
        if any(not renewals[key].lost for key in leases):
            self._touched_at = self._world.now

    def released(self, lease: Lease, process: Process) -> None:
        """The holder gave the lease back."""
        process.driving = False
        if lease.epoch == self.epoch:
            self._holder = None

    def appended(self, rows: Sequence[Row]) -> None:
        """The store has taken these rows in, or had them already."""
        for row in rows:
            if row.seq <= self._seen:
                continue  # it has come a second time
            self._seen = row.seq
            kind = _kind(row)
            self.ended = self.ended or kind in _ENDS
            if kind in _STOPS:
                self._stopped_at = self._world.now if self._stopped_at is None else self._stopped_at
            elif kind == _GOES_ON:
                self._stopped_at = None

    def begun(self, tool: str) -> None:
        """A tool was entered. A worker hears within a heartbeat that its run was stopped; where
        messages are lost or it stands still, it acts no longer than its lease lasts.
        """
        if self._stopped_at is None:
            return
        late = self._world.now - self._stopped_at
        if late > (LEASE_SECONDS if self._weather.fired else HEARD_SECONDS):
            self.stopped_too_late.append(f"{tool} began {late:.1f} s after the run was stopped")


def _kind(row: Row) -> bytes:
    """The entry's kind, in its quotes: the tag stands first in its body."""
    at = row.body.index(_TAG) + len(_TAG)
    return row.body[at : row.body.index(b'"', at + 1) + 1]
