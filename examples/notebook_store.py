"""A full store over the standard library: what `JournalPort` promises, in one file to start from.

`python -m agentkit.testing.conformance examples.notebook_store:NotebookHarness` checks it. It keeps
no values and has no transactions for tools; both are optional.
"""

import asyncio
import copy
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from agentkit.core.contracts import errors
from agentkit.core.contracts.heads import (
    TERMINAL_STATUSES,
    Claimable,
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.slots_mixin import SlotMethods
from agentkit.testing.conformance import Harness

T = TypeVar("T")
MAX_ENTRY_BYTES = 16 * 1024 * 1024
LONGEST_SECONDS = 100 * 366 * 86400.0
SHORTEST_SECONDS = 0.001
MOST = 2**53
TABLES = """
CREATE TABLE IF NOT EXISTS head (scope TEXT, run TEXT, kept BLOB, PRIMARY KEY (scope, run));
CREATE TABLE IF NOT EXISTS entry (
    scope TEXT, run TEXT, seq INTEGER, body BLOB, checksum BLOB, PRIMARY KEY (scope, run, seq)
);
CREATE TABLE IF NOT EXISTS forgotten (epoch INTEGER);
"""


class Kept(msgspec.Struct, frozen=True):
    """A head, when its lease lapses, and how often it was claimed since its holder appended."""

    head: Head
    expires_ms: int = 0
    claims: int = 0


class NotebookStore(SlotMethods):
    """Heads and entries in a file. Each operation is one transaction: it looks at the head,
    decides, and writes, and nobody else writes meanwhile.
    """

    def __init__(self, path: Path, clock: ClockPort | None = None) -> None:
        self._path = path.resolve()
        self._clock = clock or SystemClock()
        self._scope = ""

    @property
    def location(self) -> str:
        """See `JournalPort.location`."""
        return f"notebook:{self._path}"

    def scoped(self, scope: Scope) -> "NotebookStore":
        """See `JournalPort.scoped`."""
        view = copy.copy(self)
        view._scope = scope.key  # noqa: SLF001 - a copy of our own
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
        """See `JournalPort.acquire`."""
        check_id(run)
        check_id(owner, what="owner")
        if not ttl_seconds >= SHORTEST_SECONDS or max(above, supersede or 0) > MOST:
            raise errors.StoreMisused("a lease lasts a millisecond or more; epochs have 53 bits")
        ttl_seconds = min(ttl_seconds, LONGEST_SECONDS)

        def work(db: sqlite3.Connection) -> Lease:
            kept = self._find(db, run) or Kept(Head(run))
            old = self._now(kept)
            if old.held and old.epoch != supersede:
                raise errors.RunInUse(
                    f"run {run!r} is held by {old.owner!r}",
                    run_id=run,
                    owner=old.owner,
                    expires_in_seconds=old.expires_in_seconds,
                )
            (deleted,) = db.execute("SELECT coalesce(max(epoch), 0) FROM forgotten").fetchone()
            epoch = max((old.epoch or deleted) + 1, above + 1, round(self._clock.now() * 1000))
            taken = bool(old.owner)
            head = msgspec.structs.replace(
                kept.head, owner=owner, epoch=epoch, recoveries=old.recoveries + taken
            )
            new = Kept(head, self._in(ttl_seconds), kept.claims + taken)
            self._keep(db, self._scope, new)
            ended = old.summary is not None and old.summary.status in TERMINAL_STATUSES
            return Lease(
                run, owner, epoch, ttl_seconds, self._now(new), taken and not ended, self._scope
            )

        return await self._do(work)

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """See `JournalPort.renew`."""

        def one(db: sqlite3.Connection, lease: Lease) -> Renewal:
            kept = self._find(db, lease.run, lease.scope)
            if kept is None or not _owns(lease, kept.head):
                return Renewal(kept.head.seq if kept else 0, lost=True)
            kept = msgspec.structs.replace(kept, expires_ms=self._in(lease.ttl_seconds))
            self._keep(db, lease.scope, kept)
            return Renewal(kept.head.seq)

        return self._transaction(lambda db: {key: one(db, lease) for key, lease in leases.items()})

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
        """See `JournalPort.append`."""
        self._check(run, rows, after=after, lease=lease, release=release)

        def work(db: sqlite3.Connection) -> Head:
            kept = self._find(db, run)
            head = kept.head if kept else Head(run)
            ours = lease is not None and kept is not None and _owns(lease, head)
            if kept is not None and self._is_repetition(db, head, rows, after, lease):
                if release and ours:
                    head = msgspec.structs.replace(head, owner="")
                    self._keep(db, self._scope, msgspec.structs.replace(kept, head=head))
                return self._now(msgspec.structs.replace(kept, head=head))
            if lease is not None and not ours:
                raise errors.LeaseLost(f"run {run!r}: the lease is gone", run_id=run)
            ended = head.summary is not None and head.summary.status in TERMINAL_STATUSES
            if lease is None and ended:
                raise errors.NoteRefused(f"run {run!r} has ended", run_id=run)
            if head.seq != after:
                raise errors.HeadMoved(f"run {run!r} is at entry {head.seq}", run_id=run)
            db.executemany(
                "INSERT INTO entry VALUES (?, ?, ?, ?, ?)",
                [(self._scope, run, row.seq, row.body, row.check) for row in rows],
            )
            claims = 0 if lease is not None or kept is None else kept.claims
            head = msgspec.structs.replace(
                head,
                seq=after + len(rows),
                check=rows[-1].check if rows else head.check,
                owner="" if release else head.owner,
                recoveries=summary.recoveries + claims,
                summary=summary if after + len(rows) else None,
            )
            new = Kept(head, kept.expires_ms if kept else 0, claims)
            self._keep(db, self._scope, new)
            return self._now(new)

        return await self._do(work)

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """See `JournalPort.read`."""
        check_id(run)
        sql = "SELECT seq, body, checksum FROM entry WHERE scope = ? AND run = ? AND seq > ?"
        place = (self._scope, run, _counted(after), _counted(limit))
        found = await self._do(
            lambda db: db.execute(f"{sql} ORDER BY seq LIMIT ?", place).fetchall()
        )
        return [Row(*columns) for columns in found]

    async def head(self, run: str) -> Head | None:
        """See `JournalPort.head`."""
        check_id(run)
        kept = await self._do(lambda db: self._find(db, run))
        return self._now(kept) if kept else None

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """See `JournalPort.list_runs`."""
        try:
            behind = msgspec.json.decode(cursor, type=tuple[int, str]) if cursor else None
        except (msgspec.DecodeError, UnicodeEncodeError) as exc:
            raise errors.StoreMisused(f"{cursor!r} is no cursor of this store") from exc
        found = [
            (
                (-summary.started_at, head.run),
                RunSummary(head.run, summary, head.seq, head.epoch, head.owner, head.held),
            )
            for scope, head, summary in await self._started()
            if scope == self._scope
            and status in {None, summary.status}
            and agent in {None, summary.agent}
        ]
        rest = sorted((item for item in found if not behind or item[0] > behind), key=_place)
        page = rest[: _counted(limit)]
        more = msgspec.json.encode(page[-1][0]).decode() if page and len(rest) > limit else ""
        return [one for _, one in page], more

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """See `JournalPort.claimable`."""
        now_ms = round(self._clock.now() * 1000)
        found = [
            Claimable(scope, head.run, summary.agent, summary.due_at, head.owner, head.held)
            for scope, head, summary in await self._started()
            if summary.due_at is not None
            and summary.due_at <= now_ms
            and (agents is None or summary.agent in agents)
        ]
        return sorted(found, key=lambda one: (one.held, one.due_at, one.scope, one.run))[
            : _counted(limit)
        ]

    async def delete_run(self, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        check_id(run)

        def work(db: sqlite3.Connection) -> bool:
            kept = self._find(db, run)
            if kept is None:
                return False
            head = self._now(kept)
            if head.held:
                raise errors.RunInUse(
                    f"run {run!r} is held by {head.owner!r}",
                    run_id=run,
                    owner=head.owner,
                    expires_in_seconds=head.expires_in_seconds,
                )
            db.execute("DELETE FROM entry WHERE scope = ? AND run = ?", (self._scope, run))
            db.execute("DELETE FROM head WHERE scope = ? AND run = ?", (self._scope, run))
            db.execute("INSERT INTO forgotten VALUES (?)", (head.epoch,))
            return True

        return await self._do(work)

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """See `JournalPort.entomb`."""
        check_id(run)

        def work(db: sqlite3.Connection) -> bool:
            kept = self._find(db, run)
            summary = kept.head.summary if kept else None
            if kept is None or summary is None or summary.status not in TERMINAL_STATUSES:
                return False
            if kept.head.tombstone or self._now(kept).held or summary.updated_at != updated_at:
                return False
            db.execute("DELETE FROM entry WHERE scope = ? AND run = ?", (self._scope, run))
            head = msgspec.structs.replace(kept.head, check=b"")
            self._keep(db, self._scope, msgspec.structs.replace(kept, head=head))
            return True

        return await self._do(work)

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """See `JournalPort.scopes`."""
        keys = {scope for scope, _, _ in await self._started()}
        return sorted(key for key in keys if after is None or key > after)[: _counted(limit)]

    async def aclose(self) -> None:
        """Nothing stays open."""

    # --- what the methods are made of ---------------------------------------------------------

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One transaction in a thread, carried to its end though the caller may be cancelled."""
        task = asyncio.ensure_future(asyncio.to_thread(self._transaction, work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as db:
            db.executescript(f"PRAGMA synchronous = FULL; {TABLES}")
            db.execute("BEGIN IMMEDIATE")
            try:
                answer = work(db)
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
            return answer

    def _find(self, db: sqlite3.Connection, run: str, scope: str | None = None) -> Kept | None:
        place = (self._scope if scope is None else scope, run)
        row = db.execute("SELECT kept FROM head WHERE scope = ? AND run = ?", place).fetchone()
        return msgspec.msgpack.decode(row[0], type=Kept) if row else None

    def _keep(self, db: sqlite3.Connection, scope: str, kept: Kept) -> None:
        columns = (scope, kept.head.run, msgspec.msgpack.encode(kept))
        db.execute("INSERT OR REPLACE INTO head VALUES (?, ?, ?)", columns)

    async def _started(self) -> list[tuple[str, Head, Summary]]:
        """All runs with entries. A store for many runs would have columns and an index."""
        found = await self._do(lambda db: db.execute("SELECT scope, kept FROM head").fetchall())
        heads = [(scope, self._now(msgspec.msgpack.decode(b, type=Kept))) for scope, b in found]
        return [(scope, head, head.summary) for scope, head in heads if head.summary is not None]

    def _is_repetition(
        self,
        db: sqlite3.Connection,
        head: Head,
        rows: Sequence[Row],
        after: int,
        lease: Lease | None,
    ) -> bool:
        """Whether an earlier attempt of the same caller has done this already."""
        if not rows:
            return lease is not None and head.epoch == lease.epoch and not head.owner
        sql = "SELECT seq, body, checksum FROM entry WHERE scope = ? AND run = ? AND seq > ?"
        place = (self._scope, head.run, after, len(rows))
        there = db.execute(f"{sql} ORDER BY seq LIMIT ?", place).fetchall()
        return [Row(*columns) for columns in there] == list(rows)

    def _check(
        self, run: str, rows: Sequence[Row], *, after: int, lease: Lease | None, release: bool
    ) -> None:
        check_id(run)
        if lease is None and (release or not rows):
            raise errors.StoreMisused(f"run {run!r}: without a lease only notes can be appended")
        if lease is not None and (lease.run, lease.scope) != (run, self._scope):
            raise errors.StoreMisused(f"run {run!r}: this is a lease for {lease.run!r}")
        if [row.seq for row in rows] != list(range(after + 1, after + 1 + len(rows))):
            raise errors.StoreMisused(f"run {run!r}: the entries do not follow {after}")
        if any(len(row.body) > MAX_ENTRY_BYTES for row in rows):
            raise errors.EntryTooLarge(f"run {run!r}: an entry is too large", run_id=run)

    def _in(self, seconds: float) -> int:
        return round((self._clock.elapsed() + seconds) * 1000)

    def _now(self, kept: Kept) -> Head:
        """The head as of this moment."""
        if not kept.head.owner:
            return kept.head
        left = (kept.expires_ms - round(self._clock.elapsed() * 1000)) / 1000
        return msgspec.structs.replace(kept.head, expires_in_seconds=left)


def _owns(lease: Lease, head: Head) -> bool:
    return (lease.owner, lease.epoch) == (head.owner, head.epoch)


def _counted(number: int) -> int:
    return min(max(number, 0), MOST)


def _place(item: tuple[tuple[int, str], RunSummary]) -> tuple[int, str]:
    return item[0]


class NotebookHarness(Harness):
    """How the conformance kit comes to it."""

    name = "notebook"
    clock = "held"  # the store judges by the clock that it is given
    opener = "examples.notebook_store:open_notebook"  # for child processes

    async def new_place(self) -> str:
        """A file that does not exist yet."""
        return str(Path(tempfile.mkdtemp()) / "notes.db")

    def open(self, place: str, clock: ClockPort) -> NotebookStore:
        """A handle on it."""
        return NotebookStore(Path(place), clock)


def open_notebook(place: str) -> NotebookStore:
    """A handle on it by the machine's own clock, for child processes."""
    return NotebookStore(Path(place))
