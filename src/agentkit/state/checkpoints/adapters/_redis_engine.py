"""What the views of one Redis store share: lanes, a seat for renewals, and the operations."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.state.checkpoints.adapters._lanes import Outcome, Seat
from agentkit.state.checkpoints.adapters._redis_address import Address
from agentkit.state.checkpoints.adapters._redis_due import RedisDue
from agentkit.state.checkpoints.adapters._redis_hints import ListsLost
from agentkit.state.checkpoints.adapters._redis_index import RedisIndex
from agentkit.state.checkpoints.adapters._redis_journal import (
    OnFailover,
    RedisJournal,
    Renewed,
    now,
)
from agentkit.state.checkpoints.adapters._redis_links import Servers
from agentkit.state.checkpoints.adapters._redis_options import Lifetimes, Patience
from agentkit.state.checkpoints.adapters._redis_plans import (
    Ask,
    MakeLane,
    Plan,
    RedisConnector,
    RedisLane,
    Steps,
    serve,
    serve_all,
)
from agentkit.state.checkpoints.adapters._redis_rebuild import Rebuild
from agentkit.state.checkpoints.adapters._redis_states import ServerState, refuse_unsafe
from agentkit.state.checkpoints.adapters._redis_values import RedisValues
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

T = TypeVar("T")

RENEWAL_PATIENCE_SECONDS = 1.0
"""How long a renewal tries a server that cannot be reached; the next one is not far."""

RENEWAL_TIMEOUT_SECONDS = 2.0
"""How long a renewal waits for one node of a cluster: the leases on the others must not lapse."""

_LOOKS = 4

_log = logging.getLogger("agentkit.state")


class RedisEngine:
    """See the module.

    Args:
        address: of the servers.
        prefix: what all keys begin with.
        lifetimes: of the keys.
        on_failover: whether to go on with what another server has.
        strict: refuse servers that may lose what they acknowledge.
        patience: with servers.
        clock: of a test; `None` where the server's own judges leases.
        lane: makes what operations run on.
    """

    def __init__(
        self,
        address: Address,
        *,
        prefix: str,
        lifetimes: Lifetimes,
        on_failover: OnFailover,
        strict: bool,
        patience: Patience,
        clock: StoreClock | None,
        lane: MakeLane,
    ) -> None:
        self.location = f"{address.name}{'&' if '?' in address.name else '?'}prefix={prefix}"
        self.index = RedisIndex(prefix, partial(now, clock))
        self.due = RedisDue(prefix, partial(now, clock))
        self.values = RedisValues(prefix, partial(now, clock))
        self.journal = RedisJournal(
            self.index,
            self.due,
            prefix=prefix,
            clock=clock,
            lifetimes=lifetimes,
            on_failover=on_failover,
        )
        self._prefix = prefix
        self._failing = False
        self._patience = patience.patience_seconds
        connecting = partial(
            RedisConnector, address, examine=refuse_unsafe if strict else _take_any, known=[]
        )
        seconds = patience.timeout_seconds
        connector = connecting(timeout_seconds=seconds)
        if address.kind == "cluster":
            seconds = min(seconds, RENEWAL_TIMEOUT_SECONDS)
        self._renewals = Seat(connecting(timeout_seconds=seconds))
        self._writer = lane(Seat(connector), serve, "agentkit-redis-writer")
        self._reader = lane(Seat(connector), serve, "agentkit-redis-reader")
        weakref.finalize(self, _stop, self._writer, self._reader).atexit = False

    async def write(self, start: Callable[[], Steps[T]]) -> T:
        """Run an operation that writes; it shares its round trips with others."""
        return await self._writer.submit(Plan(start, patience_seconds=self._patience))

    async def read(self, start: Callable[[], Steps[T]]) -> T:
        """Run an operation that reads."""
        return await self._reader.submit(Plan(start, patience_seconds=self._patience))

    async def look(self, start: Callable[[], Steps[T]], *, scope: str = "") -> T:
        """Run an operation that reads lists; where they may lack something, they are made anew.

        Raises:
            StoreUnreachable: they may still lack something.
        """
        for _ in range(_LOOKS):
            try:
                return await self.read(start)
            except ListsLost as lost:
                level = logging.WARNING if lost.is_news else logging.INFO
                _log.log(level, "a list of runs may lack some: all are made anew from the heads")
                await self.rebuild(scope)
        raise StoreUnreachable(
            f"the lists of runs of {self.location} go as soon as they are made anew. See the "
            f"server's maxmemory-policy; nothing was lost of runs that are there."
        )

    async def rebuild(self, scope: str) -> int:
        """Make all lists anew; returns how many runs they have now, 0 if another one did it."""
        return await Rebuild(self, prefix=self._prefix, index=self.index, due=self.due).run(scope)

    async def ask(self, work: Callable[[Servers], T]) -> T:
        """Run this on the servers themselves."""
        return await self._reader.submit(Ask(work, patience_seconds=self._patience))

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """See `JournalPort.renew`; one warning for each time that some cannot be renewed."""
        if not leases:
            return {}
        plans = {
            key: Plan(partial(self.journal.renew, lease), patience_seconds=RENEWAL_PATIENCE_SECONDS)
            for key, lease in leases.items()
        }
        outcomes = self._renewals.use(lambda servers: self._renewed(servers, leases, plans))
        errors = [one.error for one in outcomes.values() if one.error is not None]
        if errors and len(errors) == len(leases):
            raise errors[0]
        if errors and not self._failing:
            _log.warning("cannot renew %d of %d leases: %s", len(errors), len(leases), errors[0])
        self._failing = bool(errors)
        return {
            key: one.value.renewal
            for key, one in outcomes.items()
            if isinstance(one.value, Renewed)
        }

    def _renewed(
        self, servers: Servers, leases: Mapping[str, Lease], plans: Mapping[str, Plan[Renewed]]
    ) -> dict[str, Outcome]:
        """What became of each; until when they last is noted if the server for that answers."""
        outcomes = dict(zip(plans, serve_all(servers, list(plans.values())), strict=True))
        until_ms = {
            key: one.value.until_ms
            for key, one in outcomes.items()
            if isinstance(one.value, Renewed) and one.value.until_ms is not None
        }
        if until_ms:
            held = [(leases[key], ms) for key, ms in until_ms.items()]
            noting = Plan(lambda: self.journal.note_held(held), patience_seconds=0.0)
            serve_all(servers, [noting])
        return outcomes

    async def states(self) -> list[ServerState]:
        """What the masters say of themselves."""
        return await self.ask(lambda servers: servers.states())

    async def aclose(self) -> None:
        """End the threads and close the connections."""
        await self._reader.close()
        self._renewals.close()
        await self._writer.close()


def _take_any(state: ServerState) -> None:
    """Any server will do; `durability` tells what it keeps."""


def _stop(*lanes: RedisLane) -> None:
    """The store is gone without `aclose`: its threads end, and their connections with them."""
    for lane in lanes:
        lane.stop()
