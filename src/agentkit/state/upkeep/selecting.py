"""Which runs of a store are meant, over all its scopes, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, NamedTuple, TypeAlias

from agentkit.core.contracts.errors import (
    AgentkitError,
    JournalTooNew,
    RunError,
    RunLocked,
    RunNotFound,
    StoreDamaged,
    StoreFailedOver,
    StoreMisused,
)
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope

__all__ = [
    "LIST_RUNS",
    "OF_ONE_RUN",
    "Found",
    "Moved",
    "Outcome",
    "Selection",
    "each_scope",
    "left_out",
    "selected",
]

LIST_RUNS = 1000
"""Runs that are listed at a time."""

OF_ONE_RUN = (RunError, JournalTooNew, StoreDamaged, StoreFailedOver, RunLocked)
"""Errors that keep one run from being moved or pruned, while the others go on."""

Outcome: TypeAlias = Literal["copied", "there", "left_out"]


class Selection(NamedTuple):
    """Which runs are meant.

    Args:
        runs: these ids, in whichever of the scopes they are; empty for all.
        tenant: the scopes of this tenant alone; `None` for all.
        user: the scopes of this user alone; `None` for all.
    """

    runs: tuple[str, ...] = ()
    tenant: str | None = None
    user: str | None = None


class Moved(NamedTuple):
    """What became of one run.

    Args:
        scope: key of its scope.
        run: its id.
        outcome: `copied`, `there` (the same was there already) or `left_out`.
        entries: how many.
        ended: whether the run had ended; one that has not can be carried on in either place.
        tombstone: its entries were gone before.
        error: why it was left out.
    """

    scope: str
    run: str
    outcome: Outcome
    entries: int = 0
    ended: bool = True
    tombstone: bool = False
    error: AgentkitError | None = None


class Found(NamedTuple):
    """A run's place: key of its scope, the store looking at that scope, and its id."""

    scope: str
    view: JournalPort
    run: str


def left_out(scope: str, run: str, error: AgentkitError) -> Moved:
    """A run that was not moved."""
    return Moved(scope, run, "left_out", error=error)


async def selected(port: JournalPort, selection: Selection) -> AsyncIterator[Found | Moved]:
    """The runs of the selection, in order of scopes, then the newest first. Where runs were named
    and are nowhere, or a scope cannot be listed, that is told in their place.
    """
    seen: set[str] = set()
    async for scope in _scopes(port, selection):
        view = port.scoped(Scope.of_key(scope))
        try:
            async for run in _runs(view, selection):
                seen.add(run) if selection.runs else None
                yield Found(scope, view, run)
        except OF_ONE_RUN as error:
            yield left_out(scope, getattr(error, "run_id", ""), error)
    for run in selection.runs:
        if run not in seen:
            every = selection.tenant is None and selection.user is None
            where = "any scope" if every else "a scope of this tenant or user"
            message = f"run {run!r} does not exist in {where} of {port.location}"
            yield left_out("", run, RunNotFound(message, run_id=run))


async def each_scope(
    port: JournalPort, *, tenant: str | None, user: str | None = None
) -> AsyncIterator[str]:
    """Keys of the scopes that hold runs, of one tenant and user or of all."""
    last: str | None = None
    while page := await port.scopes(after=last):
        for key in page:
            scope = Scope.of_key(key)
            if tenant in {None, scope.tenant} and user in {None, scope.user}:
                yield key
        last = page[-1]


async def _scopes(port: JournalPort, selection: Selection) -> AsyncIterator[str]:
    try:
        async for key in each_scope(port, tenant=selection.tenant, user=selection.user):
            yield key
    except StoreMisused:
        # A five-method store cannot list; runs that are named it can find.
        if not selection.runs:
            raise
        yield Scope(selection.tenant or "", selection.user or "").key


async def _runs(view: JournalPort, selection: Selection) -> AsyncIterator[str]:
    for run in selection.runs:
        head = await view.head(run)
        if head is not None and head.seq:
            yield run
    cursor, more = "", not selection.runs
    while more:
        page, cursor = await view.list_runs(limit=LIST_RUNS, cursor=cursor)
        for one in page:
            yield one.run
        more = bool(cursor)
