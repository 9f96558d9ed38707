"""The operations of a journal on a SQLite connection, inside a transaction of the caller."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentkit.core.contracts.errors import JournalDamaged, StoreDamaged
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_heads import (
    EMPTY,
    UNHELD,
    Found,
    LeaseColumns,
    Readable,
    Value,
    Written,
    check_lease,
    found_in,
    head_damaged,
    head_of,
    identity_of,
    lease_in,
    lease_seal,
    written_by,
)
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

if TYPE_CHECKING:
    import apsw

_COPIES = 2
_MOST_RUNS = 2**31 - 1

_log = logging.getLogger("agentkit.state")


class Appending(NamedTuple):
    """What one append brings; see `JournalPort.append`."""

    rows: Sequence[Row]
    after: int
    lease: Lease | None
    summary: Summary
    release: bool


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
        above: int,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        found = self._find(db, scope, run)
        old = self._head(run, *found[1:]) if found else Head(run)
        if not rules.may_acquire(old, supersede):
            raise rules.in_use(run, old)
        last = old.epoch or self._forgotten_epoch(db)
        epoch = rules.next_epoch(last, wall_ms=self._clock.wall_ms(), above=above)
        now, ttl_ms = self._clock.elapsed_ms(), round(ttl_seconds * 1000)
        taken = LeaseColumns(epoch, owner, self._clock.boot, now + ttl_ms)
        if found:
            self._claim(db, scope, run, found, taken)
        else:
            self._create(db, scope, run, taken)
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
        return {key: self._renewed(db, lease) for key, lease in leases.items()}

    def append(self, db: apsw.Connection, scope: str, run: str, new: Appending) -> Head:
        """See `JournalPort.append`. The usual case is one guarded update and the inserts."""
        if new.lease is None:
            return self._note(db, scope, run, new)
        return self._advance(db, scope, run, new, new.lease)

    def read(
        self, db: apsw.Connection, scope: str, run: str, *, after: int, limit: int
    ) -> list[Row]:
        """See `JournalPort.read`."""
        values: dict[str, Value] = {
            "scope": scope,
            "run": run,
            "identity": identity_of(scope, run),
            "after": max(after, 0),
            "limit": max(limit, 0),
        }
        rows = [Row(*found) for found in db.execute(self._sql["entries"], values)]
        if not rows:
            self._find(db, scope, run)
        return rows

    def head(self, db: apsw.Connection, scope: str, run: str) -> Head | None:
        """See `JournalPort.head`."""
        found = self._find(db, scope, run)
        return self._head(run, *found[1:]) if found else None

    def delete(self, db: apsw.Connection, scope: str, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        row = self._row(db, scope, run)
        if row is None:
            return False
        number, lease = row[0], lease_in(scope, run, row)
        left = self._left(lease)
        if left > 0:
            head = Head(run, epoch=lease.epoch, owner=lease.owner, expires_in_seconds=left)
            raise rules.in_use(run, head)
        db.execute(self._sql["delete_entries"], {"number": number})
        db.execute(self._sql["delete_head"], {"number": number})
        db.execute(self._sql["forget_epoch"], {"epoch": lease.epoch})
        return True

    def entomb(self, db: apsw.Connection, scope: str, run: str, *, updated_at: int) -> bool:
        """See `JournalPort.entomb`."""
        found = self._find(db, scope, run)
        if not found or not rules.may_entomb(self._head(run, *found[1:]), updated_at=updated_at):
            return False
        seal = found.written._replace(tip=b"").seal(scope, run)
        db.execute(self._sql["delete_entries"], {"number": found.number})
        db.execute(self._sql["entomb"], {"number": found.number, "seal": seal})
        return True

    def _advance(
        self, db: apsw.Connection, scope: str, run: str, new: Appending, lease: Lease
    ) -> Head:
        """The usual append: one guarded update and the inserts."""
        if new.rows:
            tip = new.rows[-1].check
        else:
            found = self._find(db, scope, run)
            tip = found.written.tip if found else b""
        written = written_by(new.summary, seq=new.after + len(new.rows), tip=tip, claims=0)
        place = (scope, run, new.after, lease.epoch, lease.owner, identity_of(scope, run))
        values = (*written, written.seal(scope, run), written.filed(run), *place)
        with Readable(run):
            moved = db.execute(self._sql["advance"], values).get
        if moved is None:
            return self._repeated(db, scope, run, new, self._find(db, scope, run))
        number, *expiry, seal = moved
        held = LeaseColumns(lease.epoch, lease.owner, *expiry)
        check_lease(scope, run, held, seal)
        self._insert(db, run, number, new.rows)
        if new.release:
            held = self._release(db, scope, run, number, held.epoch)
        return self._head(run, held, written, new.summary)

    def _note(self, db: apsw.Connection, scope: str, run: str, new: Appending) -> Head:
        """An append on the head as it was written, since a note goes by its status too."""
        found = self._find(db, scope, run)
        if found is None and new.after:
            return self._repeated(db, scope, run, new, None)
        if found is None:
            self._create(db, scope, run, UNHELD)
        claims, lease = (found.written.claims, found.lease) if found else (0, UNHELD)
        written = written_by(
            new.summary, seq=new.rows[-1].seq, tip=new.rows[-1].check, claims=claims
        )
        seals = (written.seal(scope, run), written.filed(run))
        number = db.execute(self._sql["note"], (*written, *seals, scope, run, new.after)).get
        if number is None:
            return self._repeated(db, scope, run, new, found)
        self._insert(db, run, number, new.rows)
        return self._head(run, lease, written, new.summary)

    def _repeated(
        self, db: apsw.Connection, scope: str, run: str, new: Appending, found: Found | None
    ) -> Head:
        """The head, where the rows are there from an earlier attempt; else the refusal."""
        lease = new.lease
        head = self._head(run, *found[1:]) if found else None
        if found is None or head is None or not self._is_there(db, scope, run, new, head):
            raise rules.refusal(run, head=head, lease=lease, after=new.after)
        if not new.release or lease is None or not rules.owns(lease, head):
            return head
        self._release(db, scope, run, found.number, found.lease.epoch)
        return msgspec.structs.replace(head, owner="", expires_in_seconds=0.0)

    def _is_there(
        self, db: apsw.Connection, scope: str, run: str, new: Appending, head: Head
    ) -> bool:
        if not new.rows:
            return rules.released_already(new.lease, head, new.rows)
        if head.seq <= new.after:
            return False
        return list(new.rows) == self.read(db, scope, run, after=new.after, limit=len(new.rows))

    def head_in(self, scope: str, run: str, row: Sequence[Any]) -> Head:
        """The head that stands in a row with the columns of the statement `head`."""
        return self._head(run, *found_in(scope, run, row)[1:])

    def _find(self, db: apsw.Connection, scope: str, run: str) -> Found | None:
        row = self._row(db, scope, run)
        return found_in(scope, run, row) if row else None

    def _row(self, db: apsw.Connection, scope: str, run: str) -> tuple[Any, ...] | None:
        with Readable(run):
            row: tuple[Any, ...] | None = db.execute(
                self._sql["head"], {"scope": scope, "run": run}
            ).get
        identity = {"identity": identity_of(scope, run)}
        if row is None and db.execute(self._sql["hidden"], identity).get is not None:
            raise head_damaged(run, "it is there, but its name does not find it")
        return row

    def _forgotten_epoch(self, db: apsw.Connection) -> int:
        copies, epoch, other = db.execute(self._sql["forgotten_epoch"]).get
        if copies != _COPIES or epoch != other or not isinstance(epoch, int):
            raise StoreDamaged(
                "the highest epoch of deleted runs, which the store keeps twice, is damaged. "
                "Nothing was written. Restore the store from a backup."
            )
        return epoch

    def _create(self, db: apsw.Connection, scope: str, run: str, lease: LeaseColumns) -> None:
        """A head without entries."""
        values: dict[str, Value] = {
            "scope": scope,
            "run": run,
            "identity": identity_of(scope, run),
            **lease._asdict(),
            "lease_seal": lease_seal(scope, run, *lease),
            "seal": EMPTY.seal(scope, run),
            "filed": EMPTY.filed(run),
        }
        number = db.execute(self._sql["create_head"], values).get
        if number is None:
            raise head_damaged(run, "it is there, but was not found")
        if not 0 < number <= _MOST_RUNS:
            raise StoreDamaged(
                f"run {run!r} would be number {number} of the store, which has not that many. "
                f"Nothing was written. Restore the store from a backup."
            )

    def _claim(
        self, db: apsw.Connection, scope: str, run: str, found: Found, lease: LeaseColumns
    ) -> None:
        written = found.written._replace(claims=found.written.claims + bool(found.lease.owner))
        values: dict[str, Value] = {
            "number": found.number,
            "identity": identity_of(scope, run),
            **lease._asdict(),
            "lease_seal": lease_seal(scope, run, *lease),
            "claims": written.claims,
            "seal": written.seal(scope, run),
        }
        if db.execute(self._sql["claim"], values).get is None:
            raise head_damaged(run, "it is there, but not where it was found")

    def _renewed(self, db: apsw.Connection, lease: Lease) -> Renewal:
        scope, run = lease.scope, lease.run
        until_ms = self._clock.elapsed_ms() + round(lease.ttl_seconds * 1000)
        held = LeaseColumns(lease.epoch, lease.owner, self._clock.boot, until_ms)
        values: dict[str, Value] = {
            "scope": scope,
            "run": run,
            **held._asdict(),
            "lease_seal": lease_seal(scope, run, *held),
        }
        try:
            found = self._find(db, scope, run)
        except JournalDamaged as damage:
            # The others' leases must not lapse for it; whoever uses this run next is told.
            _log.error("the lease of run %r is given up: %s", run, damage)
            return Renewal(0, lost=True)
        seq = db.execute(self._sql["renew"], values).get
        if seq is not None:
            return Renewal(seq)
        return Renewal(found.written.seq if found else 0, lost=True)

    def _release(
        self, db: apsw.Connection, scope: str, run: str, number: int, epoch: int
    ) -> LeaseColumns:
        lease = LeaseColumns(epoch)
        seal = lease_seal(scope, run, *lease)
        db.execute(self._sql["release"], {"number": number, "lease_seal": seal})
        return lease

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

    def _left(self, lease: LeaseColumns) -> float:
        """Seconds until the lease lapses; one of another boot has."""
        if not lease.owner:
            return 0.0
        if lease.boot != self._clock.boot:
            return -1.0
        return (lease.expires_ms - self._clock.elapsed_ms()) / 1000

    def _head(
        self, run: str, lease: LeaseColumns, written: Written, summary: Summary | None = None
    ) -> Head:
        left_seconds = self._left(lease)
        return head_of(run, lease, written, left_seconds=left_seconds, summary=summary)
