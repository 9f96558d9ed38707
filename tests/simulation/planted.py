"""Bugs that were planted on purpose: stores that break one law each; and how they are found."""

import itertools
from collections.abc import Collection, Mapping, Sequence

import msgspec

from agentkit.core.contracts.errors import HeadMoved
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.testing.simulation import simulate
from agentkit.testing.simulation.schedule import StoreMaker

SCHEDULES = 1_000
"""In so many schedules each of them must be found; most take less than a hundred."""

SOON = 100
"""In so many, where the tools are those that the bug is about."""


def found(
    invariant: str,
    *,
    store: StoreMaker | None = None,
    policies: Collection[str] = (),
    schedules: int = SCHEDULES,
    since: int = 1,
) -> bool:
    """Whether one of so many schedules breaks the invariant. A bug that needs much to come together
    is met soon where they begin with the seed `since`.
    """
    seeds = range(since, since + schedules)
    outcomes = (simulate(seed, store=store, policies=policies) for seed in seeds)
    return any(invariant in {one.invariant for one in played.violations} for played in outcomes)


class Unfenced(StoreWrapper):
    """Does not look at the lease of an append: whoever is at the head may append."""

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
        """Forward under whatever lease the head has now."""
        head = await self.inner.head(run)
        if lease is not None and head is not None:
            lease = msgspec.structs.replace(lease, owner=head.owner, epoch=head.epoch)
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


class Forgetful(StoreWrapper):
    """Does not compare rows that come again with those that it has."""

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
        """Forward, unless the head is beyond."""
        head = await self.inner.head(run)
        if rows and head is not None and head.seq > after and lease is not None:
            raise HeadMoved("planted", run_id=run)
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


class Indulgent(StoreWrapper):
    """Tells every holder that its lease was renewed, also one of a stale epoch, and to that one
    that nothing has happened since.
    """

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Forward, and call nothing lost."""
        return {
            key: Renewal(lost=False, seq=0) if renewal.lost else renewal
            for key, renewal in super().renew(leases).items()
        }


class Hasty(StoreWrapper):
    """Grants leases that lapse sooner than it says."""

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Forward with a sixth of the time."""
        lease = await super().acquire(run, owner, ttl_seconds / 6, supersede=supersede, above=above)
        return msgspec.structs.replace(lease, ttl_seconds=ttl_seconds)


class Generous(StoreWrapper):
    """Grants the lease although somebody holds it."""

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Forward as if the holder were proved dead."""
        head = await self.inner.head(run)
        held = None if head is None else head.epoch
        return await super().acquire(run, owner, ttl_seconds, supersede=held)


class Leaking(StoreWrapper):
    """Answers an append before it is durable, and loses every tenth."""

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self.numbers = itertools.count(1)

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
        """Forward nine times of ten."""
        head = await self.inner.head(run)
        if next(self.numbers) % 10 == 0 and head is not None:
            return msgspec.structs.replace(head, seq=after + len(rows))
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


def planted(kind: type[StoreWrapper], clock: ClockPort) -> JournalPort:
    """A memory store with the bug in front of it."""
    return kind(InMemoryCheckpointStore(clock=clock))
