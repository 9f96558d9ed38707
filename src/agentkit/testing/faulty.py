"""A store that fails on purpose: at the calls that a test names, in the ways that stores fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import ClockPort, JournalPort, ToolThreads
from agentkit.core.contracts.transactions import Proposal, Transaction
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import StoreWrapper

__all__ = ["OPERATIONS", "Fault", "FaultKind", "FaultyStore", "Operation"]

_T = TypeVar("_T")

Operation: TypeAlias = Literal[
    "acquire", "append", "read", "head", "renew", "transact", "claim_value", "settle_value"
]

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
"""What a `FaultyStore` counts and disturbs."""

FaultKind: TypeAlias = Literal["before", "after", "twice", "delay"]
"""`before`: nothing is done and an error is raised. `after`: it is done, durable, and an error is
raised all the same. `twice`: it is done, and done again as a repeated message would. `delay`: it
is done `seconds` later."""


class Fault(msgspec.Struct, frozen=True):
    """One disturbance.

    Args:
        kind: see `FaultKind`.
        operation: which calls it may hit; any where `None`.
        call: the first call that it hits, counted from 1 among the calls of `operation`.
        times: how many calls in a row it hits.
        seconds: of `delay`.
        error: what is raised; by default `StoreUnreachable`.
    """

    kind: FaultKind
    operation: Operation | None = None
    call: int = 1
    times: int = 1
    seconds: float = 0.0
    error: Exception | None = None


class FaultyStore(StoreWrapper):
    """Hands calls on to another store, but for those that a fault hits. Deterministic.

    Args:
        inner: the store that does the work.
        faults: what goes wrong.
        clock: sleeps for `delay`.

    Attributes:
        calls: calls so far, by operation.
        fired: faults that really happened, by kind: a test asserts that its fault is among them.
    """

    def __init__(self, inner: JournalPort, *faults: Fault, clock: ClockPort | None = None) -> None:
        super().__init__(inner)
        self.faults = list(faults)
        self.calls: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self._clock: ClockPort = clock or SystemClock()

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        forward = super().acquire
        return await self._disturbed(
            "acquire", lambda: forward(run, owner, ttl_seconds, supersede=supersede, above=above)
        )

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """See `JournalPort.append`."""
        forward = super().append
        return await self._disturbed(
            "append",
            lambda: forward(run, rows, after=after, lease=lease, summary=summary, release=release),
        )

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """See `JournalPort.read`."""
        forward = super().read
        return await self._disturbed("read", lambda: forward(run, after=after, limit=limit))

    async def head(self, run: str) -> Head | None:
        """See `JournalPort.head`."""
        forward = super().head
        return await self._disturbed("head", lambda: forward(run))

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """See `TransactionalPort.transact`; done `twice` it is refused the second time."""
        forward = super().transact
        return await self._disturbed(
            "transact",
            lambda: forward(
                run,
                act,
                conclude,
                after=after,
                lease=lease,
                threads=threads,
                timeout_seconds=timeout_seconds,
            ),
        )

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """See `OncePort.claim_value`."""
        forward = super().claim_value
        return await self._disturbed(
            "claim_value", lambda: forward(key, token=token, ttl_seconds=ttl_seconds)
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """See `OncePort.settle_value`."""
        forward = super().settle_value
        return await self._disturbed("settle_value", lambda: forward(key, token=token, value=value))

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """See `JournalPort.renew`; a `delay` is not slept here, where it would block."""
        fault = self._hit("renew")
        if fault is not None and fault.kind == "before":
            raise self._error(fault, "renew")
        renewals = super().renew(leases)
        if fault is not None and fault.kind == "twice":
            renewals = super().renew(leases)
        if fault is not None and fault.kind == "after":
            raise self._error(fault, "renew")
        return renewals

    async def _disturbed(self, operation: Operation, call: Callable[[], Awaitable[_T]]) -> _T:
        fault = self._hit(operation)
        if fault is None:
            return await call()
        if fault.kind == "before":
            raise self._error(fault, operation)
        if fault.kind == "delay":
            await self._clock.sleep(fault.seconds)
            return await call()
        await call()
        if fault.kind == "twice":
            return await call()
        raise self._error(fault, operation)

    def _hit(self, operation: Operation) -> Fault | None:
        """Count the call; the fault that hits it, if any."""
        self.calls[operation] += 1
        total = self.calls.total()
        for fault in self.faults:
            number = self.calls[operation] if fault.operation is not None else total
            mine = fault.operation in {None, operation}
            if mine and fault.call <= number < fault.call + fault.times:
                self.fired[fault.kind] += 1
                return fault
        return None

    def _error(self, fault: Fault, operation: Operation) -> Exception:
        if fault.error is not None:
            return fault.error
        when = "before it was done" if fault.kind == "before" else "after it was done"
        return StoreUnreachable(f"fault: {operation} failed {when}")
