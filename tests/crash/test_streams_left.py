"""A stream that is left at any event, or has a rival at any event: resumable, nothing twice."""

import asyncio
import contextlib
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from agentkit.agents import AgentEvent
from agentkit.core.contracts.errors import RunInUse, RunSuspended
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.testing.suspensions import Suspensions
from tests.crash.bench import EXPECTED, TASK, Bench

Leave: TypeAlias = Callable[[Bench, int], Awaitable[bool]]
"""Reads a stream up to its n-th event and leaves it there; false where it ended before."""


every_event = pytest.mark.parametrize(
    "stride", [pytest.param(4, id="some"), pytest.param(1, id="every", marks=pytest.mark.slow)]
)
"""Each in turn, or each fourth for those who are in a hurry."""


@pytest.fixture
def make_bench(tmp_path: Path) -> Callable[[int], Bench]:
    """Makes benches, each with a file of its own."""

    def make(number: int) -> Bench:
        path = tmp_path / str(number)
        path.mkdir()
        return Bench(SqliteCheckpointStore(path / "runs.db"), path)

    return make


async def _close(bench: Bench, number: int) -> bool:
    stream = bench.stream()
    count = 0
    async for _ in stream:
        count += 1
        if count == number:
            break
    await stream.aclose()
    return count == number


async def _drop(bench: Bench, number: int) -> bool:
    """`break`, and nobody holds the stream any more."""
    stream = bench.stream()
    count = 0
    async for _ in stream:
        count += 1
        if count == number:
            break
    del stream
    gc.collect()
    return count == number


class _Stumbled(Exception):
    """The consumer's own error."""


async def _raise(bench: Bench, number: int) -> bool:
    """The consumer fails over an event."""

    def work(count: int) -> None:
        if count == number:
            raise _Stumbled

    count = 0
    try:
        async for _ in bench.stream():
            count += 1
            work(count)
    except _Stumbled:
        return True
    return False


async def _cancelled(bench: Bench, number: int) -> bool:
    """The consumer's task is cancelled while it works on an event."""
    reached = asyncio.Event()

    async def read() -> None:
        count = 0
        async for _ in bench.stream():
            count += 1
            if count == number:
                reached.set()
                await asyncio.Event().wait()

    reading, reaching = asyncio.create_task(read()), asyncio.create_task(reached.wait())
    await asyncio.wait({reading, reaching}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, reaching):
        task.cancel()
    await asyncio.wait({reading, reaching})
    return reading.cancelled()


@every_event
@pytest.mark.parametrize("leave", [_close, _drop, _raise, _cancelled])
async def test_a_stream_left_at_any_event_leaves_the_run_resumable(
    make_bench: Callable[[int], Bench], leave: Leave, stride: int
) -> None:
    """For n = 1, 2, 3 … until there is no n-th event: the next worker comes without a turn of the
    loop between, waits for nobody, and ends the run; no invariant is broken.
    """
    number = 1
    while await _left(make_bench(number), leave, number):
        number += stride

    assert number > 17


async def _left(bench: Bench, leave: Leave, number: int) -> bool:
    left = await leave(bench, number)
    with contextlib.suppress(RunSuspended):
        async for _ in bench.stream():
            pass
    await bench.finish()
    await bench.assert_sound()
    taken_over = [row for row in bench.reads[-1] if b'"takeover"' in row.body]
    assert [] == taken_over, "the lease was not given back"
    await bench.store.aclose()
    return left


@every_event
async def test_a_second_driver_at_any_yield_of_a_stream_replaces_it(
    make_bench: Callable[[int], Bench], stride: int
) -> None:
    """While a stream of this loop stands at its n-th event, the run is started again: the new one
    has it and ends it, the old one ends without a result and has no effect after that.
    """
    number = 1
    while await _replaced(make_bench(number), number):
        number += stride

    assert number > 17


async def _replaced(bench: Bench, number: int) -> bool:
    first = bench.stream()
    told: list[AgentEvent] = []
    while len(told) < number:
        try:
            told.append(await anext(first))
        except StopAsyncIteration:
            break
    await bench.finish()
    effects = bench.effects.effects()

    rest = [event async for event in first]

    ended = any(event.result is not None for event in told)
    assert [] == rest or ended
    assert effects == bench.effects.effects()
    await bench.assert_sound()
    await bench.store.aclose()
    return len(told) == number


@every_event
async def test_a_second_driver_in_another_loop_is_refused_at_any_yield(
    make_bench: Callable[[int], Bench], stride: int
) -> None:
    """A stream whose loop lives is nobody's to close from another one: `RunInUse`, no entry, no
    effect, and the first goes on to its end.
    """
    number = 1
    while await _refused(make_bench(number), number):
        number += stride

    assert number > 17


async def _refused(bench: Bench, number: int) -> bool:
    async def rival() -> None:
        agent, context = bench.worker(other)
        try:
            await agent.run(TASK, context)
        finally:
            await other.aclose()

    other = SqliteCheckpointStore(bench.path / "runs.db")
    refused = count = 0
    results: list[str] = []
    async for event in bench.stream():
        count += 1
        results += [event.result.output] if event.result is not None else []
        if count != number or results:
            continue
        try:
            await asyncio.to_thread(asyncio.run, rival())
        except RunInUse:
            refused += 1
    assert [EXPECTED] == results
    assert 1 == refused or number >= count
    await bench.assert_sound()
    await bench.store.aclose()
    return count > number


@every_event
async def test_a_second_driver_at_any_await_of_a_running_one_does_no_harm(
    make_bench: Callable[[int], Bench], stride: int
) -> None:
    """Started at each suspension of the first: one of them drives the run, the other is refused or
    gets the stored result, and neither an effect nor an answer is doubled.
    """
    number, outcomes = 1, Counter[str]()
    while not outcomes["too late"]:
        outcomes[await _rivalled(make_bench(number), number)] += 1
        number += stride

    assert number > 35
    assert outcomes["refused"] > 20 // stride


async def _rivalled(bench: Bench, number: int) -> str:
    rivals: list[asyncio.Task[object]] = []

    def rival() -> None:
        rivals.append(asyncio.create_task(bench.go_on()))

    suspensions = Suspensions({number}, rival)
    with suspensions.counted():
        first = asyncio.create_task(bench.go_on())
        await asyncio.wait({first})
        if rivals:
            await asyncio.wait(rivals)
    errors = [one.exception() for one in (first, *rivals) if one.exception() is not None]
    assert all(isinstance(error, RunInUse) for error in errors), errors
    assert len(errors) < 2
    await bench.finish()
    await bench.assert_sound()
    await bench.store.aclose()
    return "refused" if errors else "served" if rivals else "too late"
