"""Make the corpus of a release: `python -m tests.corpus.make tests/corpus/0.1`.

Exports with runs of every kind and status. Each later release reads them, carries them on and
exports them again byte for byte. The corpus of a release that is out is never made again.
"""

from __future__ import annotations

import asyncio
import sys
import types
import typing
import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkit.agents import submit
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import Checkpoint, JournalPort
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import Native, Scope, ToolCall
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.checkpoints.shim import ShimJournal, UnfencedStoreWarning
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal
from agentkit.state.upkeep import HeaderLine, Selection, export_runs
from agentkit.tools import ToolContext, tool
from tests.agents.kit import agent_of, calls, context, entries_of, then

TASK = "Look, then send."
MORE = "And then?"
CATALOGUE = "catalogue"
_TEXT = "täxt"
LEFT = ("interrupted", "in-doubt", "suspended")
CALLS = (
    calls(ToolCall("1", "look"), ToolCall("2", "look")),
    calls(ToolCall("3", "send", {"item": "ä"})),
)


@tool(side_effecting=False)
async def look() -> dict[str, object]:
    """Look."""
    return {"seen": ["\x00", 2**64, float("nan"), b"\xff"]}


@tool(side_effecting=True)
async def send(item: str, tools: ToolContext) -> str:
    """Send something."""
    await tools.record("draft", lambda: "draft of " + item)
    return "sent " + item


AGENT = agent_of(look, send)
IMPATIENT = agent_of(look, send, max_iterations=1)


def model() -> FakeLLM:
    """Two turns with calls, then the end; from the transcript."""
    return then(CALLS, "Done.")


async def make(folder: Path) -> None:
    """Write all files of the corpus."""
    clock = FakeClock(now=1_700_000_000.0)
    store = InMemoryCheckpointStore(clock=clock)
    await _runs(store, clock)
    clock.advance(60)
    await _write(store, folder / "runs.jsonl", clock)
    memory = InMemoryCheckpointStore(clock=clock)
    await _catalogue(memory, clock)
    await _write(memory, folder / "catalogue.jsonl", clock)
    warnings.simplefilter("ignore", UnfencedStoreWarning)
    shim = ShimJournal.over(_FiveMethods())
    await AGENT.run(TASK, context(model(), shim, run_id="five", clock=clock))
    await _write(shim, folder / "five_methods.jsonl", clock, "five")


async def _runs(store: JournalPort, clock: FakeClock) -> None:
    await AGENT.run(TASK, context(model(), store, run_id="finished", clock=clock))
    ours = Scope("acme", "ann/ä")
    await AGENT.run(TASK, context(model(), store, run_id="finished", scope=ours, clock=clock))
    await IMPATIENT.run(TASK, context(model(), store, run_id="parked", clock=clock))
    recorded = await entries_of(store, "finished")
    looks = _place(recorded, e.ToolStarted, 1)
    sends = _place(recorded, e.ToolStarted, 3)
    await _died(store, "interrupted", recorded[:looks], clock)
    await _died(store, "in-doubt", recorded[:sends], clock)
    await _died(store, "suspended", recorded[:sends], clock)
    clock.advance(60)
    await AGENT.resume("suspended", {}, context(model(), store, run_id="suspended", clock=clock))
    checkpointer = Checkpointer(port=store)
    await checkpointer.fork("finished", version=1, new_run_id="forked", message="And then?")
    here = context(model(), store, run_id="carried", clock=clock)
    await AGENT.run(MORE, here, after="finished")
    await submit(store, "submitted", TASK, agent="worker", identity="ann", clock=clock)
    slot = "snapshots:agent:mine"
    await store.save(Checkpoint(slot, 1, "running", {"x": [1, 2.5, None]}, 3, 1.5))
    await _ended(store, "failed", recorded[:sends], e.Failed("no retry mends this"), clock)
    await _ended(store, "cancelled", recorded[:sends], e.Cancelled("ann", "not needed"), clock)
    await AGENT.run(TASK, context(model(), store, run_id="tombstone", clock=clock))
    head = await store.head("tombstone")
    assert head is not None
    assert head.summary is not None
    await store.entomb("tombstone", updated_at=head.summary.updated_at)


