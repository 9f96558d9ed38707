"""The ports of the state layer, the clock and the threads. Each docstring is the port's law."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from agentkit.core.contracts.types import JSON, Scope, Usage

__all__ = [
    "TERMINAL_STATUSES",
    "ChancePort",
    "Checkpoint",
    "CheckpointPort",
    "CheckpointStatus",
    "ClockPort",
    "Head",
    "JournalPort",
    "Lease",
    "Renewal",
    "Row",
    "RunStatus",
    "RunSummary",
    "Summary",
    "ToolThreads",
]

_T = TypeVar("_T")

RunStatus: TypeAlias = Literal[
    "running", "suspended", "parked", "done", "failed", "cancelled", "saved"
]
"""`running` means: not ended and not waiting; with a live lease somebody works on it, without one
it was interrupted. `saved`: a journal that only holds a user's own checkpoints."""

TERMINAL_STATUSES: frozenset[str] = frozenset({"done", "failed", "cancelled"})
"""Statuses that are final: such a run takes no entry any more."""


class CheckpointStatus:
    """Statuses of a checkpoint. `DONE` and `FAILED` are terminal: `resume` hides them."""

    RUNNING: Literal["running"] = "running"
    SUSPENDED: Literal["suspended"] = "suspended"
    DONE: Literal["done"] = "done"
    FAILED: Literal["failed"] = "failed"


class Checkpoint(msgspec.Struct, frozen=True):
    """A producer's state at one of its boundaries.

    Args:
        slot: the producer's slot, `{run_id}:agent:{name}` for a tool loop.
        version: 1, 2, 3 … within the slot.
        status: one of `CheckpointStatus`.
        state: JSON-equal state: of a loop its messages, usage and iteration; of a user's own
            snapshot whatever was given.
        iteration: completed tool turns.
        created_at: seconds since the Unix epoch, for display only; order is by `version`.
    """

    slot: str
    version: int
    status: str
    state: JSON
    iteration: int = 0
    created_at: float = 0.0


@runtime_checkable
class CheckpointPort(Protocol):
    """The small port: numbered checkpoints by slot. Anybody's own store may implement just this.

    `save` is durable when it returns. Versions of a slot only grow. A missing slot or version is
    `None` or an empty list, never an error.
    """

    async def save(self, checkpoint: Checkpoint) -> None:
        """Keep `checkpoint`; a version that the slot already has is an error."""
        ...

    async def latest(self, slot: str) -> Checkpoint | None:
        """The checkpoint with the highest version, whatever its status."""
        ...

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        """The checkpoint of that version."""
        ...

    async def list_versions(self, slot: str) -> list[int]:
        """All versions of the slot, ascending."""
        ...

    async def delete(self, slot: str) -> None:
        """Forget the slot."""
        ...


class Row(msgspec.Struct, frozen=True):
    """One entry as a store keeps it: opaque bytes and the chained checksum.

    `body` is the encoded `Entry` (it holds seq, id and epoch itself); `check` is 8 bytes.
    """

    seq: int
    body: bytes
    check: bytes


class Summary(msgspec.Struct, frozen=True):
    """What a store answers lists and probes from, made by the fold with every append.

    Args:
        status: see `RunStatus`.
        agent: the agent's name.
        iteration: completed tool turns.
        usage: what the run has used.
        started_at: ms since the Unix epoch.
        updated_at: ms since the Unix epoch.
        recoveries: takeovers without progress.
        detail: opaque JSON bytes: task, result, open questions, why it waits.
    """

    status: RunStatus
    agent: str = ""
    iteration: int = 0
    usage: Usage = Usage()
    started_at: int = 0
    updated_at: int = 0
    recoveries: int = 0
    detail: bytes = b"{}"


class Head(msgspec.Struct, frozen=True):
    """A run's head row.

    Args:
        seq: number of the last entry; 0 for a run that was claimed and never started.
        check: checksum of the last entry, `b""` at seq 0 and of a tombstone.
        epoch: the highest epoch ever given for this run, 0 for none.
        owner: who holds the lease; empty when it was released or never taken.
        expires_in_seconds: until the lease lapses by the store's clock; negative once lapsed;
            0.0 without an owner.
        recoveries: see `Summary.recoveries`; also counts claims that died before they wrote.
        summary: of the last append; `None` at seq 0.
    """

    run: str
    seq: int = 0
    check: bytes = b""
    epoch: int = 0
    owner: str = ""
    expires_in_seconds: float = 0.0
    recoveries: int = 0
    summary: Summary | None = None

    @property
    def held(self) -> bool:
        """Whether somebody holds an unexpired lease."""
        return bool(self.owner) and self.expires_in_seconds > 0

    @property
    def tombstone(self) -> bool:
        """Whether the run has ended and its entries are gone: the head is what stays of it."""
        return self.seq > 0 and not self.check


class Lease(msgspec.Struct, frozen=True):
    """The exclusive right to act for a run. `head` is the head as it was when acquired.

    `took_over`: the previous holder had neither released nor finished. `scope`: key of the scope
    it was acquired in, so that one `renew` can serve leases of several scopes.
    """

    run: str
    owner: str
    epoch: int
    ttl_seconds: float
    head: Head
    took_over: bool = False
    scope: str = ""


