"""Old runs are removed: first their entries, later what was left of them. Nothing open ever is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Literal, NamedTuple, TypeAlias

from agentkit.core.contracts.errors import AgentkitError, RunInUse, StoreMisused
from agentkit.core.contracts.heads import TERMINAL_STATUSES, RunSummary
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.state.journal.journal import load
from agentkit.state.upkeep.selecting import LIST_RUNS, OF_ONE_RUN, each_scope

__all__ = ["Kept", "Policy", "Pruned", "Verdict", "collect"]

Kept: TypeAlias = Literal["open", "young", "latest", "in_doubt", "in_use", "unreadable", "moved"]
"""Why a run stays: it has not ended; it is not old enough; it is among the latest that are kept; a
call of it may have happened and nobody knows; somebody holds it; it cannot be read; it changed
while it was looked at."""

Verdict: TypeAlias = Literal["entombed", "deleted"] | Kept


class Policy(NamedTuple):
    """What goes.

    Args:
        older_than_seconds: ended runs whose last entry is older lose their entries; what is left is
            a tombstone: status, result and usage, so that the same run is not done again.
        tombstones_older_than_seconds: tombstones of runs that ended before that are deleted; `None`
            to keep them.
        keep_latest: of each scope so many ended runs, those that began last, stay whole.
        tenant: only scopes of this tenant; `None` for all.
        in_doubt: ids of runs that go by age like any other although they ended with a call in
            doubt: somebody knows what became of it.
        user: only scopes of this user; `None` for all.
    """

    older_than_seconds: float
    tombstones_older_than_seconds: float | None = None
    keep_latest: int = 0
    tenant: str | None = None
    in_doubt: Collection[str] = ()
    user: str | None = None


class Pruned(NamedTuple):
    """What became of one run. `error`: why it cannot be read, or who holds it. `tools`: whose
    calls are in doubt.
    """

    scope: str
    run: str
    verdict: Verdict
    error: AgentkitError | None = None
    tools: tuple[str, ...] = ()


async def collect(
    port: JournalPort, policy: Policy, *, clock: ClockPort, dry_run: bool = False
) -> AsyncIterator[Pruned]:
    """Remove what is old, run by run, and say what became of each; a caller who stops listening
    stops it.

    Runs that have not ended are never touched, whatever their age: suspended, parked, interrupted,
    live. Nor is one that ended with a call in doubt, by a cancel or because its model was told: its
    entries are all that tells of it. Nor is one that cannot be read: every run is read before
    anything of it is removed. Killed at any moment this leaves each run whole, a tombstone, or
    gone; repeating it is safe. Nothing else may be told of the clock than the time: a clock that is
    ahead makes runs older than they are.

    Args:
        port: the store; all its scopes are looked at.
        policy: what goes.
        clock: what the age is counted by.
        dry_run: say what would be done, and do nothing.

    Raises:
        StoreMisused: the policy contradicts itself, or the store cannot list its runs.
        StoreError: the store failed; what was done before is done.
    """
    later = policy.tombstones_older_than_seconds
    if policy.older_than_seconds < 0 or policy.keep_latest < 0:
        raise StoreMisused("ages and numbers of runs cannot be negative")
    if later is not None and later < policy.older_than_seconds:
        raise StoreMisused("a tombstone must be kept at least as long as the run's entries")
    now_ms = clock.now() * 1000
    async for key in each_scope(port, tenant=policy.tenant, user=policy.user):
        scope = _Pruning(port.scoped(Scope.of_key(key)), policy, now_ms, dry_run)
        try:
            async for pruned in scope.each():
                yield pruned._replace(scope=key)
        except OF_ONE_RUN as error:
            yield Pruned(key, getattr(error, "run_id", ""), "unreadable", error)


class _Pruning:
    """One scope."""

    def __init__(self, view: JournalPort, policy: Policy, now_ms: float, dry_run: bool) -> None:  # noqa: FBT001
        self._view = view
        self._policy = policy
        self._now_ms = now_ms
        self._dry_run = dry_run
        self._latest = 0

    async def each(self) -> AsyncIterator[Pruned]:
        """What becomes of each run, the one that began last first."""
        cursor, more = "", True
        while more:
            page, cursor = await self._view.list_runs(limit=LIST_RUNS, cursor=cursor)
            for listed in page:
                try:
                    yield await self._judged(listed)
                except RunInUse as error:
                    yield Pruned("", listed.run, "in_use", error)
                except OF_ONE_RUN as error:
                    yield Pruned("", listed.run, "unreadable", error)
            more = bool(cursor)

    async def _judged(self, listed: RunSummary) -> Pruned:
        verdict = await self._by_head(listed)
        if verdict is not None:
            return Pruned("", listed.run, verdict)
        return await self._by_entries(listed.run, updated_at=listed.summary.updated_at)

    async def _by_head(self, listed: RunSummary) -> Verdict | None:
        summary, view, run = listed.summary, self._view, listed.run
        if summary.status not in TERMINAL_STATUSES:
            return "open"
        age_seconds = (self._now_ms - summary.updated_at) / 1000
        head = await view.head(run)
        if head is None or head.summary is None or head.summary != summary:
            return "moved"
        if head.tombstone:
            limit = self._policy.tombstones_older_than_seconds
            if limit is None or age_seconds < limit:
                return "young"
            return "deleted" if self._dry_run or await view.delete_run(run) else "moved"
        self._latest += 1
        if self._latest <= self._policy.keep_latest:
            return "latest"
        if age_seconds < self._policy.older_than_seconds:
            return "young"
        return None

    async def _by_entries(self, run: str, *, updated_at: int) -> Pruned:
        state = await load(self._view, run)
        if state.end is None:
            return Pruned("", run, "open")
        if state.in_doubt and run not in self._policy.in_doubt:
            return Pruned("", run, "in_doubt", tools=state.in_doubt)
        return Pruned("", run, await self._entombed(run, updated_at=updated_at))

    async def _entombed(self, run: str, *, updated_at: int) -> Verdict:
        if self._dry_run or await self._view.entomb(run, updated_at=updated_at):
            return "entombed"
        head = await self._view.head(run)
        return "in_use" if head is not None and head.held else "moved"
