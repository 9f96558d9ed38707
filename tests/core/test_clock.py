"""The clock port: what the machine's clock keeps, and how a test moves a fake one."""

import asyncio
import threading
import time

import pytest

from agentkit.core.contracts.ports import ClockPort
from agentkit.core.runtime.clock import SystemClock
from agentkit.core.testing.clock import FakeClock


def test_elapsed_time_goes_on_while_the_machine_is_suspended() -> None:
    """On Linux elapsed time is CLOCK_BOOTTIME: between two readings of it lies ours."""
    clock: ClockPort = SystemClock()
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no clock that counts suspended time")

    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    elapsed = clock.elapsed()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert before <= elapsed <= after


def test_now_is_the_wall_clock() -> None:
    """Between two readings of the wall clock lies ours."""
    before = time.time()
    now = SystemClock().now()
    after = time.time()

    assert before <= now <= after


async def test_a_long_sleep_ends_soon_after_the_machine_wakes_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's timers do not count suspended time; a long sleep looks at elapsed time itself."""
    naps: list[float] = []
    readings = iter([1_000.0, 1_010.0, 1_595.0])  # ten seconds pass, then a suspension of 575

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", nap)
    clock = SystemClock()
    monkeypatch.setattr(clock, "elapsed", lambda: next(readings))

    await clock.sleep(600.0)

    assert [10.0, 10.0, 5.0] == naps


async def test_a_sleep_of_nothing_gives_way_to_others() -> None:
    """Zero and negative sleeps return at the next turn of the loop, in both clocks."""
    for clock in (SystemClock(), FakeClock()):
        for seconds in (0.0, -1.0):
            ran: list[str] = []
            asyncio.get_running_loop().call_soon(ran.append, "other")

            await clock.sleep(seconds)

            assert ["other"] == ran


def test_the_fake_clock_stands_until_it_is_moved() -> None:
    """`advance` moves both clocks by the same seconds."""
    clock = FakeClock(now=50.0, elapsed=7.0)

    clock.advance(2.5)

    assert (52.5, 9.5) == (clock.now(), clock.elapsed())


def test_the_wall_clock_may_step_back_and_elapsed_time_does_not_notice() -> None:
    """`set_now` touches the wall clock alone; elapsed time refuses to go back."""
    clock = FakeClock()

    clock.set_now(1_600_000_000.0)
    with pytest.raises(ValueError, match="cannot move"):
        clock.advance(-1.0)

    assert (1_600_000_000.0, 1_000.0) == (clock.now(), clock.elapsed())


async def test_sleepers_wake_when_their_time_has_come_and_not_before() -> None:
    """One turn after the clock was moved, exactly those who are due have run, earliest first."""
    clock = FakeClock()
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (9.0, 3.0, 5.0)]
    await asyncio.sleep(0)
    assert clock.sleepers == 3

    clock.advance(4.999)
    await asyncio.sleep(0)
    assert [3.0] == woken
    clock.advance(100.0)
    await asyncio.sleep(0)

    assert [3.0, 5.0, 9.0] == woken
    assert clock.sleepers == 0
    await asyncio.gather(*tasks)


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    """A cancelled sleep is not counted and not woken."""
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5.0))
    await asyncio.sleep(0)

    task.cancel()
    await asyncio.wait({task})
    clock.advance(10.0)

    assert clock.sleepers == 0
    assert task.cancelled()


async def test_a_sleeper_that_is_cancelled_while_it_is_woken_is_cancelled() -> None:
    """Moving the clock and cancelling in one turn breaks nothing."""
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5.0))
    await asyncio.sleep(0)

    task.cancel()
    clock.advance(5.0)
    await asyncio.wait({task})

    assert task.cancelled()


def test_a_sleeper_in_another_thread_wakes_in_its_own_loop() -> None:
    """The clock may be moved from a thread that has no loop."""
    clock = FakeClock()
    asleep = threading.Event()
    woken: list[int] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(asleep.set)
        await clock.sleep(5.0)
        woken.append(threading.get_ident())

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert asleep.wait(30)
    clock.advance(5.0)
    thread.join(30)

    assert [thread.ident] == woken


def test_sleepers_of_a_closed_loop_are_no_trouble() -> None:
    """A loop that was closed over a sleeper does not hinder the clock."""
    clock = FakeClock()
    loop = asyncio.new_event_loop()
    sleep = clock.sleep(5.0)
    loop.run_until_complete(_first_turn_of(loop, sleep))
    loop.close()

    clock.advance(5.0)

    assert clock.sleepers == 0
    sleep.close()


async def _first_turn_of(loop: asyncio.AbstractEventLoop, sleep: object) -> None:
    assert loop is asyncio.get_running_loop()
    sleep.send(None)  # type: ignore[attr-defined]  # by hand, so that no task is left pending
