"""Runs on somebody's own five-method store, which fails at any of its calls."""

import asyncio
import copy
import itertools
from collections.abc import Iterator
from typing import Literal

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunInUse, StoreMisused
from agentkit.core.contracts.ports import Checkpoint
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.shim import ShimJournal
from agentkit.state.journal.journal import append_note
from agentkit.tools import Tool, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, entries_of, then

pytestmark = pytest.mark.filterwarnings(
    "ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning"
)


class Broken(Exception):
    """What a driver of somebody else's raises."""


class FiveMethods:
    """A store as a user would write it: no leases, no idempotence, a turn of the loop per call."""

    def __init__(self, slots: dict[str, dict[int, Checkpoint]] | None = None) -> None:
        self.slots = slots if slots is not None else {}
        self.calls = 0
        self.fails: tuple[int, Literal["before", "after"]] = (0, "before")

    async def save(self, checkpoint: Checkpoint) -> None:
        for _ in self._call():
            versions = self.slots.setdefault(checkpoint.slot, {})
            assert checkpoint.version not in versions, f"{checkpoint.slot} {checkpoint.version}"
            await asyncio.sleep(0)
            versions[checkpoint.version] = checkpoint

    async def latest(self, slot: str) -> Checkpoint | None:
        for _ in self._call():
            await asyncio.sleep(0)
        versions = self.slots.get(slot)
        return versions[max(versions)] if versions else None

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        for _ in self._call():
            await asyncio.sleep(0)
        return self.slots.get(slot, {}).get(version)

    async def list_versions(self, slot: str) -> list[int]:
        for _ in self._call():
            await asyncio.sleep(0)
        return sorted(self.slots.get(slot, {}))

    async def delete(self, slot: str) -> None:
        for _ in self._call():
            self.slots.pop(slot, None)

    def _call(self) -> Iterator[None]:
        """Once around the body of a method, which fails before or after it where it is told to."""
        self.calls += 1
        fails = self.calls == self.fails[0]
        if fails and self.fails[1] == "before":
            raise Broken
        yield
        if fails:
            raise Broken


def _paying() -> tuple[Tool, list[str]]:
    effects: list[str] = []

    @tool(side_effecting=True)
    async def pay() -> str:
        """Pay."""
        effects.append("paid")
        return "paid"

    return pay, effects


def _model() -> FakeLLM:
    return then(calls(call("pay")))


async def _calls_of_a_whole_run() -> int:
    port = FiveMethods()
    await agent_of(_paying()[0]).run(TASK, context(_model(), port))
    return port.calls


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_at_any_call_leaves_a_run_that_can_be_carried_on(
    when: Literal["before", "after"],
) -> None:
    """Wherever a call failed, the next worker, in this process or in a new one, ends the run."""
    total = await _calls_of_a_whole_run()
    assert total > 10

    for number, same_process in itertools.product(range(1, total + 1), [True, False]):
        pay, effects = _paying()
        port = FiveMethods()
        port.fails = (number, when)
        outputs: list[str] = []
        while len(outputs) < 2:
            try:
                outputs.append((await agent_of(pay).run(TASK, context(_model(), port))).output)
            except (Broken, StoreMisused):
                assert port.calls < 3 * total
            if not same_process:
                fresh = FiveMethods(copy.deepcopy(port.slots))
                fresh.calls, port = port.calls, fresh

        assert (["done"] * 2, ["paid"]) == (outputs, effects), f"call {number} failed {when}"


async def test_two_starts_at_once_are_one_run() -> None:
    """While one start still reads an old run the other one cannot slip past its lease."""
    pay, effects = _paying()
    port = FiveMethods()
    port.fails = (8, "after")
    with pytest.raises(Broken):
        await agent_of(pay).run(TASK, context(_model(), port))
    port = FiveMethods(port.slots)
    assert (["r:journal"], []) == (list(port.slots), effects)

    outcomes = await asyncio.gather(
        *(agent_of(pay).run(TASK, context(_model(), port)) for _ in range(2)),
        return_exceptions=True,
    )

    assert ["paid"] == effects
    assert [RunInUse] == [type(one) for one in outcomes if isinstance(one, Exception)]


async def test_notes_that_come_at_once_are_all_kept() -> None:
    """Appends wait for each other: none is saved over another one's version."""
    port = FiveMethods()

    await asyncio.gather(
        *(
            append_note(
                ShimJournal.over(port),
                RUN,
                lambda state: [e.CheckpointSaved(state.seq + 1, "running", "{}")],
                note_id=f"note-{number}",
                lane="",
                clock=SystemClock(),
            )
            for number in range(5)
        )
    )

    entries = await entries_of(ShimJournal.over(FiveMethods(port.slots)))
    assert {f"note-{number}" for number in range(5)} == {entry.id for entry in entries}
