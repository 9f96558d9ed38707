"""A store in Redis or Valkey: one server, a master that sentinels name, or a cluster."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentkit.core.contracts.errors import InvalidId, InvalidStoreUrl, StoreMisused
from agentkit.core.contracts.heads import (
    Claimable,
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime.chance import SystemChance
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._lanes import ThreadLane
from agentkit.state.checkpoints.adapters._redis_address import address_of
from agentkit.state.checkpoints.adapters._redis_engine import RedisEngine
from agentkit.state.checkpoints.adapters._redis_index import Page
from agentkit.state.checkpoints.adapters._redis_journal import Appending, OnFailover
from agentkit.state.checkpoints.adapters._redis_options import (
    check_prefix,
    lifetimes_of,
    patience_of,
    taken_apart,
)
from agentkit.state.checkpoints.adapters._redis_plans import MakeLane
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.state.checkpoints.slots_mixin import SlotMethods

if TYPE_CHECKING:
    import redis

__all__ = [
    "HEAD_TTL_SECONDS",
    "LOG_TTL_SECONDS",
    "PATIENCE_SECONDS",
    "TIMEOUT_SECONDS",
    "RedisCheckpointStore",
    "RedisDurability",
    "store_of_url",
]

LOG_TTL_SECONDS = 86_400.0
"""How long the entries of an ended run stay."""

HEAD_TTL_SECONDS = 7 * 86_400.0
"""How long the head of an ended run stays, and with it its result."""

TIMEOUT_SECONDS = 5.0
"""How long a connection or an answer may take."""

PATIENCE_SECONDS = 10.0
"""How long an operation tries servers that cannot be reached, load their data or change."""


class RedisDurability(NamedTuple):
    """Settings of one server that decide what survives; an empty text where it does not tell.

    Args:
        appendonly: `yes` where there is an append-only file.
        appendfsync: `always` where it reaches the disk before an entry is acknowledged.
        maxmemory_policy: `noeviction` where no run is thrown out for want of memory.
        replicas: how many servers follow this one.
        version: of the server.
        no_appendfsync_on_rewrite: `no` where that is so while the file is rewritten too.
    """

    appendonly: str
    appendfsync: str
    maxmemory_policy: str
    replicas: int
    version: str
    no_appendfsync_on_rewrite: str = ""

    @property
    def keeps_entries(self) -> bool | None:
        """Whether an acknowledged entry survives loss of power; `None` where that is not told."""
        if not self.appendonly:
            return None
        always = self.appendfsync == "always" and self.no_appendfsync_on_rewrite != "yes"
        return self.appendonly == "yes" and always

    @property
    def keeps_runs(self) -> bool | None:
        """Whether no run is evicted; `None` where that is not told."""
        return self.maxmemory_policy == "noeviction" if self.maxmemory_policy else None


def store_of_url(url: str) -> RedisCheckpointStore:
    """The store that a URL names, with arguments of the store among its options.

    Raises:
        InvalidStoreUrl: it is malformed. The message holds nothing of it.
    """
    address, arguments = taken_apart(url)
    try:
        return RedisCheckpointStore(address, **arguments)  # type: ignore[arg-type]  # from a table
    except (InvalidId, StoreMisused) as exc:
        raise InvalidStoreUrl(str(exc)) from None


class RedisCheckpointStore(SlotMethods):
    """Journals in Redis 6.2 or later, or Valkey.

    `redis-cli HGETALL 'agent:checkpoint:{t1}'` shows where run `t1` is; its entries are in the list
    `agent:log:{t1}`. What survives the server is decided by the server's settings, see
    `durability`. Appends of concurrent runs share their round trips.

    Where a run is met on another server than the one that acknowledged its newest entries, or on
    one that was restarted under settings that may have lost some, it is stopped by
    `StoreFailedOver` until `accept_failover`.

    Args:
        where: `redis://`, `rediss://`, `redis+sentinel://host:26379/mymaster`, `redis+cluster://`,
            whose options are those of a connection (other arguments of the store are given here);
            or a `redis.Redis` (also one of a `Sentinel`) or `RedisCluster`, whose settings are
            taken over; the connections are our own.
        prefix: what all keys begin with; without colons and braces.
        log_ttl_seconds: how long the entries of an ended run stay; `None` (`none` in a URL) is for
            ever, and so are those of a run that ended with a call in doubt.
        head_ttl_seconds: how long its head stays, and with it its result.
        orphan_ttl_seconds: after how long without a write or a renewal the entries of an unfinished
            run go. Afterwards it is `RunExpired`. `None`, the default, is never: a run may wait for
            a person.
        on_failover: `accept` goes on with what the server has, at the risk of repeating acts.
        strict: refuse a server that may lose what it acknowledged or evict keys, or does not tell.
        timeout_seconds: how long a connection or an answer may take.
        patience_seconds: how long an operation tries servers that cannot be reached.
        clock: of a test: what leases and epochs are judged by; the server's own if `None`.
        lane: makes what operations run on; a simulator puts its own in place of threads.

    Raises:
        InvalidStoreUrl: the URL is malformed.
        MissingExtra: redis-py is not installed.
        StoreMisused: an argument is of no use; the message says which.
    """

    def __init__(
        self,
        where: str | redis.Redis | redis.RedisCluster,
        *,
        prefix: str = "agent",
        log_ttl_seconds: float | None = LOG_TTL_SECONDS,
        head_ttl_seconds: float | None = HEAD_TTL_SECONDS,
        orphan_ttl_seconds: float | None = None,
        on_failover: OnFailover = "stop",
        strict: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: ClockPort | None = None,
        lane: MakeLane = ThreadLane,
    ) -> None:
        check_prefix(prefix)
        if on_failover not in {"stop", "accept"}:
            raise StoreMisused(f"on_failover must be 'stop' or 'accept', not {on_failover!r}")
        self._engine = RedisEngine(
            address_of(where),
            prefix=prefix,
            lifetimes=lifetimes_of(
                log_ttl=log_ttl_seconds, head_ttl=head_ttl_seconds, orphan_ttl=orphan_ttl_seconds
            ),
            on_failover=on_failover,
            strict=strict,
            patience=patience_of(
                timeout_seconds=timeout_seconds, patience_seconds=patience_seconds
            ),
            clock=None if clock is None else StoreClock(clock),
            lane=lane,
        )
        self._scope = ""

    @property
    def location(self) -> str:
        """The address without user, password and options, then the prefix."""
        return self._engine.location

    def scoped(self, scope: Scope) -> RedisCheckpointStore:
        """The same connections, looking at another scope."""
        view = copy.copy(self)
        view._scope = scope.key  # noqa: SLF001 (a copy of our own)
        return view

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Take the lease, creating the head where there is none; see `JournalPort.acquire`."""
        check_id(run)
        check_id(owner, what="owner")
        rules.check_numbers(supersede, above)
        ttl_seconds = rules.lasting(ttl_seconds)
        journal, scope, token = self._engine.journal, self._scope, SystemChance().token()
        return await self._engine.write(
            lambda: journal.acquire(
                scope,
                run,
                owner=owner,
                ttl_seconds=ttl_seconds,
                token=token,
                supersede=supersede,
                above=above,
            )
        )

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Extend these leases, on a connection of its own; see `JournalPort.renew`."""
        return self._engine.renew(leases)

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
        """Append `rows` and move the head; see `JournalPort.append`."""
        check_id(run)
        rules.check_append(run, rows, after=after, lease=lease, scope=self._scope, release=release)
        new = Appending(rows, after, lease, summary, release)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.write(lambda: journal.append(scope, run, new))

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """The rows with seq > `after`, at most `limit`; see `JournalPort.read`.

        Raises:
            RunExpired: the run has not ended and its entries are gone.
        """
        check_id(run)
        after, limit = rules.counted(after), rules.counted(limit)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.read(lambda: journal.read(scope, run, after=after, limit=limit))

    async def head(self, run: str) -> Head | None:
        """The head, or `None`; see `JournalPort.head`."""
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.read(lambda: journal.head(scope, run))

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """One page of this scope's runs; see `JournalPort.list_runs`."""
        limit = rules.counted(limit)
        page = Page(status, agent, limit, rules.from_cursor(cursor))
        rules.check_text(agent, what="agent")
        index, scope = self._engine.index, self._scope
        return await self._engine.look(lambda: index.list_runs(scope, page), scope=scope)

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs of all scopes that are due; see `JournalPort.claimable`."""
        limit = rules.counted(limit)
        rules.check_text(*(agents or ()), what="agent")
        due = self._engine.due
        return await self._engine.look(lambda: due.claimable(agents=agents, limit=limit))

    async def delete_run(self, run: str) -> bool:
        """Remove the run; see `JournalPort.delete_run`."""
        check_id(run)
        journal, scope, token = self._engine.journal, self._scope, SystemChance().token()
        return await self._engine.write(lambda: journal.delete(scope, run, token=token))

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Remove an ended run's entries; see `JournalPort.entomb`."""
        check_id(run)
        rules.check_numbers(updated_at)
        journal, scope, token = self._engine.journal, self._scope, SystemChance().token()
        return await self._engine.write(
            lambda: journal.entomb(scope, run, updated_at=updated_at, token=token)
        )

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Keys of the scopes that hold runs; see `JournalPort.scopes`."""
        limit = rules.counted(limit)
        rules.check_text(after, what="scope")
        index = self._engine.index
        return await self._engine.look(lambda: index.scopes(after=after, limit=limit))

    @property
    def keeps_values(self) -> bool:
        """Always; see `OncePort`. A claim lasts by the server's wall clock."""
        return True

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Claim `key`, unless it is claimed; see `OncePort.claim_value`."""
        check_id(key, what="key")
        ttl_seconds = rules.lasting(ttl_seconds)
        rules.check_text(token, what="token")
        values, scope = self._engine.values, self._scope
        return await self._engine.write(
            lambda: values.claim(scope, key, token=token, ttl_seconds=ttl_seconds)
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Keep the value of one's own claim; see `OncePort.settle_value`."""
        check_id(key, what="key")
        rules.check_text(token, value, what="token or value")
        values, scope = self._engine.values, self._scope
        return await self._engine.write(lambda: values.settle(scope, key, token=token, value=value))

    async def accept_failover(self, run: str) -> bool:
        """Go on with what the server has of a run that `StoreFailedOver` stopped.

        Entries that the run's last server acknowledged may be missing, so acts may be done again.

        Returns whether there is such a run.

        Raises:
            RunExpired: its entries are gone.
        """
        check_id(run)
        journal, scope = self._engine.journal, self._scope
        return await self._engine.write(lambda: journal.accept(scope, run))

    async def rebuild_lists(self) -> int:
        """Make the lists of runs, of scopes and of due runs anew from the heads, which takes a look
        at each key of the server. It is done by itself where a list is seen to lack something.

        Returns how many runs they have, or 0 where another process is at it.

        Raises:
            StoreUnreachable: the servers change or throw lists out meanwhile.
        """
        return await self._engine.rebuild(self._scope)

    async def durability(self) -> list[RedisDurability]:
        """What the server says of its settings; in a cluster, what each master says."""
        states = await self._engine.states()
        return [
            RedisDurability(
                appendonly=state.setting("appendonly"),
                appendfsync=state.setting("appendfsync"),
                maxmemory_policy=state.setting("maxmemory-policy"),
                replicas=state.replicas,
                version=state.version,
                no_appendfsync_on_rewrite=state.setting("no-appendfsync-on-rewrite"),
            )
            for state in states
        ]

    async def aclose(self) -> None:
        """End the threads and close the connections; see `JournalPort.aclose`."""
        await self._engine.aclose()
