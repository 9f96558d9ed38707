"""Stores with one sin each, as somebody could have written them, over the memory store.

Each class says which check is named for its sin: that check must be among those that it breaks.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from agentkit.core.contracts.errors import HeadMoved, NoteRefused, RunInUse
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
from agentkit.core.contracts.ports import Checkpoint, JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import StoreWrapper


class Sent(NamedTuple):
    """An append as it came in."""

    rows: list[Row]
    after: int
    lease: Lease | None
    summary: Summary
    release: bool


class BadStore(StoreWrapper):
    """Does everything right but for the one thing that its subclass does wrong.

    Attributes:
        seen_by: the check that is named for the sin.
    """

    seen_by: ClassVar[str] = ""

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
        """Hand it on to `take`, so that sins need not repeat the signature."""
        return await self.take(run, Sent(list(rows), after, lease, summary, release))

    async def take(self, run: str, it: Sent) -> Head:
        """What becomes of an append."""
        return await super().append(
            run,
            it.rows,
            after=it.after,
            lease=it.lease,
            summary=it.summary,
            release=it.release,
        )


class NotAtomic(BadStore):
    """Writes the rows one by one, each as soon as it can."""

    seen_by = "append.a-refused-append-leaves-nothing"

    async def take(self, run: str, it: Sent) -> Head:
        for _ in it.rows[:-1]:
            await super().take(run, it._replace(rows=it.rows[:1], release=False))
            it = it._replace(rows=it.rows[1:], after=it.after + 1)
        return await super().take(run, it)


class ReadsHalfAnAppend(BadStore):
    """Its rows become visible in two steps."""

    seen_by = "append.an-append-is-seen-whole-or-not-at-all"

    async def take(self, run: str, it: Sent) -> Head:
        half = len(it.rows) // 2
        if half:
            await super().take(run, it._replace(rows=it.rows[:half], release=False))
            await asyncio.sleep(0)
            it = it._replace(rows=it.rows[half:], after=it.after + half)
        return await super().take(run, it)


class NoFence(BadStore):
    """Whoever once had the lease goes on writing under the newest one."""

    seen_by = "fencing.the-old-holder-can-do-nothing"

    async def take(self, run: str, it: Sent) -> Head:
        head = await self.inner.head(run)
        if it.lease is not None and head is not None and head.owner == it.lease.owner:
            it = it._replace(lease=msgspec.structs.replace(it.lease, epoch=head.epoch))
        return await super().take(run, it)


class RenewsForAnybody(BadStore):
    """Tells a worker that was replaced that all is well."""

    seen_by = "fencing.the-old-holder-can-do-nothing"

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        renewed = super().renew(leases)
        return {key: Renewal(one.seq) for key, one in renewed.items()}


class LeavesGaps(BadStore):
    """Takes rows wherever they say they are, and gives them back with a hole between."""

    seen_by = "append.rows-are-numbered-without-a-gap"

    async def take(self, run: str, it: Sent) -> Head:
        first = it.after + 1
        rows = [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(it.rows, first)]
        return await super().take(run, it._replace(rows=rows))


class DoublesRetries(BadStore):
    """A repeated append is put behind the first one."""

    seen_by = "repeats.a-repeated-append-is-one-append"

    async def take(self, run: str, it: Sent) -> Head:
        head = await self.inner.head(run)
        if head is not None and it.rows and head.seq > it.after:
            first = head.seq + 1
            rows = [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(it.rows, first)]
            it = it._replace(rows=rows, after=head.seq)
        return await super().take(run, it)


class ForgivesOtherBytes(BadStore):
    """Takes whatever is at the place for the rows that are sent again."""

    seen_by = "repeats.other-bytes-at-the-same-place-are-no-repetition"

    async def take(self, run: str, it: Sent) -> Head:
        try:
            return await super().take(run, it)
        except HeadMoved:
            head = await self.inner.head(run)
            if head is None or head.seq < it.after + len(it.rows):
                raise
            return head


class LapsesTooLate(BadStore):
    """At the exact instant of its expiry a lease still holds."""

    seen_by = "leases.a-lease-lapses-at-the-exact-instant"

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        lease = await super().acquire(
            run, owner, ttl_seconds + 0.001, supersede=supersede, above=above
        )
        return msgspec.structs.replace(lease, ttl_seconds=ttl_seconds)


class SupersedesAnybody(BadStore):
    """Any proof of death will do, of whomever."""

    seen_by = "leases.a-dead-holder-is-superseded-at-once"

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        head = await self.inner.head(run)
        if supersede is not None and head is not None:
            supersede = head.epoch
        return await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)


class ForgetsAbove(BadStore):
    """Epochs of copied runs may fall."""

    seen_by = "fencing.an-epoch-is-above-the-one-that-is-asked-for"

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        return await super().acquire(run, owner, ttl_seconds, supersede=supersede)


class ReusesEpochs(BadStore):
    """A run that begins anew under its old id has its old epoch again."""

    seen_by = "fencing.the-epoch-grows-across-a-delete"

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self._epochs: dict[str, int] = {}

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        lease = await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)
        first = self._epochs.setdefault(run, lease.epoch)
        return msgspec.structs.replace(lease, epoch=first)


class CountsNothing(BadStore):
    """A run that kills all its workers looks as if it had never been tried."""

    seen_by = "leases.takeovers-are-counted-when-they-happen"

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        lease = await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)
        head = msgspec.structs.replace(lease.head, recoveries=0)
        return msgspec.structs.replace(lease, head=head)


class DeletesLiveRuns(BadStore):
    """Takes a run away from under its worker."""

    seen_by = "leases.a-live-run-is-not-deleted"

    async def delete_run(self, run: str) -> bool:
        try:
            return await super().delete_run(run)
        except RunInUse:
            head = await self.inner.head(run)
            assert head is not None
            lease = Lease(run, head.owner, head.epoch, 0.0, head, scope=self._key)
            self.inner.renew({"r": lease})
            return await super().delete_run(run)

    _key: str = ""

    def scoped(self, scope: Scope) -> "DeletesLiveRuns":
        view = super().scoped(scope)
        view._key = scope.key
        return view


class TakesLateNotes(BadStore):
    """Something follows the end of a run."""

    seen_by = "notes.an-ended-run-takes-no-notes"

    async def take(self, run: str, it: Sent) -> Head:
        try:
            return await super().take(run, it)
        except NoteRefused:
            head = await self.inner.head(run)
            assert head is not None
            return head


class ListsEveryScope(BadStore):
    """A list shows the runs of other tenants."""

    seen_by = "scopes.another-scope-sees-nothing"

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        found: list[RunSummary] = []
        for key in await self.inner.scopes():
            page, _ = await self.inner.scoped(Scope.of_key(key)).list_runs(
                status=status, agent=agent, limit=limit, cursor=cursor
            )
            found += page
        return found[:limit], ""


class LosesRunsBetweenPages(BadStore):
    """The first run of each further page is the one before it."""

    seen_by = "lists.pages-meet-without-a-gap-or-a-repetition"

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        page, more = await super().list_runs(
            status=status, agent=agent, limit=limit + bool(cursor), cursor=cursor
        )
        return page[bool(cursor) :], more


class PagesByOffset(BadStore):
    """Its cursor counts runs, so that one that begins meanwhile makes another come twice."""

    seen_by = "lists.paging-loses-and-repeats-no-run-while-others-begin"

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        begin = int(cursor or 0) if cursor.isascii() and cursor.isdigit() else 0
        if cursor and not begin:
            return await super().list_runs(cursor=cursor)
        every, _ = await super().list_runs(status=status, agent=agent, limit=10_000)
        page = every[begin : begin + limit]
        return page, str(begin + limit) if begin + limit < len(every) else ""


class MatchesPatterns(BadStore):
    """Agents are compared as patterns."""

    seen_by = "lists.filters-narrow-the-list"

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        wanted = None if agent in {"%", "*"} else agent
        return await super().list_runs(status=status, agent=wanted, limit=limit, cursor=cursor)


class TidiesBodies(BadStore):
    """Takes bodies for text."""

    seen_by = "append.what-is-appended-is-read-back-byte-for-byte"

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        return [
            msgspec.structs.replace(row, body=row.body.decode("utf-8", "replace").encode())
            for row in await super().read(run, after=after, limit=limit)
        ]


class TrimsIds(BadStore):
    """Two names that look alike are one run."""

    seen_by = "ids.any-other-id-is-just-a-name"

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        return await super().read(run.strip() or run, after=after, limit=limit)


class EntombsAnything(BadStore):
    """The caller's knowledge is not compared with what is there."""

    seen_by = "retention.only-what-the-caller-saw-is-entombed"

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        head = await self.inner.head(run)
        if head is not None and head.summary is not None:
            updated_at = head.summary.updated_at
        return await super().entomb(run, updated_at=updated_at)


