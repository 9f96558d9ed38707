"""Operations on Postgres in groups: appends of several runs together, the others each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.heads import Head
from agentkit.state.checkpoints.adapters._lanes import LanePort, Outcome, Seat, Serve
from agentkit.state.checkpoints.adapters._postgres_errors import is_own
from agentkit.state.checkpoints.adapters._postgres_journal import (
    Appending,
    PostgresJournal,
    append_error,
    bytes_of,
)
from agentkit.state.checkpoints.adapters._postgres_limits import more_seconds
from agentkit.state.checkpoints.adapters._postgres_session import Session

MAX_STATEMENT_BYTES = 33_554_432
"""What the appends of one statement may carry; one append may be larger."""

Work: TypeAlias = Callable[[Session], object]
PostgresLane: TypeAlias = LanePort[Session]
MakeLane: TypeAlias = "Callable[[Seat[Session], Serve[Session], str], PostgresLane]"


class AppendWork:
    """An append that may share a statement with others.

    Args:
        journal: appends.
        new: what.
    """

    def __init__(self, journal: PostgresJournal, new: Appending) -> None:
        self.journal = journal
        self.new = new

    def __call__(self, session: Session) -> Head:
        """Append it alone."""
        try:
            (outcome,) = append_all(session, self.journal, [self.new])
        except StoreError as error:
            raise append_error(self.new, error) from error.__cause__
        if outcome.error is not None:
            raise outcome.error
        return cast("Head", outcome.value)


def append_all(
    session: Session, journal: PostgresJournal, group: Sequence[Appending]
) -> list[Outcome]:
    """One round trip; sent again where the connection broke, as rows that are there are found."""
    more = more_seconds(bytes_of(group))
    return session.run(lambda db: journal.append(db, group), again=True, more_seconds=more)


def serve_group(session: Session, works: Sequence[Work]) -> list[Outcome]:
    """Run operations: all appends in as few statements as their size allows, then the others.

    An operation that is refused disturbs nobody. Once the connection is gone and there is no other
    to be had, what is left fails too.
    """
    outcomes: dict[int, Outcome] = {}
    appends = [(at, work) for at, work in enumerate(works) if isinstance(work, AppendWork)]
    for batch in _batches(appends):
        outcomes.update(_append(session, batch, outcomes))
    for at, work in enumerate(works):
        if at not in outcomes:
            outcomes[at] = _outcome(session, work, outcomes)
    return [outcomes[at] for at in range(len(works))]


def _append(
    session: Session, batch: Sequence[tuple[int, AppendWork]], before: Mapping[int, Outcome]
) -> dict[int, Outcome]:
    """The outcomes of one statement's appends; one by one where one of them spoils it for all."""
    failed = _gone(session, before)
    if len(batch) > 1 and failed is None:
        group = [work.new for _, work in batch]
        try:
            found = append_all(session, batch[0][1].journal, group)
            return dict(zip((at for at, _ in batch), found, strict=True))
        except StoreError as error:
            failed = None if is_own(error) else error
    if failed is not None:
        return {at: Outcome(error=_again(failed)) for at, _ in batch}
    settled: dict[int, Outcome] = {}
    for at, work in batch:
        settled[at] = _outcome(session, work, settled)
    return settled


def _outcome(session: Session, work: Work, before: Mapping[int, Outcome]) -> Outcome:
    failed = _gone(session, before)
    if failed is not None:
        return Outcome(error=_again(failed))
    try:
        return Outcome(work(session))
    except Exception as exc:  # noqa: BLE001 (whoever awaits the operation gets it)
        return Outcome(error=exc)


def _gone(session: Session, before: Mapping[int, Outcome]) -> StoreError | None:
    """Why an earlier operation failed, if there is no connection any more."""
    if session.connected:
        return None
    return next((one.error for one in before.values() if isinstance(one.error, StoreError)), None)


def _batches(
    appends: Sequence[tuple[int, AppendWork]],
) -> Iterator[list[tuple[int, AppendWork]]]:
    batch: list[tuple[int, AppendWork]] = []
    size = 0
    for at, work in appends:
        if batch and size + work.new.size > MAX_STATEMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((at, work))
        size += work.new.size
    if batch:
        yield batch


def _again(error: StoreError) -> StoreError:
    """The same error for one more waiter: an exception that is raised twice mixes its traces."""
    again = type(error)(*error.args)
    again.__cause__ = error.__cause__
    return again
