"""The whole journal port, forwarded: subclass it and change what you want changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self, TypeVar

from agentkit.core.contracts.errors import StoreMisused
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
from agentkit.core.contracts.once import Claim, OncePort, keeps_values
from agentkit.core.contracts.ports import Checkpoint, JournalPort, ToolThreads
from agentkit.core.contracts.transactions import Proposal, Transaction, can_transact
from agentkit.core.contracts.types import Scope
from agentkit.core.contracts.upkeep import (
    Migration,
    MigrationPort,
    Reclaimed,
    migrates,
    reclaims,
)

__all__ = ["StoreWrapper"]

_T = TypeVar("_T")


class StoreWrapper:
    """A store that hands every call on to another one.

    A subclass overrides a method to observe, delay, refuse or change what passes. `scoped`
    returns an object of the subclass around the inner store's scoped view; what the subclass
    keeps in attributes is shared by all its views.

    Args:
        inner: the store that does the work.
    """

    def __init__(self, inner: JournalPort) -> None:
        self.inner = inner

    @property
    def location(self) -> str:
        """The inner store's location: it is the same data."""
        return self.inner.location

    def scoped(self, scope: Scope) -> Self:
        """The same wrapper around the inner store's view of `scope`."""
        view = copy.copy(self)
        view.inner = self.inner.scoped(scope)
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
        """Forward to `JournalPort.acquire`."""
        return await self.inner.acquire(run, owner, ttl_seconds, supersede=supersede, above=above)

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Forward to `JournalPort.renew`."""
        return self.inner.renew(leases)

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
        """Forward to `JournalPort.append`."""
        return await self.inner.append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Forward to `JournalPort.read`."""
        return await self.inner.read(run, after=after, limit=limit)

    async def head(self, run: str) -> Head | None:
        """Forward to `JournalPort.head`."""
        return await self.inner.head(run)

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """Forward to `JournalPort.list_runs`."""
        return await self.inner.list_runs(status=status, agent=agent, limit=limit, cursor=cursor)

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Forward to `JournalPort.claimable`."""
        return await self.inner.claimable(agents=agents, limit=limit)

    async def delete_run(self, run: str) -> bool:
        """Forward to `JournalPort.delete_run`."""
        return await self.inner.delete_run(run)

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Forward to `JournalPort.entomb`."""
        return await self.inner.entomb(run, updated_at=updated_at)

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Forward to `JournalPort.scopes`."""
        return await self.inner.scopes(after=after, limit=limit)

    @property
    def can_transact(self) -> bool:
        """Whether the inner store has transactions for tools."""
        return can_transact(self.inner) is not None

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
        """Forward to `TransactionalPort.transact`; its append does not come through `append`."""
        port = can_transact(self.inner)
        if port is None:
            raise StoreMisused(f"{self.inner.location} has no transactions for tools")
        return await port.transact(
            run,
            act,
            conclude,
            after=after,
            lease=lease,
            threads=threads,
            timeout_seconds=timeout_seconds,
        )

    @property
    def keeps_values(self) -> bool:
        """Whether the inner store keeps values."""
        return keeps_values(self.inner) is not None

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Forward to `OncePort.claim_value`."""
        return await self._values().claim_value(key, token=token, ttl_seconds=ttl_seconds)

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Forward to `OncePort.settle_value`."""
        return await self._values().settle_value(key, token=token, value=value)

    def _values(self) -> OncePort:
        port = keeps_values(self.inner)
        if port is None:
            raise StoreMisused(f"{self.inner.location} keeps no values for `once`")
        return port

    @property
    def can_reclaim(self) -> bool:
        """Whether the inner store gives space back."""
        return reclaims(self.inner) is not None

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """Forward to `ReclaimPort.reclaim`."""
        port = reclaims(self.inner)
        if port is None:
            raise StoreMisused(f"{self.inner.location} has no space to give back")
        return await port.reclaim(limit_seconds=limit_seconds)

    @property
    def can_migrate(self) -> bool:
        """Whether the inner store has a schema."""
        return migrates(self.inner) is not None

    async def migrations(self) -> list[Migration]:
        """Forward to `MigrationPort.migrations`."""
        return await self._schema().migrations()

    async def migrate(self) -> list[Migration]:
        """Forward to `MigrationPort.migrate`."""
        return await self._schema().migrate()

    def _schema(self) -> MigrationPort:
        port = migrates(self.inner)
        if port is None:
            raise StoreMisused(f"{self.inner.location} has no schema")
        return port

    async def aclose(self) -> None:
        """Forward to `JournalPort.aclose`."""
        await self.inner.aclose()

    async def save(self, checkpoint: Checkpoint) -> None:
        """Forward to `CheckpointPort.save`."""
        await self.inner.save(checkpoint)

    async def latest(self, slot: str) -> Checkpoint | None:
        """Forward to `CheckpointPort.latest`."""
        return await self.inner.latest(slot)

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        """Forward to `CheckpointPort.at_version`."""
        return await self.inner.at_version(slot, version)

    async def list_versions(self, slot: str) -> list[int]:
        """Forward to `CheckpointPort.list_versions`."""
        return await self.inner.list_versions(slot)

    async def delete(self, slot: str) -> None:
        """Forward to `CheckpointPort.delete`."""
        await self.inner.delete(slot)
