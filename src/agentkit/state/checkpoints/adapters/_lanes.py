"""Threads that own connections: operations run on them one after the other, in groups.

What every store with a driver that blocks stands on, whatever the driver is.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from agentkit.core.contracts.errors import RunError, StoreError, TransactionOver
from agentkit.core.runtime.clock import SystemClock

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
Work: TypeAlias = Callable[[C], Any]

MAX_GROUP = 256
"""Most operations that share one commit."""

AGAIN_SECONDS = 0.2
"""After how long an operation that could not be ended is run again."""

EXIT_SECONDS = 5.0
"""How long the end of the process waits for each thread to finish its group."""

opening = threading.Lock()
"""Held while the process forks, and by connectors whose files must not be opened meanwhile."""


class Outcome:
    """What became of one operation: a value, or an error, or it is to be run `again` in a while,
    so that what it waits for keeps no other operation waiting.
    """

    __slots__ = ("again", "error", "value")

    def __init__(
        self, value: object = None, error: Exception | None = None, *, again: bool = False
    ) -> None:
        self.value = value
        self.error = error
        self.again = again


Serve: TypeAlias = Callable[[C, Sequence[Work[C]]], list[Outcome]]
"""Runs a group of operations on a connection; an error is everybody's."""


class LanePort(Protocol[C_co]):
    """Where operations on a database run, one after the other.

    An operation takes the connection and returns a value or raises. The awaitable resolves when
    its effect is durable, never before; once submitted an operation is carried to its end even if
    whoever awaits it is cancelled.
    """

    def submit(self, work: Callable[[C_co], T]) -> Awaitable[T]:
        """Run `work` when its turn comes."""
        ...

    def close(self) -> Awaitable[None]:
        """Close the connection after what was submitted before; the next `submit` opens one."""
        ...

    def stop(self) -> object:
        """The same for callers without a loop; returns at once."""
        ...


class Connector(Protocol[C]):
    """How one seat comes to its connection; called by one thread at a time."""

    def connect(self) -> C:
        """Open a connection.

        Raises:
            StoreError: there is none to be had.
        """
        ...

    def check(self, connection: C) -> None:
        """Look, before each use, at what can be seen without asking the server.

        Raises:
            StoreError: the connection is not to be used any more.
        """
        ...

    def close(self, connection: C) -> None:
        """Close it, whatever state it is in; never raises."""
        ...


class Seat(Generic[C]):
    """One connection, used by one thread at a time, opened when it is first needed.

    Before the process forks every seat closes its connection, because a child that opened the
    file beside an inherited connection would believe that it already holds the locks. Parent and
    child open new ones when they need them.
    """

    def __init__(self, connector: Connector[C]) -> None:
        self._connector = connector
        self._db: C | None = None
        self.gate = threading.Lock()
        with _registry:
            _seats.add(self)

    def use(self, work: Callable[[C], T]) -> T:
        """Run `work` on the connection; one that failed is not used again. To refuse what was asked
        for is no failure; after any other error nobody knows where its protocol stands.
        """
        with self.gate:
            try:
                return work(self._open())
            except (RunError, TransactionOver):
                raise
            except BaseException:
                self.drop()
                raise

    def holds(self, db: C) -> bool:
        """Whether `db` is the connection. Asked by whoever holds `gate`."""
        return self._db is db

    def close(self) -> None:
        """Close the connection, once nobody uses it; the next use opens one."""
        with self.gate:
            self.drop()

    def drop(self) -> None:
        """Close the connection. The caller holds `gate`."""
        db, self._db = self._db, None
        if db is not None:
            self._connector.close(db)

    def _open(self) -> C:
        if self._db is None:
            self._db = self._connector.connect()
        else:
            self._connector.check(self._db)
        return self._db


