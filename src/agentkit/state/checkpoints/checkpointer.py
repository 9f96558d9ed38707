"""`Checkpointer`: numbered snapshots of anything, over any store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit.core.contracts.ports import (
    Checkpoint,
    CheckpointPort,
    CheckpointStatus,
    ClockPort,
    JournalPort,
)
from agentkit.core.contracts.slots import parse
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import decode_value, encode_value
from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentkit.state.journal.fork import Fork

__all__ = ["Checkpointer"]

_TERMINAL = (CheckpointStatus.DONE, CheckpointStatus.FAILED)


class Checkpointer:
    """A thin facade over a `CheckpointPort`.

    Args:
        port: the store: a full journal store, or anybody's own five methods.
        clock: stamps `created_at`; the wall clock by default.
    """

    def __init__(self, port: CheckpointPort, *, clock: ClockPort | None = None) -> None:
        self._port = port
        self._clock = clock or SystemClock()

    @property
    def port(self) -> CheckpointPort:
        """The store behind this facade."""
        return self._port

    async def snapshot(
        self,
        run_id: str,
        state: JSON,
        *,
        status: str = CheckpointStatus.RUNNING,
        iteration: int = 0,
    ) -> Checkpoint:
        """Save `state` as the next version of the slot and return the checkpoint.

        Args:
            run_id: a run id, or a slot name.
            state: plain data; what is returned is the state as it is read back.
            status: one of `CheckpointStatus`.
            iteration: for display.

        Raises:
            ResultNotStorable: the state cannot be kept as JSON.
            VersionTaken: somebody else saved this version at the same time.
        """
        newest = await self._port.latest(run_id)
        # A bare run id also finds its agent's newest; and slots are shown with escapes.
        own = newest is not None and parse(newest.slot) == parse(run_id)
        checkpoint = Checkpoint(
            slot=run_id,
            version=(newest.version if own and newest is not None else 0) + 1,
            status=status,
            state=decode_value(encode_value(state)),
            iteration=iteration,
            created_at=self._clock.now(),
        )
        await self._port.save(checkpoint)
        return checkpoint

    async def resume(self, run_id: str, *, include_terminal: bool = False) -> Checkpoint | None:
        """The newest checkpoint that work can go on from; `None` where there is none.

        A run id stands for its agent's slot too. Terminal checkpoints are hidden, so that a
        finished job is never run again by mistake, unless `include_terminal` asks for them.
        """
        newest = await self._port.latest(run_id)
        if newest is None or (newest.status in _TERMINAL and not include_terminal):
            return None
        return newest

    async def at_version(self, run_id: str, version: int) -> Checkpoint | None:
        """The checkpoint of that version, `None` where the slot has no such version."""
        return await self._port.at_version(run_id, version)

    async def fork(
        self,
        run_id: str,
        *,
        version: int | None = None,
        new_run_id: str | None = None,
        edits: Mapping[tuple[int, int], JSON] | None = None,
        message: str = "",
        actor: str = "",
    ) -> Fork:
        """Make a new run that goes on from what `run_id` had recorded up to `version`.

        The recorded entries are copied, byte for byte; nothing is replayed, and the old run is only
        read: it may be live, finished, or damaged behind that version. The new run starts with no
        usage, and its later calls have keys of their own. A question that was open at that version
        is open in it, whatever was decided since; the call that it is about keeps its key.

        Args:
            run_id: the run to fork.
            version: of its agent's slot; the newest one if `None`. A finished run has those of its
                steps, though they are not listed.
            new_run_id: the new run's id; a random one if `None`.
            edits: results that the model is to see instead of the recorded ones, by (turn, index)
                of the call, as `agentkit show` numbers them; calls of the last turn only.
            message: of the user, after the results of the last turn.
            actor: who forks, for the record.

        Raises:
            RunNotFound: there is no such run.
            VersionNotFound: the run has no such version.
            RunIdReused: there is a run `new_run_id` already.
            InvalidFork: an edit names no result of the last turn, or the version was saved in the
                middle of a step.
            JournalDamaged, JournalTooNew: an entry up to that version cannot be read.
            StoreError: the store failed. The new run is there whole or not at all.
        """
        from agentkit.state.checkpoints.shim import ShimJournal
        from agentkit.state.journal.fork import fork

        return await fork(
            self._port if isinstance(self._port, JournalPort) else ShimJournal.over(self._port),
            run_id,
            version=version,
            new_run_id=new_run_id,
            edits=edits or {},
            message=message,
            actor=actor,
            clock=self._clock,
            chance=SystemChance(),
        )

    async def list_versions(self, run_id: str) -> list[int]:
        """All versions of the slot, ascending; of a finished run none."""
        return await self._port.list_versions(run_id)

    async def delete(self, run_id: str) -> None:
        """Forget the slot; for a run id or its agent's slot, the whole run."""
        await self._port.delete(run_id)
