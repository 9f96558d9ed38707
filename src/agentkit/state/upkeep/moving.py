"""Runs from one store into another, into a file, and out of one: stored bytes, never re-encoded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from agentkit.core.contracts.errors import (
    AgentkitError,
    ExportDamaged,
    InvalidId,
    StoreMisused,
)
from agentkit.core.contracts.heads import Head
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Scope
from agentkit.state.journal.codec import damaged, decode_rows
from agentkit.state.journal.fold import RunState
from agentkit.state.upkeep.lines import (
    EXPORT_FORMAT,
    ExportedRun,
    ExportReader,
    ExportWriter,
    HeaderLine,
    RunLine,
    damaged_at,
)
from agentkit.state.upkeep.selecting import OF_ONE_RUN, Moved, Selection, left_out, selected
from agentkit.state.upkeep.whole import WholeRun, held, put

__all__ = ["copy_runs", "export_runs", "header_now", "import_runs"]

_EVERY = Selection()
_UNFIT = (InvalidId, StoreMisused)
"""Errors of a store that cannot keep a name or a value that another one can."""


async def copy_runs(
    source: JournalPort,
    destination: JournalPort,
    selection: Selection = _EVERY,
    *,
    clock: ClockPort,
) -> AsyncIterator[Moved]:
    """Copy runs, and read each back; says what became of each as soon as that is known.

    A run that has not ended is held while it is copied, and both stores have it afterwards: carry
    it on in one of them only. Whatever keeps one run from being copied leaves out that run alone.
    Copying again is harmless: what is there already stays. Values of `ToolContext.once` belong to
    no run and are not copied.

    Raises:
        StoreMisused: both are the same store, or the source cannot list its runs.
        JournalTooNew: a newer release made one of the stores; nothing was copied.
        StoreError: a store failed; what was copied is whole.
    """
    if source.location == destination.location:
        raise StoreMisused(f"source and destination are the same store, {source.location}")
    await _asked(destination)
    async for found in selected(source, selection):
        if isinstance(found, Moved):
            yield found
            continue
        try:
            async with held(found.view, found.run, clock=clock) as whole:
                target = destination.scoped(Scope.of_key(found.scope))
                outcome = await put(target, whole, clock=clock)
        except (*OF_ONE_RUN, *_UNFIT) as error:
            yield left_out(found.scope, found.run, error)
        else:
            yield _moved(found.scope, whole)._replace(outcome=outcome)


def header_now(port: JournalPort, *, clock: ClockPort) -> HeaderLine:
    """The first line of an export of this store that is made now."""
    try:
        release = version("arc-agentkit")
    except PackageNotFoundError:
        release = ""
    return HeaderLine(EXPORT_FORMAT, release, int(clock.now() * 1000), port.location)


async def export_runs(
    source: JournalPort,
    write: Callable[[bytes], object],
    selection: Selection = _EVERY,
    *,
    header: HeaderLine,
    clock: ClockPort,
) -> AsyncIterator[Moved]:
    """Write runs as lines of JSON, see `lines`; says what became of each. As `copy_runs` else.

    Args:
        source: the store.
        write: gets the lines, each with its line end.
        selection: which runs.
        header: see `header_now`.
        clock: for what is recorded of a takeover.

    Raises:
        StoreMisused: the source cannot list its runs.
        StoreError: the store failed; what was written has no end and is told to be cut off.
    """
    lines = ExportWriter(header)
    write(lines.header)
    async for found in selected(source, selection):
        if isinstance(found, Moved):
            yield found
            continue
        try:
            async with held(found.view, found.run, clock=clock) as whole:
                head = _run_line(lines.runs + 1, found.scope, whole)
                for line in lines.run(head, whole.rows):
                    write(line)
        except OF_ONE_RUN as error:
            yield left_out(found.scope, found.run, error)
        else:
            yield _moved(found.scope, whole)
    write(lines.end())


async def import_runs(
    lines: Iterable[bytes], destination: JournalPort, *, clock: ClockPort
) -> AsyncIterator[Moved]:
    """Put the runs of an export into a store; says what became of each.

    Where the file is not as it was written, the runs that are intact go in all the same, and each
    place is told as one that was left out.

    Args:
        lines: of the file, each with its line end.
        destination: the store.
        clock: for waits where the store fails.

    Raises:
        ExportDamaged: it is no export, or its first line is damaged.
        JournalTooNew: a newer release wrote the file, or made the store.
        StoreError: the store failed; what was imported is whole.
    """
    reader = ExportReader(lines)
    await _asked(destination)
    for found in reader:
        if isinstance(found, ExportDamaged):
            yield left_out("", found.run_id, found)
            continue
        head = found.head
        try:
            whole = _whole(found)
            view = destination.scoped(Scope.of_key(head.scope))
            outcome = await put(view, whole, clock=clock)
        except (*OF_ONE_RUN, *_UNFIT, ExportDamaged) as error:
            yield left_out(head.scope, head.run, error)
        else:
            yield _moved(head.scope, whole)._replace(outcome=outcome)


async def _asked(destination: JournalPort) -> None:
    """See that the store answers, so that one that takes nothing refuses once and not every run."""
    await destination.head("copy")


def _moved(scope: str, whole: WholeRun) -> Moved:
    return Moved(
        scope,
        whole.run,
        "copied",
        entries=len(whole.rows),
        ended=whole.ended,
        tombstone=whole.tombstone,
    )


def _run_line(number: int, scope: str, whole: WholeRun) -> RunLine:
    return RunLine(
        number,
        scope,
        whole.run,
        whole.status,
        whole.summary.agent,
        entries=len(whole.rows),
        epoch=whole.epoch,
        check=whole.check.hex(),
        tombstone=whole.summary if whole.tombstone else None,
    )


def _whole(found: ExportedRun) -> WholeRun:
    """The run of a file, checked as one that is read from a store.

    Raises:
        ExportDamaged: its names cannot be those of a run.
        JournalDamaged, JournalTooNew: see `codec.decode_rows`.
    """
    head, rows = found.head, found.rows
    try:
        check_id(head.run)
        named = Scope.of_key(head.scope).key == head.scope
    except AgentkitError as error:
        raise damaged_at(found.line, str(error), run_id=head.run) from error
    if not named:
        raise damaged_at(found.line, f"{head.scope!r} is no key of a scope", run_id=head.run)
    if head.tombstone is not None:
        ended = Head(head.run, seq=1, epoch=head.epoch, summary=head.tombstone)
        try:
            state = RunState.unread(ended)
        except msgspec.MsgspecError as error:
            raise damaged_at(found.line, "its result is unreadable", run_id=head.run) from error
        if state.end is None or rows:
            raise damaged_at(found.line, "this is no tombstone of a run", run_id=head.run)
        return WholeRun(head.run, (), head.epoch, state.status, head.tombstone, tombstone=True)
    state = RunState(head.run)
    try:
        for entry, check in decode_rows(rows, after=0, before=b"", run_id=head.run):
            state.apply(entry, check)
    except LookupError as error:  # intact, and forged: no release writes what speaks of no call
        what = "its entries contradict each other"
        raise damaged_at(found.line, what, run_id=head.run) from error
    if not rows or state.check.hex() != head.check:
        raise damaged(head.run, len(rows), "its checksum is not the one of the run's line")
    return WholeRun(head.run, rows, state.epoch, state.status, state.summary())
