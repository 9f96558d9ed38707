"""A recording of a store at work: its file operations, its states, and what it told whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

import apsw
import msgspec

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, StoreWrapper
from agentkit.state.checkpoints.adapters._lanes import Outcome, Seat, Serve
from agentkit.state.checkpoints.adapters._sqlite_journal import SqliteJournal
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.testing.disk.image import Forgotten, Told
from agentkit.testing.disk.recorder import Recorder

__all__ = ["State", "Tape", "TellingStore", "TurnLane", "digest_of", "read_all"]

_T = TypeVar("_T")
_Job: TypeAlias = "tuple[Callable[[apsw.Connection], Any], asyncio.Future[Any]]"

State: TypeAlias = Mapping[str, tuple[Head, Sequence[Row]]]
"""All that a store holds: head and entries of each run. The moment at which leases end is left
out, since it is told from now."""

_EVERYTHING = 1 << 31


class Tape:
    """What a recording is written to, over one life of a process or several.

    Args:
        recorder: hears the file layer.
        synchronous: what the store is set to; `OFF` by force, since it refuses.
        states: of earlier lives, as digests.

    Attributes:
        recorder: as above.
        path: of the database.
        states: digests of all that the store held after each of its transactions.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        synchronous: str = "FULL",
        states: Sequence[bytes] = (),
    ) -> None:
        self.recorder = recorder
        self.path = recorder.folder / "runs.db"
        self.states = list(states) or [digest_of({})]
        self.synchronous = synchronous
        self.lane: partial[TurnLane] = partial(TurnLane, self)

    def next_life(self, recorder: Recorder) -> Tape:
        """The tape of the next process: it sees what this one left behind when it was killed."""
        states = self.states[: recorder.disk.begun + 1]
        tape = type(self)(recorder, synchronous=self.synchronous, states=states)
        tape.lane = partial(self.lane.func, tape)
        return tape

    def store(self) -> TellingStore:
        """A store on the file, whose operations are recorded."""
        inner = SqliteCheckpointStore(
            self.path,
            synchronous="NORMAL" if self.synchronous == "NORMAL" else "FULL",
            clock=FakeClock(),
            lane=self.lane,
        )
        return TellingStore(inner, self.recorder)

    def begin(self) -> None:
        """A transaction begins, which leads to the next state."""
        self.recorder.begin(len(self.states))

    def commit(self) -> None:
        """The transaction is said to be durable; nobody has been told yet."""
        self.states.append(digest_of(self.now()))
        self.recorder.acknowledge(len(self.states) - 1)

    def look(self) -> None:
        """Somebody has read everything: it may not go back from here.

        Raises:
            AssertionError: it has gone back already, without a loss of power.
        """
        seen, disk = digest_of(self.now()), self.recorder.disk
        if seen not in self.states[disk.acknowledged :]:
            raise AssertionError("the death of a process alone has lost or changed something")
        self.states.append(seen)
        self.recorder.acknowledge(len(self.states) - 1)

    def now(self) -> State:
        """All that the file holds, read beside the recording."""
        journal = SqliteJournal(StoreClock(FakeClock()))
        db = apsw.Connection(str(self.path), vfs="unix", flags=apsw.SQLITE_OPEN_READWRITE)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            names = db.execute("SELECT scope, run FROM agentkit_run").fetchall()
            return {
                run: (head, tuple(journal.read(db, scope, run, after=0, limit=_EVERYTHING)))
                for scope, run in ((str(scope), str(run)) for scope, run in names)
                if (head := journal.head(db, scope, run))
            }
        finally:
            db.close()


def digest_of(state: State) -> bytes:
    """A name for a state: equal for equal ones."""
    items = [
        (run, msgspec.structs.replace(head, expires_in_seconds=0.0), rows)
        for run, (head, rows) in sorted(state.items())
    ]
    return blake2b(msgspec.json.encode(items), digest_size=16).digest()


