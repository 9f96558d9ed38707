"""The operations of a journal on a SQLite connection, inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentkit.core.contracts.errors import JournalDamaged
from agentkit.core.contracts.ports import (
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.types import Usage
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

if TYPE_CHECKING:
    import apsw

Value = str | int | bytes | None


class Appending(NamedTuple):
    """What one append brings; see `JournalPort.append`."""

    rows: Sequence[Row]
    after: int
    lease: Lease | None
    summary: Summary
    release: bool


class _Found(NamedTuple):
    number: int
    head: Head


class SqliteJournal:
    """Every method takes the connection first, then scope key and run id.

    Args:
        clock: what leases and epochs are judged by.
    """

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock
        self._sql = queries("sqlite")

    def acquire(
        self,
        db: apsw.Connection,
        scope: str,
        run: str,
        *,
        owner: str,
        ttl_seconds: float,
        supersede: int | None,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        found = self._find(db, scope, run)
        old = found.head if found else Head(run)
        if not rules.may_acquire(old, supersede):
            raise rules.in_use(run, old)
        last = old.epoch or db.execute(self._sql["forgotten_epoch"]).get
        epoch = rules.next_epoch(last, wall_ms=self._clock.wall_ms())
        now, ttl_ms = self._clock.elapsed_ms(), round(ttl_seconds * 1000)
        values: dict[str, Value] = {
            "scope": scope,
            "run": run,
            "epoch": epoch,
            "owner": owner,
            "boot": self._clock.boot,
            "expires_ms": now + ttl_ms,
        }
        db.execute(self._sql["claim" if found else "create_head"], values)
        head = msgspec.structs.replace(
            old,
            epoch=epoch,
            owner=owner,
            expires_in_seconds=ttl_ms / 1000,
            recoveries=old.recoveries + bool(old.owner),
        )
        return Lease(
            run=run,
            owner=owner,
            epoch=epoch,
            ttl_seconds=ttl_seconds,
            head=head,
            took_over=rules.took_over(old),
            scope=scope,
        )

    def renew(self, db: apsw.Connection, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """See `JournalPort.renew`."""
        renewals = {}
        for key, lease in leases.items():
            values: dict[str, Value] = {
                "scope": lease.scope,
                "run": lease.run,
                "owner": lease.owner,
                "epoch": lease.epoch,
                "boot": self._clock.boot,
                "expires_ms": self._clock.elapsed_ms() + round(lease.ttl_seconds * 1000),
            }
            seq = db.execute(self._sql["renew"], values).get
            if seq is not None:
                renewals[key] = Renewal(seq)
            else:
                head = self.head(db, lease.scope, lease.run)
                renewals[key] = Renewal(head.seq if head else 0, lost=True)
        return renewals

    def append(self, db: apsw.Connection, scope: str, run: str, new: Appending) -> Head:
        """See `JournalPort.append`. The usual case is one guarded update and the inserts."""
        rows, after, lease, summary, release = new
        place = (scope, run, after)
        values = (*_columns(summary), after + len(rows))
        if lease is None:
            guarded, values = self._sql["note"], (*values, rows[-1].check, *place)
        else:
            tip = rows[-1].check if rows else None
            guarded = self._sql["advance"]
            values = (*values, tip, release, *place, lease.epoch, lease.owner)
        moved = db.execute(guarded, values).get
        if moved is None:
            found = self._find(db, scope, run)
            if found or lease or after:
                return self._repeated(db, scope, run, new, found)
            self._create(db, scope, run)
            moved = db.execute(guarded, values).get
        number, seq, tip, epoch, owner, boot, expires_ms, started_at, claims = moved
        if started_at != summary.started_at:
            db.execute(self._sql["start"], {"started_at": summary.started_at, "number": number})
        if rows:
            self._insert(db, run, number, rows)
        return Head(
            run=run,
            seq=seq,
            check=tip,
            epoch=epoch,
            owner=owner,
            expires_in_seconds=self._left(owner, boot, expires_ms),
            recoveries=summary.recoveries + claims,
            summary=summary if seq else None,
        )

    def read(
        self, db: apsw.Connection, scope: str, run: str, *, after: int, limit: int
    ) -> list[Row]:
        """See `JournalPort.read`."""
        values = {"scope": scope, "run": run, "after": max(after, 0), "limit": max(limit, 0)}
        return [Row(*found) for found in db.execute(self._sql["entries"], values)]

    def head(self, db: apsw.Connection, scope: str, run: str) -> Head | None:
        """See `JournalPort.head`."""
        found = self._find(db, scope, run)
        return found.head if found else None

    def list_runs(
        self,
        db: apsw.Connection,
        scope: str,
        *,
        status: RunStatus | None,
        agent: str | None,
        limit: int,
        behind: tuple[int, str] | None,
    ) -> tuple[list[RunSummary], str]:
        """See `JournalPort.list_runs`."""
        size = max(limit, 0)
        behind_at, behind_run = behind or (None, None)
        values: dict[str, Value] = {
            "scope": scope,
            "status": status,
            "agent": agent,
            "limit": size + 1,
            "behind_at": behind_at,
            "behind_run": behind_run,
        }
        with _readable("a run in the list"):
            heads = [self._to_head(found) for found in db.execute(self._sql["page"], values)]
        page = [
            RunSummary(head.run, head.summary, head.seq, head.epoch, head.owner, head.held)
            for head in heads[:size]
            if head.summary is not None
        ]
        if not page or len(heads) <= size:
            return page, ""
        return page, rules.to_cursor(page[-1].summary.started_at, page[-1].run)

    def delete(self, db: apsw.Connection, scope: str, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        found = self._find(db, scope, run)
        if found is None:
            return False
        if found.head.held:
            raise rules.in_use(run, found.head)
        values = {"number": found.number}
        db.execute(self._sql["delete_entries"], values)
        db.execute(self._sql["delete_head"], values)
        db.execute(self._sql["forget_epoch"], {"epoch": found.head.epoch})
        return True

    def _repeated(
        self, db: apsw.Connection, scope: str, run: str, new: Appending, found: _Found | None
    ) -> Head:
        """The head, where the rows are there from an earlier attempt; else the refusal."""
        lease = new.lease
        if found is None or not self._is_there(db, scope, run, new, found.head):
            head = found.head if found else None
            raise rules.refusal(run, head=head, lease=lease, after=new.after)
        if not new.release or lease is None or not rules.owns(lease, found.head):
            return found.head
        db.execute(self._sql["release"], {"number": found.number})
        return msgspec.structs.replace(found.head, owner="", expires_in_seconds=0.0)

    def _is_there(
        self, db: apsw.Connection, scope: str, run: str, new: Appending, head: Head
    ) -> bool:
        if not new.rows:
            return rules.released_already(new.lease, head, new.rows)
        if head.seq <= new.after:
            return False
        return list(new.rows) == self.read(db, scope, run, after=new.after, limit=len(new.rows))

    def _find(self, db: apsw.Connection, scope: str, run: str) -> _Found | None:
        with _readable(run):
            found = db.execute(self._sql["head"], {"scope": scope, "run": run}).get
            return _Found(found[0], self._to_head(found)) if found else None

    def _create(self, db: apsw.Connection, scope: str, run: str) -> None:
        """A head for a run that begins with a note."""
        values: dict[str, Value] = {
            "scope": scope,
            "run": run,
            "epoch": 0,
            "owner": "",
            "boot": "",
            "expires_ms": 0,
        }
        db.execute(self._sql["create_head"], values)

    def _insert(self, db: apsw.Connection, run: str, number: int, rows: Sequence[Row]) -> None:
        base = number << 32
        before = db.total_changes()
        db.executemany(
            self._sql["insert_entry"], [(base + row.seq, row.body, row.check) for row in rows]
        )
        if db.total_changes() - before != len(rows):
            raise JournalDamaged(
                f"run {run!r} already holds an entry at {rows[0].seq} or behind it, where its head "
                f"says that it ends. Nothing was written. Restore the store from a backup.",
                run_id=run,
                seq=rows[0].seq,
            )

    def _left(self, owner: str, boot: str, expires_ms: int) -> float:
        """Seconds until the lease lapses; one of another boot has."""
        if not owner:
            return 0.0
        if boot != self._clock.boot:
            return -1.0
        return (expires_ms - self._clock.elapsed_ms()) / 1000

    def _to_head(self, found: Sequence[Any]) -> Head:
        (_, run, seq, tip, epoch, owner, boot, expires_ms, claims, status, agent, iteration) = (
            found[:12]
        )
        recoveries, *usage, started_at, updated_at, detail = found[12:]
        summary = Summary(
            status=status,
            agent=agent,
            iteration=iteration,
            usage=Usage(*usage),
            started_at=started_at,
            updated_at=updated_at,
            recoveries=recoveries,
            detail=detail,
        )
        return Head(
            run=run,
            seq=seq,
            check=tip,
            epoch=epoch,
            owner=owner,
            expires_in_seconds=self._left(owner, boot, expires_ms),
            recoveries=recoveries + claims,
            summary=summary if seq else None,
        )


@contextmanager
def _readable(run: str) -> Iterator[None]:
    """A head whose bytes are no text where a text should be, or no number, is damaged."""
    try:
        yield
    except (UnicodeDecodeError, TypeError) as exc:
        raise JournalDamaged(
            f"the head of run {run!r} is damaged: {exc}. Nothing was written. Restore the store "
            f"from a backup.",
            run_id=run,
            seq=0,
        ) from exc


def _columns(summary: Summary) -> tuple[Value, ...]:
    usage = summary.usage
    return (
        summary.status,
        summary.agent,
        summary.iteration,
        summary.recoveries,
        usage.input_tokens,
        usage.output_tokens,
        usage.requests,
        usage.unknown,
        usage.cached_tokens,
        summary.updated_at,
        summary.detail,
    )
