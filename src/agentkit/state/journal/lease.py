"""How a drive keeps its lease, and how it knows that it may still act.

The store decides who holds a run; this file decides when a worker must stop believing that it is
the one. It asks only its own elapsed-time clock: a renewal that the store confirmed is worth the
lease's length from the moment it was *sent* (the store may have counted from any moment after
that), less a margin for an act to get under way. A worker that hears nothing, or whose whole
machine was suspended, so stops by itself before anybody else can begin.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from agentkit.core.contracts.errors import AgentkitError, LeaseLost, StoreMisused
from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.core.contracts.heartbeat import HeartbeatPort, Renewable
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.runtime.clock import SystemClock

__all__ = [
    "HEARTBEAT_SECONDS",
    "IDLE_SECONDS",
    "LEASE_SECONDS",
    "LINGER_ROUNDS",
    "MARGIN_SECONDS",
    "Tenure",
    "ThreadHeartbeat",
    "heartbeat_for",
]

LEASE_SECONDS = 15.0
"""How long a lease lasts without renewal: how long a run waits after its machine has vanished."""

HEARTBEAT_SECONDS = 5.0
"""From one renewal to the next. Two may fail in a row before the worker stops acting."""

MARGIN_SECONDS = 3.0
"""No act starts in the last seconds of a lease (at most a fifth of it): from the check to the
moment in which the act leaves the process may lie a busy event loop and a slow commit."""

IDLE_SECONDS = 600.0
"""How long a run is kept by a drive that stands at a yield while its consumer does not ask."""

LINGER_ROUNDS = 6
"""How many rounds with nothing to renew the heartbeat's thread waits before it ends."""

_log = logging.getLogger(__name__)


class Tenure:
    """A drive's hold on a lease; a `Renewable`.

    The drive calls `busy` or `idle`, `note_seen` and `check`; its heartbeat calls `wants_renewal`
    and `take`, from another thread. `on_news` is called there too, when the lease was lost or the
    head moved beyond what the drive has seen: once for each such change. It must return at once
    (`loop.call_soon_threadsafe(…)`); what it raises is logged.

    Args:
        lease: as it was acquired.
        sent_at: when its acquisition was sent, by `clock.elapsed`.
        clock: elapsed time; the wall clock is never asked.
        on_news: see above.

    Attributes:
        lease: as it was acquired.
        head_seq: the newest head that the heartbeat or the drive has seen.
        lost: another epoch owns the run. It stays lost.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        sent_at: float,
        clock: ClockPort,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.lease = lease
        self.head_seq = lease.head.seq
        self.lost = False
        self._clock = clock
        self._on_news = on_news
        self._worth_seconds = lease.ttl_seconds - min(MARGIN_SECONDS, lease.ttl_seconds / 5)
        self._act_until = sent_at + self._worth_seconds
        self._busy_until = clock.elapsed() + IDLE_SECONDS

    def busy(self, seconds: float) -> None:
        """An act that gives itself `seconds` is under way: keep renewing at least until then.

        Of several acts the one that may last longest counts, in whatever order they are told.
        """
        self._busy_until = max(self._busy_until, self._clock.elapsed() + seconds)

    def idle(self) -> None:
        """The drive stands at a yield: its consumer has `IDLE_SECONDS` to ask for more."""
        self.busy(IDLE_SECONDS)

    def note_seen(self, seq: int) -> None:
        """The drive knows the journal up to `seq`; heads up to there are no news."""
        self.head_seq = max(self.head_seq, seq)

    def may_act(self) -> bool:
        """Whether nobody else can have the lease now, nor for the length of the margin.

        A lease that lapsed and was then renewed after all may be acted on again: the store only
        renews it for the epoch that still owns the run.
        """
        return not self.lost and self._clock.elapsed() < self._act_until

    def check(self) -> None:
        """Return if the drive may act; called right before every act.

        Raises:
            LeaseLost: another worker owns the run, or the lease may have lapsed.
        """
        if self.may_act():
            return
        run, epoch = self.lease.run, self.lease.epoch
        if self.lost:
            text = (
                "another worker has taken it over, or the run or its store was deleted; this one "
                "stops"
            )
        else:
            text = "it was not renewed in time and may have lapsed; resume the run to go on"
        raise LeaseLost(f"lost the lease of run {run!r} (epoch {epoch}): {text}", run_id=run)

    def wants_renewal(self) -> bool:
        """Whether the lease is still ours and an act, or the idle time, is within its deadline."""
        return not self.lost and self._clock.elapsed() < self._busy_until

    def take(self, renewal: Renewal, *, sent_at: float) -> None:
        """Take in the store's answer to a renewal that was sent at `sent_at` (elapsed time)."""
        news = renewal.seq > self.head_seq
        self.head_seq = max(self.head_seq, renewal.seq)
        if renewal.lost:
            news = news or not self.lost
            self.lost = True
        else:
            self._act_until = max(self._act_until, sent_at + self._worth_seconds)
        if news and self._on_news is not None:
            self._tell(self._on_news)

    def lose(self) -> None:
        """See `Renewable.lose`."""
        self.lost = True

    def _tell(self, on_news: Callable[[], None]) -> None:
        try:
            on_news()
        except Exception as error:  # noqa: BLE001 - one drive's closed loop must not end the others'
            _log.warning("run %r could not be told of news: %r", self.lease.run, error)


class _Watched(NamedTuple):
    port: JournalPort
    held: Renewable


