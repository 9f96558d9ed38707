"""The five slot methods, written once over a journal."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreMisused, VersionTaken
from agentkit.core.contracts.ports import Checkpoint, CheckpointStatus, JournalPort
from agentkit.core.contracts.slots import check_id, parse, slot_of
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import decode_value, encode_value
from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import append_note, load
from agentkit.state.journal.lanes import LaneState, SavedVersion

__all__ = ["SlotMethods", "checkpoint_of"]


class SlotMethods:
    """Mixin for journal stores: `CheckpointPort` by reading, folding and appending notes."""

    async def save(self: JournalPort, checkpoint: Checkpoint) -> None:
        """See `CheckpointPort.save`.

        Raises:
            VersionTaken: the slot has this version, or a newer one.
        """
        run, lane = parse(checkpoint.slot)
        check_id(run)
        body = e.CheckpointSaved(
            version=checkpoint.version,
            status=_status(checkpoint.status),
            state=encode_value(checkpoint.state),
            iteration=checkpoint.iteration,
            created_at=checkpoint.created_at,
        )

        def build(state: RunState) -> list[e.Body]:
            newest = state.lane(lane).version
            if checkpoint.version <= newest:
                message = (
                    f"run {run!r}: slot {checkpoint.slot!r} is at version {newest} already, so "
                    f"version {checkpoint.version} was not saved; read the newest and try again"
                )
                raise VersionTaken(message, run_id=run)
            return [body]

        note_id = f"checkpoint-{SystemChance().token()}"
        await append_note(self, run, build, note_id=note_id, lane=lane, clock=SystemClock())

    async def latest(self: JournalPort, slot: str) -> Checkpoint | None:
        """See `CheckpointPort.latest`; a bare run id stands for its agent's slot too."""
        state = await load(self, parse(slot).run)
        lane = _lane(state, slot)
        if state.end is not None and lane is state.main:
            return _last(state, lane)
        return _checkpoint(state, lane, lane.versions[-1]) if lane.versions else None

    async def at_version(self: JournalPort, slot: str, version: int) -> Checkpoint | None:
        """See `CheckpointPort.at_version`; works on finished runs too, whose end is their last."""
        run = parse(slot).run
        state = await load(self, run)
        lane = _lane(state, slot)
        saved = next((v for v in lane.versions if v.version == version), None)
        if saved is None:
            ended = state.end is not None and lane is state.main
            return _last(state, lane) if ended and version == lane.version + 1 else None
        then = await load(self, run, upto=saved.seq)
        return _checkpoint(then, _lane(then, slot), saved)

    async def list_versions(self: JournalPort, slot: str) -> list[int]:
        """See `CheckpointPort.list_versions`; of a finished run none."""
        run, lane = parse(slot)
        state = await load(self, run)
        found = state.lanes.get(lane)
        if found is None or state.end is not None:
            return []
        return [saved.version for saved in found.versions]

    async def delete(self: JournalPort, slot: str) -> None:
        """See `CheckpointPort.delete`: removes the run of which this is the only or main slot.

        Raises:
            StoreMisused: the run has other slots with data.
            RunInUse: somebody is working on the run.
        """
        run, lane = parse(slot)
        state = await load(self, run)
        others = [name for name, found in state.lanes.items() if name != lane and found.versions]
        if lane and lane != state.main.lane and others:
            message = (
                f"run {run!r}: slot {slot!r} is one of several in its journal and cannot be "
                f"removed alone; delete the run {run!r}"
            )
            raise StoreMisused(message)
        await self.delete_run(run)


def checkpoint_of(state: RunState) -> Checkpoint | None:
    """The newest checkpoint of the run's agent, as it is in `state`."""
    lane = state.main
    if state.end is not None:
        return _last(state, lane)
    return _checkpoint(state, lane, lane.versions[-1]) if lane.versions else None


def _lane(state: RunState, slot: str) -> LaneState:
    name = parse(slot).lane
    lane = state.lane(name)
    return lane if lane.versions or name else state.main


def _checkpoint(state: RunState, lane: LaneState, saved: SavedVersion) -> Checkpoint:
    return Checkpoint(
        slot=slot_of(state.run_id, lane.lane),
        version=saved.version,
        status=saved.status,
        state=_loop_state(state, lane) if saved.state is None else decode_value(saved.state),
        iteration=saved.iteration,
        created_at=saved.at,
    )


def _last(state: RunState, lane: LaneState) -> Checkpoint:
    """What a finished run leaves: one more version, with its result."""
    done = isinstance(state.end, e.Finished)
    result = _loop_state(state, lane)
    if isinstance(result, dict):
        result["output"] = state.end.output if isinstance(state.end, e.Finished) else None
    return Checkpoint(
        slot=slot_of(state.run_id, lane.lane),
        version=lane.version + 1,
        status=CheckpointStatus.DONE if done else CheckpointStatus.FAILED,
        state=result,
        iteration=lane.iteration,
        created_at=state.updated_at / 1000,
    )


def _loop_state(state: RunState, lane: LaneState) -> JSON:
    """A tool loop's state: conversation, usage, iteration."""
    messages: list[JSON] = [
        {
            "role": message.role,
            "content": message.content,
            **(
                {"tool_calls": list(msgspec.to_builtins(message.tool_calls))}
                if message.tool_calls
                else {}
            ),
            **({"tool_call_id": message.tool_call_id} if message.tool_call_id else {}),
        }
        for message in lane.transcript.view()
    ]
    usage = state.usage
    return {
        "messages": messages,
        "iteration": lane.iteration,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "requests": usage.requests,
            "unknown": usage.unknown,
            "cached_tokens": usage.cached_tokens,
        },
    }


def _status(status: str) -> e.StepStatus:
    for known in (
        CheckpointStatus.RUNNING,
        CheckpointStatus.SUSPENDED,
        CheckpointStatus.DONE,
        CheckpointStatus.FAILED,
    ):
        if status == known:
            return known
    message = f"{status!r} is no checkpoint status; use one of CheckpointStatus"
    raise StoreMisused(message)
