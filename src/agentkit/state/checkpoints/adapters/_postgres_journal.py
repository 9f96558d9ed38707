"""The operations of a journal on Postgres, each of them one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentkit.core.contracts.errors import JournalDamaged, StoreError
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._lanes import Outcome
from agentkit.state.checkpoints.adapters._postgres_clock import ServerClock
from agentkit.state.checkpoints.adapters._postgres_errors import is_taken
from agentkit.state.checkpoints.adapters._postgres_heads import head_of, identity_of, numbers_of
from agentkit.state.checkpoints.adapters._postgres_limits import Limit
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db, execute
from agentkit.state.checkpoints.adapters._queries import queries

LOCK_SECONDS = 5.0
"""How long an operation waits for a run that another session has locked; less than a round trip
may take.
"""

_NOTE = -1


class Appending(NamedTuple):
    """What one append brings; see `JournalPort.append`."""

    scope: str
    run: str
    rows: Sequence[Row]
    after: int
    lease: Lease | None
    summary: Summary
    release: bool

    @property
    def size(self) -> int:
        """Bytes that are sent, about."""
        return sum(len(row.body) for row in self.rows) + len(self.summary.detail)


class PostgresJournal:
    """Every method takes the connection first, then scope key and run id.

    Args:
        place: where the tables are.
        clock: what leases and epochs are judged by.
        limit: how long an operation may take, but for a read of entries: that holds nothing, and
            they may be many.
    """

    def __init__(self, place: Place, clock: ServerClock, limit: Limit) -> None:
        self._clock = clock
        self._limit = limit
        self._sql = {name: place.sql(text) for name, text in queries("postgres").items()}
        self._wait_ms = round(LOCK_SECONDS * 1000)

    def acquire(
        self,
        db: Db,
        scope: str,
        run: str,
        *,
        owner: str,
        ttl_seconds: float,
        token: str,
        supersede: int | None,
        above: int,
    ) -> Lease:
        """See `JournalPort.acquire`; a request that is repeated under its token is one."""
        ((verdict, took_over, *row),) = self._limit.execute(
            db,
            self._sql["acquire"],
            (
                identity_of(scope, run),
                identity_of(scope),
                scope,
                run,
                owner,
                round(ttl_seconds * 1000),
                token,
                supersede,
                above,
                self._wait_ms,
                self._clock.at_ms(),
                self._clock.wall_ms(),
            ),
        )
        head = head_of(row)
        if verdict == "held":
            raise rules.in_use(run, head)
        return Lease(
            run=run,
            owner=owner,
            epoch=head.epoch,
            ttl_seconds=ttl_seconds,
            head=head,
            took_over=took_over,
            scope=scope,
        )

    def renew(
        self, db: Db, leases: Mapping[str, Lease], *, wait_seconds: float
    ) -> dict[str, Renewal]:
        """See `JournalPort.renew`; where nothing is waited runs that are locked are left out."""
        wait_ms = max(round(wait_seconds * 1000), 0)
        given = list(leases.items())
        columns = (
            [identity_of(lease.scope, lease.run) for _, lease in given],
            [lease.scope for _, lease in given],
            [lease.run for _, lease in given],
            [lease.owner for _, lease in given],
            [lease.epoch for _, lease in given],
            [round(lease.ttl_seconds * 1000) for _, lease in given],
        )
        found = self._limit.execute(
            db,
            self._sql["renew"],
            (*columns, wait_ms, self._clock.at_ms()),
        )
        return {
            given[place - 1][0]: Renewal(seq, lost=verdict == "lost")
            for place, verdict, seq in found
            if verdict != "busy"
        }

    def append(self, db: Db, group: Sequence[Appending]) -> list[Outcome]:
        """See `JournalPort.append`, for several at once: one round trip, one transaction, and the
        head or the refusal of each.
        """
        found = self._limit.execute(
            db, self._sql["append"], self._columns(group), sent_bytes=bytes_of(group)
        )
        return [
            self._outcome(new, verdict, row)
            for new, (_, verdict, *row) in zip(group, found, strict=True)
        ]

    def read(self, db: Db, scope: str, run: str, *, after: int, limit: int) -> list[Row]:
        """See `JournalPort.read`."""
        values = {**_names(scope, run), "after": max(after, 0), "limit": max(limit, 0)}
        return [Row(*row) for row in execute(db, self._sql["entries"], values)]

    def head(self, db: Db, scope: str, run: str, *, hold: bool = False) -> Head | None:
        """See `JournalPort.head`; with `hold` it is kept from others until the transaction ends."""
        values = {**_names(scope, run), "at_ms": self._clock.at_ms()}
        found = self._limit.execute(db, self._sql["hold" if hold else "head"], values)
        return head_of(found[0]) if found else None

    def delete(self, db: Db, scope: str, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        values = (identity_of(scope, run), scope, run, self._wait_ms, self._clock.at_ms())
        for verdict, *row in self._limit.execute(db, self._sql["delete"], values):
            if verdict == "held":
                raise rules.in_use(run, head_of(row))
            return True
        return False

    def entomb(self, db: Db, scope: str, run: str, *, updated_at: int) -> bool:
        """See `JournalPort.entomb`."""
        at_ms = self._clock.at_ms()
        values = (identity_of(scope, run), scope, run, updated_at, self._wait_ms, at_ms)
        ((done,),) = self._limit.execute(db, self._sql["entomb"], values)
        return bool(done)

    def _columns(self, group: Sequence[Appending]) -> tuple[object, ...]:
        # An array without elements has no type, hence what stands behind the last append.
        rows = [row for new in group for row in new.rows]
        return (
            [identity_of(new.scope, new.run) for new in group],
            [identity_of(new.scope) for new in group],
            [new.scope for new in group],
            [new.run for new in group],
            [new.after for new in group],
            [new.lease.epoch if new.lease else _NOTE for new in group],
            [new.lease.owner if new.lease else "" for new in group],
            [new.release for new in group],
            [new.summary.status for new in group],
            [new.summary.agent for new in group],
            [number for new in group for number in numbers_of(new.summary)],
            [new.summary.detail for new in group],
            [len(new.rows) for new in group],
            [*(row.body for row in rows), b""],
            [*(row.check for row in rows), b""],
            self._wait_ms,
            self._clock.at_ms(),
        )

    def _outcome(self, new: Appending, verdict: str, row: Sequence[Any]) -> Outcome:
        there = row[1] is not None
        if verdict == "new":
            return Outcome(head_of(row, new.summary))
        head = head_of(row) if there else None
        if verdict == "kept":
            return Outcome(head)
        return Outcome(error=rules.refusal(new.run, head=head, lease=new.lease, after=new.after))


def bytes_of(group: Sequence[Appending]) -> int:
    """What these appends bring, about."""
    return sum(new.size for new in group)


def append_error(new: Appending, error: StoreError) -> Exception:
    """What the error of an append that was sent alone means."""
    if not is_taken(error):
        return error
    damaged = JournalDamaged(
        f"run {new.run!r} already holds an entry at {new.after + 1} or behind it, where its head "
        f"says that it ends. Nothing was written. Restore the store from a backup.",
        run_id=new.run,
        seq=new.after + 1,
    )
    damaged.__cause__ = error
    return damaged


def _names(scope: str, run: str) -> dict[str, object]:
    return {"identity": identity_of(scope, run), "scope": scope, "run": run}
