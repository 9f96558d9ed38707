"""Connections to Postgres: opened when needed, opened again when they broke, bounded in time."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from agentkit.core.contracts.errors import StoreMisused, StoreUnreachable
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._postgres_errors import (
    NoAnswer,
    driver,
    driver_errors,
    is_lost,
    is_passing,
    is_starting,
    is_undone,
)
from agentkit.state.checkpoints.adapters._postgres_place import CONNECT_SECONDS, Place

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool

_T = TypeVar("_T")
Db: TypeAlias = "psycopg.Connection[Any]"

OPERATION_SECONDS = 10.0
"""How long nothing may move within a round trip before its connection is given up."""

REPEAT_SECONDS = 3.0
"""How long an operation is sent again of which the server says that it did nothing: it was rolled
back for another one's sake, or came to a server that takes no writes.
"""

_UNREAD_PARTS = 10
_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5)


class Source(Protocol):
    """Where connections come from.

    Attributes:
        keeps: whether whoever has one may keep it between operations.
        prepare: looks at a connection before it is used.
    """

    keeps: bool
    prepare: Callable[[Db], None]

    def take(self) -> Db:
        """A connection that seems to be alive, in autocommit, with the schema as it should be."""
        ...

    def give(self, db: Db) -> None:
        """Take it back; a broken one is closed."""
        ...

    def raw(self) -> AbstractContextManager[Db]:
        """A connection for one use, whatever the schema is."""
        ...


class Session:
    """What a seat holds: runs operations on a connection that it takes from a source.

    Args:
        source: where connections come from.
        place: for messages.
        seconds: how long the server may be silent.
    """

    def __init__(self, source: Source, place: Place, *, seconds: float) -> None:
        self._source = source
        self._place = place
        self._keeps = source.keeps
        self._seconds = seconds
        self._clock: ClockPort = SystemClock()
        self._db: Db | None = None

    def run(self, work: Callable[[Db], _T], *, again: bool, more_seconds: float = 0.0) -> _T:
        """Run one operation, as long as the server is not silent for too long.

        Args:
            work: makes its round trip.
            again: whether it may be sent a second time where its connection broke under it, since
                doing it twice is doing it once. What was not done at all is repeated anyway.
            more_seconds: how much longer than usual the server may be silent.

        Raises:
            StoreError: it failed; unless it only reads, it is unknown whether it was done.
        """
        until = self._clock.elapsed() + REPEAT_SECONDS
        pauses = iter(_PAUSES_SECONDS)
        while True:
            pause = 0.0
            db = self.open()
            try:
                return self._run(db, work, self._seconds + more_seconds)
            except StoreUnreachable as error:
                if is_undone(error):
                    pause = next(pauses, _PAUSES_SECONDS[-1])
                    if self._clock.elapsed() + pause >= until:
                        raise
                elif again and is_passing(error):
                    again = False  # the second time it is no accident
                else:
                    raise
            threading.Event().wait(pause)

    @property
    def connected(self) -> bool:
        """Whether a connection is at hand that nobody has found broken."""
        return self._db is not None or not self._keeps

    def open(self) -> Db:
        """The connection, for a transaction of several round trips."""
        with driver_errors(self._place.location):
            if self._db is not None and not is_alive(self._db):
                self.close()
            if self._db is None:
                self._db = self._source.take()
            return self._db

    def close(self) -> None:
        """Give the connection back."""
        db, self._db = self._db, None
        if db is not None:
            self._source.give(db)

    def _run(self, db: Db, work: Callable[[Db], _T], seconds: float) -> _T:
        try:
            with driver_errors(self._place.location), bounded(db, seconds):
                return work(db)
        except BaseException as error:
            if is_lost(error.__cause__) or not _is_idle(db):
                db.close()
                self.close()
            raise
        finally:
            if not self._keeps:
                self.close()


class SessionConnector:
    """How a seat comes to its session.

    Args:
        make: makes one.
    """

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make

    def connect(self) -> Session:
        """See `Connector.connect`; the session connects when it is first used."""
        return self._make()

    def check(self, connection: Session) -> None:
        """See `Connector.check`; the session looks itself."""

    def close(self, connection: Session) -> None:
        """See `Connector.close`."""
        connection.close()


class Dialled:
    """Connections of our own.

    Args:
        place: whom to connect to.
        prepare: looks at each new connection before it is used.
    """

    keeps = True

    def __init__(self, place: Place, prepare: Callable[[Db], None]) -> None:
        self._place = place
        self.prepare = prepare
        self._clock: ClockPort = SystemClock()
        self._reached = False

    def take(self) -> Db:
        """See `Source.take`. A server that was there once is waited for while it restarts."""
        until = self._clock.elapsed() + CONNECT_SECONDS
        while True:
            db = self._connect()
            try:
                self.prepare(db)
            except BaseException as error:
                db.close()
                broke = self._reached and is_lost(error) and not isinstance(error, NoAnswer)
                if not broke or self._clock.elapsed() >= until:
                    raise
                threading.Event().wait(_PAUSES_SECONDS[0])
            else:
                self._reached = True
                return db

    def give(self, db: Db) -> None:
        """See `Source.give`."""
        with contextlib.suppress(driver().Error):
            db.close()

    @contextlib.contextmanager
    def raw(self) -> Iterator[Db]:
        """See `Source.raw`."""
        with driver_errors(self._place.location):
            db = self._connect()
        try:
            yield db
        finally:
            self.give(db)

    def _connect(self) -> Db:
        psycopg = driver()
        until = self._clock.elapsed() + CONNECT_SECONDS
        pauses = iter(_PAUSES_SECONDS)
        pause = 0.0
        while True:
            try:
                return cast(
                    "Db",
                    psycopg.Connection.connect(
                        **self._place.parameters, autocommit=True, prepare_threshold=None
                    ),
                )
            except psycopg.OperationalError as exc:
                pause = next(pauses, pause)
                waits = is_starting(exc, reached=self._reached)
                if not waits or self._clock.elapsed() + pause >= until:
                    raise
            threading.Event().wait(pause)


class Pooled:
    """Connections of a pool that the user made and closes.

    Args:
        pool: the user's.
        place: for messages.
        prepare: looks at the first connection before it is used.
    """

    keeps = False

    def __init__(
        self,
        pool: psycopg_pool.ConnectionPool[Any],
        place: Place,
        prepare: Callable[[Db], None],
    ) -> None:
        self._pool = pool
        self._place = place
        self.prepare = prepare
        self._process = os.getpid()
        self._prepared = False
        self._modes: dict[int, bool] = {}

    def take(self) -> Db:
        """See `Source.take`."""
        db = self._borrow()
        try:
            if not self._prepared:
                self.prepare(db)
                self._prepared = True
        except BaseException:
            db.close()
            self.give(db)
            raise
        return db

    def give(self, db: Db) -> None:
        """See `Source.give`."""
        mode = self._modes.pop(id(db), False)
        with contextlib.suppress(driver().Error):
            if not db.closed:
                db.autocommit = mode
        self._pool.putconn(db)

    @contextlib.contextmanager
    def raw(self) -> Iterator[Db]:
        """See `Source.raw`."""
        with driver_errors(self._place.location):
            db = self._borrow()
        try:
            yield db
        finally:
            self.give(db)

    def _borrow(self) -> Db:
        if os.getpid() != self._process:
            raise StoreMisused(
                "the store's connection pool belongs to the process that this one was forked from. "
                "Make pool and store anew after the fork, or give the store an address instead."
            )
        db: Db = self._pool.getconn(timeout=CONNECT_SECONDS)
        for _ in range(self._pool.max_size):
            if is_alive(db):
                break
            db.close()
            self._pool.putconn(db)
            db = self._pool.getconn(timeout=CONNECT_SECONDS)
        self._modes[id(db)] = db.autocommit
        db.autocommit = True
        return db


def execute(
    db: Db,
    sql: str,
    values: Sequence[object] | Mapping[str, object] = (),
    *,
    binary: bool = True,
) -> list[tuple[Any, ...]]:
    """Run a statement of ours and return its rows, whatever habits the connection has."""
    psycopg = driver()
    with psycopg.Cursor(db, row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(sql, values or None, prepare=False, binary=binary)
        found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
    return found


def is_alive(db: Db) -> bool:
    """Whether the connection is open, as far as can be seen without asking the server."""
    psycopg = driver()
    if db.closed:
        return False
    poll = select.poll()
    poll.register(db.pgconn.socket, select.POLLIN)
    try:
        for _ in range(_UNREAD_PARTS):
            if not poll.poll(0):
                return bool(db.pgconn.status == psycopg.pq.ConnStatus.OK)
            db.pgconn.consume_input()  # notices; or last words, behind which the end is found
    except psycopg.Error:
        return False
    return False


def _is_idle(db: Db) -> bool:
    """Whether the connection is between two operations: nothing is open, and nothing unread."""
    return bool(db.info.transaction_status == driver().pq.TransactionStatus.IDLE)


@contextlib.contextmanager
def bounded(db: Db, seconds: float) -> Iterator[None]:
    """Within it the driver waits for the server until nothing has moved for `seconds`, then raises.

    A connection through which nothing comes any more is not told from one whose server takes its
    time; both are given up. One that is slow with many bytes is not.

    Raises:
        NoAnswer: the time is over; the connection is not to be used any more.
    """
    clock = SystemClock()
    wait = db.wait
    psycopg = driver()

    def waiting(turns: Generator[Any, Any, _T], *options: float) -> _T:
        try:
            return wait(_until(turns, clock, seconds), *options)
        except NoAnswer:
            if db.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
                db.close()  # or the driver would ask for the end of what was sent together
                with contextlib.suppress(psycopg.Error):
                    turns.close()
            raise

    db.wait = waiting  # type: ignore[assignment] # every operation of the driver waits by it
    try:
        yield
    finally:
        del db.wait


def _until(
    turns: Generator[Any, Any, _T], clock: ClockPort, seconds: float
) -> Generator[Any, Any, _T]:
    """The driver's own turns of waiting, as long as there is time."""
    until = clock.elapsed() + seconds
    try:
        wanted = next(turns)
        while True:
            ready = yield wanted
            if ready:
                until = clock.elapsed() + seconds
            elif clock.elapsed() >= until:
                raise NoAnswer(f"within {seconds:g} seconds")
            wanted = turns.send(ready)
    except StopIteration as end:
        value: _T = end.value
        return value