def _place(entries: Sequence[e.Entry], kind: type, count: int) -> int:
    return [entry.seq for entry in entries if isinstance(entry.body, kind)][count - 1]


async def _died(store: JournalPort, run: str, entries: Sequence[e.Entry], clock: FakeClock) -> None:
    """The run as a worker left it that died when these entries were durable."""
    lease = await store.acquire(run, "a worker elsewhere", 15.0)
    journal = Journal(store, RunState(run), clock=clock, lease=lease)
    for entry in entries:
        await journal.commit(lambda _, body=entry.body: [body], lane=entry.lane)  # type: ignore[misc]


async def _ended(
    store: JournalPort, run: str, entries: Sequence[e.Entry], end: e.Body, clock: FakeClock
) -> None:
    await _died(store, run, entries, clock)
    clock.advance(60)
    lease = await store.acquire(run, "the next worker", 15.0)
    journal = Journal(store, RunState(run), clock=clock, lease=lease)
    await journal.refresh()
    await journal.commit(lambda _: [end], lane="", release=lambda _: True)


async def _catalogue(store: JournalPort, clock: FakeClock) -> None:
    """A run that no agent would record: every kind, with every field filled in."""
    lease = await store.acquire(CATALOGUE, "worker", 15.0)
    journal = Journal(store, RunState(CATALOGUE), clock=clock, lease=lease)
    kinds = [kind for kind in typing.get_args(e.Body) if kind is not e.Finished]
    for kind in [*kinds, e.Finished]:
        body = filled(kind)
        ends = kind is e.Finished
        await journal.commit(
            lambda _, body=body: [body],  # type: ignore[misc]
            lane=agent_lane(_TEXT),
            release=lambda _, ends=ends: ends,  # type: ignore[misc]
        )


def filled(kind: type) -> e.Body:
    """An entry of this kind in which no field has its default."""
    hints = typing.get_type_hints(kind)
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: _field(name, hints[name]) for name in names})  # type: ignore[no-any-return]


def _field(name: str, hint: object) -> object:
    """A value of a field. All entries speak of the first call, so that the calls are there."""
    return 0 if name == "index" else _value(hint)


def _value(hint: object) -> object:
    """A value of a type that is not what a default would be."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Native:
        return Native("fake", msgspec.Raw(b'{"b":1,"a":[]}'))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        return hint(**{name: _field(name, hints[name]) for name in hint.__struct_fields__})
    if origin is typing.Literal:
        return arguments[-1]
    if origin in {typing.Union, types.UnionType}:
        return _value(next(one for one in arguments if one is not type(None)))
    if origin is tuple:
        return (_value(arguments[0]),)
    if origin is dict:
        return {"key": "value"}
    plain = {
        str: _TEXT,
        int: 7,
        float: 1.5,
        bool: True,
        bytes: b"{}",
        msgspec.Raw: msgspec.Raw(b"{}"),
    }
    return plain.get(hint, {"any": ["JSON"]})  # type: ignore[call-overload]


async def _write(store: JournalPort, path: Path, clock: FakeClock, *runs: str) -> None:
    header = HeaderLine(1, "0.1.0", int(clock.now() * 1000), "memory://corpus")
    lines: list[bytes] = []
    left_out = [
        moved
        async for moved in export_runs(
            store, lines.append, Selection(runs), header=header, clock=clock
        )
        if moved.error is not None
    ]
    assert not left_out, left_out
    path.write_bytes(b"".join(lines))  # noqa: ASYNC240 - nobody else waits


class _FiveMethods:
    """Somebody's own store."""

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, Checkpoint]] = {}

    async def save(self, checkpoint: Checkpoint) -> None:
        self.slots.setdefault(checkpoint.slot, {})[checkpoint.version] = checkpoint

    async def latest(self, slot: str) -> Checkpoint | None:
        versions = await self.list_versions(slot)
        return self.slots[slot][versions[-1]] if versions else None

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        return self.slots.get(slot, {}).get(version)

    async def list_versions(self, slot: str) -> list[int]:
        return sorted(self.slots.get(slot, {}))

    async def delete(self, slot: str) -> None:
        self.slots.pop(slot, None)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
