"""The world itself: order within a loop, virtual time, and processes that end or stand still."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from agentkit.testing.simulation._loop import Grave
from agentkit.testing.simulation._process import Process
from agentkit.testing.simulation._world import World


def _process(world: World, number: int = 1) -> Process:
    return Process(world, number=number, machine=1, role="worker")


def _hand_in(process: Process, message: Callable[[], None]) -> None:
    process.loop.call_soon_threadsafe(message)


def _played(world: World) -> bool:
    return world.run(lambda: 1e6)


def test_a_loop_runs_its_callbacks_in_their_order() -> None:
    """First in, first out, whatever the seed: the dice only choose between loops."""
    for seed in range(20):
        world, told = World(seed), list[int]()
        loops = [_process(world, number).loop for number in (1, 2)]
        for number in range(10):
            loops[number % 2].call_soon(told.append, number)

        assert _played(world)
        assert [0, 2, 4, 6, 8] == [one for one in told if one % 2 == 0]
        assert [1, 3, 5, 7, 9] == [one for one in told if one % 2]


def test_different_seeds_interleave_loops_differently() -> None:
    """Whose turn it is comes from the dice."""
    orders = set()
    for seed in range(20):
        world, told = World(seed), list[str]()
        for number in (1, 2):
            loop = _process(world, number).loop
            for _ in range(3):
                loop.call_soon(told.append, str(number))
        _played(world)
        orders.add("".join(told))

    assert 1 < len(orders)


def test_sleeping_costs_virtual_time_only() -> None:
    """A year passes in an instant, and other clocks see it."""
    world = World(1)
    process = _process(world)
    year = 365.0 * 86_400
    process.start(lambda: process.clock.sleep(year))

    assert world.run(lambda: 2 * year)
    assert year == world.now
    process.kill()


def test_nothing_of_a_killed_process_reaches_the_outside() -> None:
    """Not even its `finally`: what it does there is refused before it has an effect."""
    world, told = World(1), list[str]()
    process = _process(world)

    async def main() -> None:
        try:
            await process.clock.sleep(10.0)
            told.append("went on")
        finally:
            await process.clock.sleep(1.0)
            told.append("cleaned up")

    task = process.start(main)
    world.after(5.0, process.kill)

    assert _played(world)
    assert [] == told
    assert task.done()
    assert process.loop.is_closed()
    with pytest.raises(Grave):
        process.must_live()


def test_a_burial_throws_no_dice_of_the_living() -> None:
    """What comes after a crash does not depend on how the dead are cleared away."""
    world = World(1)
    process = _process(world)

    async def main() -> None:
        try:
            await process.clock.sleep(10.0)
        finally:
            world.dice.random()

    process.start(main)
    world.after(5.0, process.kill)
    _played(world)

    assert World(1).dice.random() == world.dice.random()


def test_a_frozen_process_does_nothing_and_then_goes_on() -> None:
    """Its timers come late, and what arrived meanwhile comes before them."""
    world, told = World(1), list[str]()
    process = _process(world)
    process.loop.call_later(2.0, told.append, "timer")
    process.in_thread(3.0, lambda: told.append(f"thread {world.now:.0f}"))
    world.after(1.0, lambda: process.freeze(9.0))
    world.after(5.0, partial(_hand_in, process, lambda: told.append("message")))
    world.after(6.0, lambda: told.append("frozen"))

    assert _played(world)
    assert ["frozen", "message", "timer", "thread 10"] == told


def test_a_stalled_loop_leaves_its_threads_alone() -> None:
    """A busy event loop is no dead process: its heartbeat goes on."""
    world, told = World(1), list[str]()
    process = _process(world)
    process.loop.call_later(2.0, told.append, "loop")
    process.in_thread(3.0, lambda: told.append("thread"))
    world.after(1.0, lambda: process.stall(9.0))

    assert _played(world)
    assert ["thread", "loop"] == told


def test_a_world_that_never_rests_is_stopped() -> None:
    """The deadline is in virtual time."""
    world = World(1)
    process = _process(world)

    async def forever() -> None:
        while True:
            await process.clock.sleep(1.0)

    process.start(forever)

    assert not world.run(lambda: 60.0)
    assert 61.0 == pytest.approx(world.now)
    process.kill()


def test_an_error_in_a_callback_is_an_accident() -> None:
    """It is told, not swallowed."""
    world = World(1)
    loop = _process(world).loop
    loop.call_soon(lambda: 1 / 0)

    assert _played(world)
    assert 1 == len(world.accidents)
    assert "ZeroDivisionError" in world.accidents[0]


def test_a_dropped_generator_is_closed_in_its_own_loop() -> None:
    """As asyncio does it, which is what frees a lease after a `break`."""
    world, told = World(1), list[object]()
    process = _process(world)

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await process.clock.sleep(1.0)
            told.append(asyncio.get_running_loop())

    async def main() -> None:
        async for _ in numbers():
            break

    process.start(main)

    assert _played(world)
    assert [process.loop] == told
