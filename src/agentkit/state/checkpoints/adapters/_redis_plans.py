"""Operations on Redis as steps, so that many of them share their round trips.

An operation is a generator: it yields calls, is sent their replies, and returns its result. Those
of a group go forward together, and each may be run again from its start: none does anything twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from agentkit.core.contracts.errors import StoreError
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._lanes import LanePort, Outcome, Seat, Serve
from agentkit.state.checkpoints.adapters._redis_address import Address, Place
from agentkit.state.checkpoints.adapters._redis_errors import PASSING, code_of, driver, refused
from agentkit.state.checkpoints.adapters._redis_links import (
    Answer,
    Call,
    Examine,
    Reply,
    Servers,
)

T = TypeVar("T")
Steps: TypeAlias = Generator[Sequence[Call], Sequence[Reply], T]
RedisLane: TypeAlias = LanePort[Servers]
MakeLane: TypeAlias = Callable[[Seat[Servers], Serve[Servers], str], RedisLane]

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5


class RedisConnector:
    """What a seat connects with; the connections themselves are opened when they are needed.

    Args:
        address: of the store.
        timeout_seconds: how long each answer may take.
        examine: see `Link`.
    """

    def __init__(self, address: Address, *, timeout_seconds: float, examine: Examine) -> None:
        self._address = address
        self._timeout = timeout_seconds
        self._examine = examine
        self._known: list[Place] = []

    def connect(self) -> Servers:
        """See `Connector.connect`."""
        return Servers(
            self._address,
            timeout_seconds=self._timeout,
            examine=self._examine,
            known=self._known,
        )

    def check(self, connection: Servers) -> None:
        """See `Connector.check`; what a broken connection was asked is asked again."""

    def close(self, connection: Servers) -> None:
        """See `Connector.close`."""
        connection.close()


class Plan(Generic[T]):
    """One operation, to be submitted to a lane.

    Args:
        start: begins it; called again when it has to be repeated.
        patience_seconds: how long a server that cannot be reached is tried again.
    """

    def __init__(self, start: Callable[[], Steps[T]], *, patience_seconds: float) -> None:
        self.start = start
        self._patience = patience_seconds

    def __call__(self, servers: Servers) -> T:
        """Run it alone."""
        outcome = serve(servers, [self], patience_seconds=self._patience)[0]
        if outcome.error is not None:
            raise outcome.error
        result: T = outcome.value  # type: ignore[assignment]  # what `start` returns
        return result


def serving(patience_seconds: float) -> Serve[Servers]:
    """What a lane runs groups of plans with."""
    return partial(serve, patience_seconds=patience_seconds)


def serve(
    servers: Servers, works: Sequence[Callable[[Servers], Any]], *, patience_seconds: float
) -> list[Outcome]:
    """Run plans side by side; each gets its own outcome.

    While servers cannot be reached, are loading, or are being replaced, what has not ended is begun
    again, for `patience_seconds` and one more attempt.
    """
    drives = [_Drive(_bound(work, servers)) for work in works]
    place = servers.address.name
    clock, pause = SystemClock(), _FIRST_PAUSE_SECONDS
    until = clock.elapsed() + patience_seconds
    while going := [drive for drive in drives if drive.outcome is None]:
        problem = _round(servers, going, place)
        if problem is None:
            continue
        servers.close()
        last = clock.elapsed() >= until or not _passes(problem)
        for drive in going:
            if last:
                drive.end(Outcome(error=refused(problem, place)))
            else:
                drive.begin()
        if not last:
            threading.Event().wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return [drive.outcome for drive in drives if drive.outcome is not None]


def _bound(work: Callable[[Servers], Any], servers: Servers) -> Plan[Any]:
    if isinstance(work, Plan):
        return work

    def steps() -> Steps[Any]:
        yield [Call("TIME")]
        return work(servers)

    return Plan(steps, patience_seconds=0.0)


def _round(servers: Servers, going: Sequence[_Drive], place: str) -> Exception | None:
    """One round trip for all; the error that keeps everybody from going on, if there is one."""
    calls = [call for drive in going for call in drive.wanted]
    try:
        answers = iter(servers.send(calls))
    except StoreError as error:
        for drive in going:
            drive.end(Outcome(error=error))
        return None
    except (driver().RedisError, OSError) as error:
        return error
    problem = None
    for drive in going:
        own = [next(answers) for _ in drive.wanted]
        bad = next((answer for answer in own if isinstance(answer, Exception)), None)
        if bad is None:
            drive.go_on(own)
        elif code_of(bad) in PASSING:
            problem = bad
        else:
            drive.end(Outcome(error=refused(bad, place)))
    return problem


def _passes(problem: Exception) -> bool:
    """Whether trying again may help."""
    redis = driver()
    if isinstance(problem, redis.AuthenticationError):
        return False
    lost = isinstance(problem, redis.ConnectionError | redis.TimeoutError | OSError)
    return lost or code_of(problem) in PASSING


class _Drive:
    """A plan under way. `wanted` are the calls that it waits for the replies of."""

    def __init__(self, plan: Plan[Any]) -> None:
        self._plan = plan
        self.outcome: Outcome | None = None
        self.wanted: Sequence[Call] = ()
        self.begin()

    def begin(self) -> None:
        """From the start."""
        self._steps = self._plan.start()
        self._advance(lambda: next(self._steps))

    def go_on(self, replies: Sequence[Answer]) -> None:
        """With the replies to what was wanted."""
        self._advance(lambda: self._steps.send(replies))  # type: ignore[arg-type]  # no errors

    def end(self, outcome: Outcome) -> None:
        """With this, whatever it was doing."""
        self._steps.close()
        self.outcome = outcome

    def _advance(self, step: Callable[[], Sequence[Call]]) -> None:
        try:
            self.wanted = [_encoded(call) for call in step()]
        except StopIteration as stop:
            self.outcome = Outcome(stop.value)
        except Exception as exc:  # noqa: BLE001 (whoever awaits the operation gets it)
            self.outcome = Outcome(error=exc)


def _encoded(call: Call) -> Call:
    """With bytes for texts: one that cannot be encoded is the problem of its own operation."""
    return call._replace(
        args=tuple(word.encode() if isinstance(word, str) else word for word in call.args)
    )