class KeepsValuesForEver(BadStore):
    """A key never becomes free again."""

    seen_by = "values.what-has-lapsed-is-as-if-it-had-never-been"

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        return await super().claim_value(key, token=token, ttl_seconds=ttl_seconds * 1_000)


class SettlesForOthers(BadStore):
    """Whoever brings a value is believed."""

    seen_by = "values.only-the-claimant-brings-the-value"

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        await super().settle_value(key, token=token, value=value)
        return True


class ForgetsWhoHolds(BadStore):
    """Workers are told of a held run as if it were free."""

    seen_by = "due.who-holds-a-due-run-is-told-and-comes-last"

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        found = await super().claimable(agents=agents, limit=limit)
        return [msgspec.structs.replace(one, held=False) for one in found]


class OverwritesVersions(BadStore):
    """The second of two snapshots with one number wins."""

    seen_by = "slots.a-version-is-taken-once"

    async def save(self, checkpoint: Checkpoint) -> None:
        if checkpoint.version in await self.inner.list_versions(checkpoint.slot):
            return
        await super().save(checkpoint)


class DropsCancelled(BadStore):
    """A cancelled append that was under way may be in or not."""

    seen_by = "handles.a-cancelled-append-is-carried-to-its-end"

    async def take(self, run: str, it: Sent) -> Head:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await super().take(run, it)


