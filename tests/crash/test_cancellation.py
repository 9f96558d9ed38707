"""A task that is cancelled at its n-th await, for every n: resumable, and nothing twice."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agentkit.agents import AgentEvent
from agentkit.agents.pump import told_while_running
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.testing.suspensions import Suspensions, cancelled_at
from tests.crash.bench import Bench


@pytest.fixture(params=["memory", "sqlite"])
def make_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[object], Bench]:
    """Makes benches, each with a store of its own."""

    def make(name: object) -> Bench:
        path = tmp_path / str(name)
        path.mkdir()
        memory = request.param == "memory"
        store: JournalPort = (
            InMemoryCheckpointStore() if memory else SqliteCheckpointStore(path / "runs.db")
        )
        return Bench(store, path)

    return make


every_await = pytest.mark.parametrize(
    "stride", [pytest.param(5, id="some"), pytest.param(1, id="every", marks=pytest.mark.slow)]
)
"""Each await in turn, or each fifth for those who are in a hurry."""


async def _cancel(bench: Bench, at: range) -> bool:
    """One run, cancelled at those suspensions and carried on; whether it was cancelled."""
    cancelled = await cancelled_at(bench.go_on(), at)
    assert not cancelled or "" == await bench.holder(), f"the lease was kept after {at}"
    await bench.finish()
    await bench.assert_sound()
    await bench.store.aclose()
    return cancelled > 0


@every_await
async def test_a_task_cancelled_at_any_await_leaves_the_run_resumable(
    make_bench: Callable[[object], Bench], stride: int
) -> None:
    """For n = 1, 2, 3 … until nothing is left to cancel: the cancellation gets through, the lease
    is given back, the next worker goes on at once, and no invariant is broken.
    """
    number = 1
    while await _cancel(make_bench(number), range(number, number + 1)):
        number += stride

    assert number > 35


@every_await
@pytest.mark.parametrize("times", [2, 3, 100])
async def test_a_task_cancelled_again_while_it_closes_leaves_the_run_resumable(
    make_bench: Callable[[object], Bench], stride: int, times: int
) -> None:
    """Twice, three and many times in a row."""
    number = 2
    while await _cancel(make_bench(number), range(number, number + times)):
        number += stride

    assert number > 35


@every_await
async def test_the_worker_with_the_answer_is_cancelled_at_any_await(
    make_bench: Callable[[object], Bench], stride: int
) -> None:
    """A plain effect was cut off and is in doubt; whoever brings the human's answer is cancelled
    wherever he is: the decision is kept and applies once.
    """

    async def cancelled(number: int) -> bool:
        bench = make_bench(number)
        await _cut_off_in_an_effect(bench)
        assert (await bench.go_on()).suspended is not None
        return await _cancel(bench, range(number, number + 1))

    number = 1
    while await cancelled(number):
        number += stride

    assert number > 25


async def _cut_off_in_an_effect(bench: Bench) -> None:
    """Cancel the first worker right after a plain effect, before its tool returns."""

    def cancel_after_the_effect() -> None:
        if any(effect.tool == "notify" for effect in bench.effects.effects()):
            task.cancel()

    with Suspensions(range(1, 1_000), cancel_after_the_effect).counted():
        task = asyncio.create_task(bench.go_on())
        await asyncio.wait({task})
    assert task.cancelled()


async def test_what_is_cancelled_twice_still_waits_for_its_appends() -> None:
    """The steps of a turn run in a task of their own; whoever reads of them and is cancelled, and
    again while he waits for them to let go, leaves only after them.
    """
    asked, appended = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def step() -> list[AgentEvent]:
        try:
            asked.set()
            await asyncio.Event().wait()
        finally:
            await appended.wait()
            order.append("appended")
        return []

    async def read() -> None:
        try:
            async with aclosing(told_while_running([], step, lambda: True)) as telling:
                async for _ in telling:
                    pass
        finally:
            order.append("left")

    reading = asyncio.create_task(read())
    await asked.wait()
    for _ in range(3):
        reading.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    appended.set()
    await asyncio.wait({reading})

    assert reading.cancelled()
    assert ["appended", "left"] == order