class ThreadHeartbeat:
    """The heartbeat of one process on one store: a daemon thread that renews all runs at once.

    The thread starts with the first run and ends `LINGER_ROUNDS` rounds after the last. A store
    that fails is asked again every round, with one warning per outage; the drives stop by
    themselves meanwhile. A renewal that hangs holds up this store alone. A forked child starts
    without a thread, and whatever its parent watched is lost to it: the parent holds it.

    Args:
        clock: elapsed time for renewals and tenures.
        interval_seconds: from the start of one round to the start of the next.
        wait: blocks the thread for so many seconds.
        start: runs its argument in a thread of its own; a test that calls `tick` itself gives one
            that does nothing.
    """

    def __init__(
        self,
        *,
        clock: ClockPort | None = None,
        interval_seconds: float = HEARTBEAT_SECONDS,
        wait: Callable[[float], object] | None = None,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._clock: ClockPort = clock or SystemClock()
        self._interval_seconds = interval_seconds
        self._wait = wait
        self._start = start or _start_thread
        self._numbers = itertools.count(1)
        self._location: str | None = None
        # Reentrant: a stream that is collected while the lock is held unwatches in this thread.
        self._lock = threading.RLock()
        self._watched: dict[str, _Watched] = {}
        self._alive = False
        self._failing = False
        _instances.add(self)

    @property
    def clock(self) -> ClockPort:
        """See `HeartbeatPort.clock`."""
        return self._clock

    def watch(self, port: JournalPort, held: Renewable) -> None:
        """See `HeartbeatPort.watch`.

        Raises:
            StoreMisused: this heartbeat already serves another store; each has its own.
        """
        lease = held.lease
        with self._lock:
            if self._location not in {None, port.location}:
                raise StoreMisused(
                    f"a heartbeat on {self._location} was given a run of {port.location}; "
                    "use one heartbeat per store, so that one that hangs stops no other"
                )
            self._location = port.location
            if not self._alive:
                self._start(self._live)
                self._alive = True
            key = f"{lease.run}#{lease.epoch}#{next(self._numbers)}"
            self._watched[key] = _Watched(port, held)

    def unwatch(self, held: Renewable) -> None:
        """See `HeartbeatPort.unwatch`."""
        with self._lock:
            for key, watched in self._watched.copy().items():
                if watched.held is held:
                    self._watched.pop(key, None)

    def tick(self) -> None:
        """One round: renew what wants it, in one call, and pass on what the store answers."""
        with self._lock:
            due = {key: one for key, one in self._watched.items() if one.held.wants_renewal()}
        if not due:
            return
        # All ports are on the same data; the newest is the least likely to have been closed.
        port = next(reversed(due.values())).port
        sent_at = self._clock.elapsed()
        try:
            renewals = port.renew({key: one.held.lease for key, one in due.items()})
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a store raises
            self._note_outage(error, runs=len(due))
            return
        self._note_answer()
        for key, renewal in renewals.items():
            with self._lock:
                watched = self._watched.get(key)
            if watched is not None:
                watched.held.take(renewal, sent_at=sent_at)

    def _live(self) -> None:
        # An event of this thread's own: a fork may happen while the thread holds its inner lock.
        wait = self._wait or threading.Event().wait
        idle_rounds, rest_seconds = 0, self._interval_seconds
        while True:
            wait(rest_seconds)
            began = self._clock.elapsed()
            self.tick()
            rest_seconds = max(0.0, began + self._interval_seconds - self._clock.elapsed())
            with self._lock:
                idle_rounds = 0 if self._watched else idle_rounds + 1
                if idle_rounds >= LINGER_ROUNDS:
                    self._alive = False
                    return

    def _note_outage(self, error: Exception, *, runs: int) -> None:
        if self._failing:
            return
        self._failing = True
        # Only our own messages are known to hold no password.
        text = str(error) if isinstance(error, AgentkitError) else type(error).__name__
        _log.warning("cannot renew %d leases on %s, trying on: %s", runs, self._location, text)

    def _note_answer(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("leases on %s are renewed again", self._location)

    def after_fork(self) -> None:
        """Start over in a forked child; called by the fork itself."""
        for one in self._watched.values():
            one.held.lose()
        self._lock = threading.RLock()
        self._location = None  # a store in memory is another one from here on
        self._watched = {}
        self._alive = False
        self._failing = False


def heartbeat_for(port: JournalPort) -> HeartbeatPort:
    """The process-wide heartbeat of the store that `port` is on."""
    with _registry_lock:
        heartbeat = _by_location.get(port.location)
        if heartbeat is None:
            heartbeat = _by_location[port.location] = ThreadHeartbeat()
        return heartbeat


def _start_thread(live: Callable[[], None]) -> None:
    threading.Thread(target=live, name="agentkit-heartbeat", daemon=True).start()


_registry_lock = threading.RLock()
# Weak: a heartbeat's own thread keeps it while there is something to renew.
_by_location: weakref.WeakValueDictionary[str, ThreadHeartbeat] = weakref.WeakValueDictionary()
_instances: weakref.WeakSet[ThreadHeartbeat] = weakref.WeakSet()


def _after_fork() -> None:
    # Another thread of the parent may have held the locks; nobody in the child would release them.
    global _registry_lock  # noqa: PLW0603 - a lock cannot be emptied, only replaced
    _registry_lock = threading.RLock()
    for heartbeat in list(_instances):
        heartbeat.after_fork()


os.register_at_fork(after_in_child=_after_fork)