class ThreadLane(Generic[C]):
    """A lane with a thread of its own, which starts when it is needed and ends with `close`.

    Args:
        seat: the connection.
        serve: runs a group of operations on it.
        name: of the thread.
    """

    def __init__(self, seat: Seat[C], serve: Serve[C], name: str) -> None:
        self._seat = seat
        self._serve = serve
        self._name = name
        self._fresh()
        with _registry:
            _lanes.add(self)

    def submit(self, work: Callable[[C], T]) -> Awaitable[T]:
        """Run `work` when its turn comes; see `LanePort`."""
        future = _Carried(loop=asyncio.get_running_loop())
        self._inbox.put((work, future))
        if self._thread is None:
            self._start()
        return future

    def close(self) -> Awaitable[None]:
        """Close the connection and end the thread; see `LanePort`."""
        future = _Carried(loop=asyncio.get_running_loop())
        self.stop(future)
        return future

    def stop(self, future: _Carried | None = None) -> threading.Thread | None:
        """Have the thread end after what was submitted before; returns it, if there is one."""
        thread = self._thread
        if thread is not None or future is not None:
            self._inbox.put((None, future))
        if self._thread is None and future is not None:
            self._start()
        return thread

    def forget(self) -> None:
        """In a forked child: the thread and whatever was submitted stayed with the parent."""
        self._fresh()

    def _fresh(self) -> None:
        self._inbox: queue.SimpleQueue[_Job[C]] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        inbox, clock = self._inbox, SystemClock()
        later: list[_Job[C]] = []
        due = 0.0
        while True:
            jobs: list[_Job[C]] = []
            closing: list[_Carried | None] = []
            with contextlib.suppress(queue.Empty):
                while not (jobs or closing) or (len(jobs) < MAX_GROUP and not inbox.empty()):
                    job = inbox.get(timeout=AGAIN_SECONDS if later else None)
                    if job[0] is None:
                        closing.append(job[1])
                    else:
                        jobs.append(job)
            later += self._served(jobs)
            while later and (closing or clock.elapsed() >= due):
                later = self._served(later)
                due = clock.elapsed() + AGAIN_SECONDS
                if closing and later:
                    threading.Event().wait(AGAIN_SECONDS)
            if closing and self._ends(closing):
                return

    def _served(self, jobs: list[_Job[C]]) -> list[_Job[C]]:
        """Run a group and tell who waits; returns what is to be run again."""
        if not jobs:
            return []
        outcomes = self._outcomes([work for work, _ in jobs if work is not None])
        ended = [
            (job[1], outcome)
            for job, outcome in zip(jobs, outcomes, strict=True)
            if not outcome.again
        ]
        _deliver([future for future, _ in ended], [outcome for _, outcome in ended])
        return [job for job, outcome in zip(jobs, outcomes, strict=True) if outcome.again]

    def _outcomes(self, works: Sequence[Work[C]]) -> list[Outcome]:
        try:
            return self._seat.use(lambda db: self._serve(db, works))
        except Exception as exc:  # noqa: BLE001 (a thread that died would leave others waiting)
            return [Outcome(error=_copy(exc)) for _ in works]

    def _ends(self, waiting: Sequence[_Carried | None]) -> bool:
        """Close the connection; whether the thread may end because nothing else was submitted."""
        self._seat.close()
        # `submit` looks at the thread after it has put its job in, we look into the inbox after we
        # have given up the thread: one of the two sees the other.
        self._thread = None
        if not self._inbox.empty():
            with self._starting:
                if self._thread is None:
                    self._thread = threading.current_thread()
        _deliver(waiting, [Outcome() for _ in waiting])
        return self._thread is not threading.current_thread()


class _Carried(asyncio.Future[Any]):
    """A future that does not give in to cancellation: the task waits on and is cancelled then."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 (the signature is asyncio's)
        return False


_Job: TypeAlias = "tuple[Work[C] | None, _Carried | None]"


def _deliver(futures: Sequence[_Carried | None], outcomes: Sequence[Outcome]) -> None:
    """Resolve the futures in their own loops, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Carried, Outcome]]] = {}
    for future, outcome in zip(futures, outcomes, strict=True):
        if future is not None:
            by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, settled in by_loop.items():
        # A loop that is closed refuses; nobody waits in it any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[_Carried, Outcome]]) -> None:
    for future, outcome in settled:
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)


def _copy(error: Exception) -> Exception:
    """The same error for one more waiter: an exception that is raised twice mixes its traces."""
    if not isinstance(error, StoreError):
        return error
    again = type(error)(*error.args)
    again.__cause__ = error.__cause__
    return again


_seats: weakref.WeakSet[Seat[Any]] = weakref.WeakSet()
_lanes: weakref.WeakSet[ThreadLane[Any]] = weakref.WeakSet()
_registry = threading.Lock()
_held: list[Seat[Any]] = []


def _before_fork() -> None:
    """Let every group end, close the connections, and keep new ones from being opened."""
    _registry.acquire()
    for seat in sorted(_seats, key=id):
        seat.gate.acquire()
        seat.drop()
        _held.append(seat)
    opening.acquire()


def _after_fork() -> None:
    opening.release()
    while _held:
        _held.pop().gate.release()
    _registry.release()


def _after_fork_in_child() -> None:
    for lane in _lanes:
        lane.forget()
    _after_fork()


def _at_exit() -> None:
    with _registry:
        lanes = list(_lanes)
        seats = list(_seats)
    for thread in [lane.stop() for lane in lanes]:
        if thread is not None:
            thread.join(EXIT_SECONDS)
    for seat in seats:
        if seat.gate.acquire(timeout=EXIT_SECONDS):
            seat.drop()
            seat.gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
atexit.register(_at_exit)
