"""The ports of the state layer, the clock and the threads. Each docstring is the port's law."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from agentkit.core.contracts.heads import (
    Claimable,
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.types import JSON, Scope

__all__ = [
    "ChancePort",
    "Checkpoint",
    "CheckpointPort",
    "CheckpointStatus",
    "ClockPort",
    "JournalPort",
    "ToolThreads",
]

_T = TypeVar("_T")


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


@runtime_checkable
class JournalPort(CheckpointPort, Protocol):
    """The full promise: journals with leases.

    A run's journal is a list of rows, seq 1, 2, 3 … without a gap, and one head. All methods see
    only the runs of the port's own scope (`Scope()` unless `scoped` was used); a run of another
    scope is simply not there. Every method but `renew` is a coroutine. Durable means: survives
    the loss of power, for stores that say so.

    A store that lets ended runs expire lets none go with a `Summary.in_doubt`.

    Run ids, owners and keys are checked as `slots.check_id` does: `InvalidId`. Any other text is
    kept and compared as it is, or is `InvalidId` where the store cannot hold it.

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
            StoreMisused: `ttl_seconds` is less than a millisecond, or an epoch has over 53 bits.
        """
        ...

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """BLOCKING and thread-safe, on a connection of its own: extend all these leases (keys are
        caller's own) by their ttl from now.

        A lease is extended only while head owner and epoch are its own; it may have lapsed as
        long as nobody took it. The others come back `lost`. Leases may be of different scopes:
        each is looked up in its `lease.scope`. One about which the store cannot tell just now, as
        its run is locked, may be left out: it is asked for again, and nobody else's waits for it.
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
        """The rows with seq > `after`, ascending, at most `limit`; empty for an unknown run. In all
        methods a place or limit below 0 is 0, and any other one is fine, however large.
        """
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

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs that are due by the store's clock, at most `limit`: first those that nobody holds,
        and of each kind the longest due first (then by scope and run).

        Looks beyond the port's scope, for workers that serve all of them. With `agents`, only runs
        of these.
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
        only those > `after`. Looks beyond the port's scope.
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