class BoundToItsLoop(BadStore):
    """Its lock belongs to the loop that used it first."""

    seen_by = "handles.one-object-serves-several-loops-and-threads"

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self._home: list[asyncio.AbstractEventLoop] = []

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        loop = asyncio.get_running_loop()
        self._home = self._home or [loop]
        if self._home != [loop]:
            raise RuntimeError("attached to a different loop")
        return await super().read(run, after=after, limit=limit)


class LeaksAcrossScopes(BadStore):
    """The runs of one tenant count against another's page."""

    seen_by = "random.another-scope-with-the-same-runs-changes-no-answer"

    async def head(self, run: str) -> Head | None:
        head = await super().head(run)
        if head is None:
            return None
        count = 0
        for key in await self.inner.scopes():
            count += len(await self.inner.scoped(Scope.of_key(key)).read(run))
        return msgspec.structs.replace(head, recoveries=head.recoveries + count - head.seq)


class AlmostRight(BadStore):
    """One of its answers is wrong in a state that no check for one promise comes to."""

    seen_by = "random.a-store-answers-as-the-memory-store-does"

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        found = await super().read(run, after=after, limit=limit)
        head = await self.inner.head(run)
        tried = head is not None and head.recoveries > 3 and head.summary is not None
        return (
            found[:-1] if tried and head and head.summary and head.summary.agent == "x" else found
        )


def bad_stores() -> list[type[BadStore]]:
    """All of them."""
    return BadStore.__subclasses__()