async def read_all(store: JournalPort, runs: Mapping[str, Scope]) -> State:
    """All that a store holds of `runs`, through its own methods.

    Raises:
        AssertionError: its list does not say the same.
    """
    views = {run: store.scoped(scope) for run, scope in runs.items()}
    heads, rows, pages = await asyncio.gather(
        asyncio.gather(*(view.head(run) for run, view in views.items())),
        asyncio.gather(*(view.read(run) for run, view in views.items())),
        asyncio.gather(*(store.scoped(s).list_runs(limit=len(runs)) for s in {*runs.values()})),
    )
    found = {
        run: (head, tuple(read))
        for run, head, read in zip(views, heads, rows, strict=True)
        if head is not None
    }
    shown = {
        one.run: (one.seq, one.summary, one.epoch, one.owner) for page, _ in pages for one in page
    }
    told = {run: (h.seq, h.summary, h.epoch, h.owner) for run, (h, _) in found.items() if h.seq}
    if shown != told:
        raise AssertionError(f"the list of runs says {shown}, their heads say {told}")
    return found


class TurnLane:
    """Runs operations in the loop's own thread, so that a recording can be repeated: those that
    are submitted in one turn of the loop share a commit, as they would in a thread.

    Args:
        tape: hears of each transaction.
        seat: the connection.
        serve: runs a group of operations on it.
        name: tells who writes.
    """

    def __init__(
        self, tape: Tape, seat: Seat[apsw.Connection], serve: Serve[apsw.Connection], name: str
    ) -> None:
        self._tape = tape
        self._seat = seat
        self._serve = serve
        self._writes = name.endswith("writer")
        self._jobs: list[_Job] = []

    def submit(self, work: Callable[[apsw.Connection], _T]) -> Awaitable[_T]:
        """Run `work` at the end of this turn; see `LanePort`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._jobs.append((work, future))
        if len(self._jobs) == 1:
            loop.call_soon(self._flush)
        return future

    def close(self) -> Awaitable[None]:
        """Close the connection."""

        async def closed() -> None:
            self._seat.close()

        return closed()

    def stop(self) -> None:
        """Close the connection."""
        self._seat.close()

    def run(self, works: Sequence[Callable[[apsw.Connection], Any]]) -> Sequence[Outcome]:
        """One group, between the marks that say what it may lead to."""
        if not self._writes:
            return self._seat.use(lambda db: self._serve(db, works))
        self._tape.begin()
        if self._tape.synchronous == "OFF":
            self._seat.use(lambda db: db.execute("PRAGMA synchronous = OFF").fetchall())
        outcomes = self._seat.use(lambda db: self._serve(db, works))
        self._tape.commit()
        return outcomes

    def _flush(self) -> None:
        jobs, self._jobs = self._jobs, []
        try:
            outcomes = self.run([work for work, _ in jobs])
        except StoreError as exc:
            outcomes = [Outcome(error=exc) for _ in jobs]
        for (_, future), outcome in zip(jobs, outcomes, strict=True):
            if future.cancelled():
                continue
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value)


class TellingStore(StoreWrapper):
    """Writes down what its caller is told, at the moment at which it is told.

    Args:
        inner: the store.
        recorder: what it is written to.
    """

    def __init__(self, inner: JournalPort, recorder: Recorder) -> None:
        super().__init__(inner)
        self.recorder = recorder

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
        head = await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )
        if rows:
            self.recorder.add(Told(run, rows[-1].seq, rows[-1].check))
        return head

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """See `JournalPort.read`. What was read may not be gone later."""
        rows = await super().read(run, after=after, limit=limit)
        if rows:
            self.recorder.add(Told(run, rows[-1].seq, rows[-1].check))
        return rows

    async def delete_run(self, run: str) -> bool:
        """See `JournalPort.delete_run`."""
        self.recorder.add(Forgotten(run))
        return await super().delete_run(run)