class RunSummary(msgspec.Struct, frozen=True):
    """One row of `list_runs`. `live`: somebody holds an unexpired lease."""

    run: str
    summary: Summary
    seq: int
    epoch: int
    owner: str = ""
    live: bool = False


class Renewal(msgspec.Struct, frozen=True):
    """Answer of `renew` for one run: `seq` of its head, or `lost` when a newer epoch owns it."""

    seq: int
    lost: bool = False


@runtime_checkable
class JournalPort(CheckpointPort, Protocol):
    """The full promise: journals with leases.

    A run's journal is a list of rows, seq 1, 2, 3 … without a gap, and one head. All methods see
    only the runs of the port's own scope (`Scope()` unless `scoped` was used); a run of another
    scope is simply not there. Every method but `renew` is a coroutine. Durable means: survives
    the loss of power, for stores that say so.

    One object may be used from several event loops and threads, one after the other or at once;
    a forked child opens its own connections.
    """

    @property
    def location(self) -> str:
        """A stable name of the place where the data is, password-free: equal for two objects on
        the same data, different otherwise.
        """
        ...

    def scoped(self, scope: Scope) -> JournalPort:
        """The same connections, looking at another scope."""
        ...

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Take the lease, creating the head where there is none.

        Granted when nobody holds it, when it lapsed by the store's clock (at the exact instant
        `now == expiry` it has lapsed), or when it is held under exactly the epoch `supersede`,
        whose holder the caller has proved dead. The new epoch is
        `max(old epoch + 1, above + 1, the store's wall clock in ms)`: whoever brings entries of
        another run says `above` which epoch they are, since epochs never decrease along seq. Where
        the old lease was neither released nor empty, `recoveries` in the head grows by one in the
        same transaction. Durable when it returns.

        Raises:
            RunInUse: somebody else holds it; nothing changed.
        """
        ...

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """BLOCKING and thread-safe, on a connection of its own: extend all these leases (keys are
        caller's own) by their ttl from now.

        A lease is extended only while head owner and epoch are its own; it may have lapsed as
        long as nobody took it. The others come back `lost`. Leases may be of different scopes:
        each is looked up in its `lease.scope`.
        """
        ...

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
        """Append `rows` (seq `after + 1` …) and move the head, as one atomic unit.

        With a lease: the head's owner and epoch must be the lease's. Without one (notes): the run
        must not have ended; a run that does not exist is created with epoch 0. `rows` may be
        empty to release only. `release` clears the owner in the same unit. The head takes over
        `summary`; the lease holder's own append ends the count of claims before it, a note does
        not.

        Idempotent: if the head is beyond `after` and the rows stored at `after + 1 …` are
        byte-equal to `rows`, it was our own earlier attempt: return the head, change nothing
        (but do release if asked and the lease is still ours).

        Returns when the rows are durable and never before. Once under way it is carried to its
        end even if the awaiting task is cancelled.

        Raises:
            LeaseLost: another epoch owns the run, or the lease was released.
            HeadMoved: the head is not at `after` (under the caller's own epoch, or for a note).
            NoteRefused: a note on a run whose status is done, failed or cancelled.
            EntryTooLarge: a row exceeds the limit.
            StoreError: the store failed; it is unknown whether the rows are in (repeat to know).
        """
        ...

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """The rows with seq > `after`, ascending, at most `limit`; empty for an unknown run."""
        ...

    async def head(self, run: str) -> Head | None:
        """The head; `None` for a run that does not exist in this scope."""
        ...

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """Runs of this scope with at least one entry, newest start first (then by run id), and
        the cursor of the next page (empty when there is none).
        """
        ...

    async def delete_run(self, run: str) -> bool:
        """Remove the run, head and rows.

        Returns whether there was one.

        Raises:
            RunInUse: somebody holds an unexpired lease.
        """
        ...

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Remove the entries of an ended run; its head stays as a tombstone.

        Done only while nobody holds the run, its status is terminal and its summary is still of
        `updated_at`, as the caller saw it. `seq` and summary stay; `check` is empty from then on.

        Returns whether it was done now; false also for a tombstone.
        """
        ...

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """For administration: keys of the scopes that hold runs, ascending, at most `limit`, and
        only those > `after`. The one method that looks beyond the port's scope.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the object may be used again and then reopens."""
        ...


class ClockPort(Protocol):
    """Wall time for display, elapsed time for deadlines, and sleep."""

    def now(self) -> float:
        """Seconds since the Unix epoch. May stand still or step back; never used for order."""
        ...

    def elapsed(self) -> float:
        """Seconds that never step back and go on while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of elapsed time."""
        ...


class ChancePort(Protocol):
    """Random numbers, so that a simulator can replay them."""

    def token(self) -> str:
        """32 hex digits that nobody can guess and no two calls share."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1); for spreading, not for secrets."""
        ...


class ToolThreads(Protocol):
    """Where synchronous tools run."""

    def submit(self, call: Callable[[], _T]) -> Awaitable[_T]:
        """Run `call` in a thread of its own and resolve with its result or exception.

        Cancelling the awaitable does not stop the thread.
        """
        ...
