"""Operations on Redis as steps, so that many of them share their round trips.

An operation is a generator: it yields calls, is sent their replies, and returns its result. Those
of a group go forward together, and each may be run again from its start: none does anything twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

from agentkit.core.contracts.errors import StoreError
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._lanes import LanePort, Outcome, Seat, Serve, Work
from agentkit.state.checkpoints.adapters._redis_address import Address, Place
from agentkit.state.checkpoints.adapters._redis_errors import (
    PASSING,
    code_of,
    driver,
    driver_errors,
    refused,
)
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
        known: see `Servers`.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float, examine: Examine, known: list[Place]
    ) -> None:
        self._address = address
        self._timeout = timeout_seconds
        self._examine = examine
        self._known = known

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
        self._until = 0.0
        self.servers: Servers | None = None

    def __call__(self, servers: Servers) -> T:
        """Run it alone."""
        (outcome,) = serve_all(servers, [self])
        if outcome.error is not None:
            raise outcome.error
        result: T = outcome.value  # type: ignore[assignment]  # what `start` returns
        return result

    def may_wait(self) -> bool:
        """Whether it may be begun again: its patience begins with the first time."""
        now = SystemClock().elapsed()
        self._until = self._until or now + self._patience
        return now < self._until


class Ask(Plan[T]):
    """A question to the servers themselves, once all of them are there."""

    def __init__(self, work: Callable[[Servers], T], *, patience_seconds: float) -> None:
        super().__init__(self._asked, patience_seconds=patience_seconds)
        self._work = work

    def _asked(self) -> Steps[T]:
        yield [Call("TIME")]
        servers = cast("Servers", self.servers)
        with driver_errors(servers.address.name):
            return self._work(servers)


def serve_all(servers: Servers, plans: Sequence[Plan[Any]]) -> list[Outcome]:
    """Run plans until each has ended."""
    outcomes = serve(servers, plans)
    pause = _FIRST_PAUSE_SECONDS
    while again := [at for at, outcome in enumerate(outcomes) if outcome.again]:
        threading.Event().wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        for at, outcome in zip(again, serve(servers, [plans[at] for at in again]), strict=True):
            outcomes[at] = outcome
    return outcomes


def serve(servers: Servers, works: Sequence[Work[Servers]]) -> list[Outcome]:
    """Run plans side by side; each gets its own outcome.

    What meets a server that cannot be reached, is loading, or is being replaced is to be run again,
    for the patience of the plan and one more attempt.
    """
    plans = [cast("Plan[Any]", work) for work in works]
    for plan in plans:
        plan.servers = servers
    drives = [_Drive(plan) for plan in plans]
    place = servers.address.name
    for drive in drives:
        drive.plan.may_wait()
    while going := [drive for drive in drives if drive.outcome is None]:
        for drive, problem in _round(servers, going, place).items():
            again = drive.plan.may_wait()
            drive.end(Outcome(again=True) if again else Outcome(error=refused(problem, place)))
    return [drive.outcome for drive in drives if drive.outcome is not None]


def _round(servers: Servers, going: Sequence[_Drive], place: str) -> dict[_Drive, Exception]:
    """One round trip for all; what keeps some from going on, and may be over in a moment."""
    calls = [call for drive in going for call in drive.wanted]
    try:
        answers = iter(servers.send(calls))
    except (driver().RedisError, OSError) as error:
        answers = iter([cast("Answer", error)] * len(calls))
    problems: dict[_Drive, Exception] = {}
    for drive in going:
        own = [
            None if call.optional and isinstance(answer, Exception) else answer
            for call, answer in zip(drive.wanted, answers, strict=False)
        ]
        bad = next((answer for answer in own if isinstance(answer, Exception)), None)
        if bad is None:
            drive.go_on(own)
        elif isinstance(bad, StoreError):
            drive.end(Outcome(error=bad))
        elif _passes(bad):
            problems[drive] = bad
        else:
            drive.end(Outcome(error=refused(bad, place)))
    return problems


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
        self.plan = plan
        self.outcome: Outcome | None = None
        self.wanted: Sequence[Call] = ()
        self.begin()

    def begin(self) -> None:
        """From the start."""
        self._steps = self.plan.start()
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
