"""Takeover within a process: who makes way, who is waited for, who is left alone."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar

import pytest

from agentkit.state.journal import drives
from agentkit.state.journal.drives import DriveRecord, RunKey, forget, known, make_way, register

KEY: RunKey = ("memory://1", "", "r")


class Stream:
    """A public stream as the table sees it: registers, can be closed, closes when it is dropped."""

    def __init__(self, key: RunKey = KEY, *, turns: int = 0) -> None:
        self.turns = turns
        self.log: list[str] = []
        self.is_closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.record = register(key, self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        self.record.phase = "at_yield"
        return "item"

    async def aclose(self) -> None:
        self.record.phase = "closing"
        self.log.append("closing")
        self.is_closing.set()
        await self.may_close.wait()
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.log.append("closed")
        forget(self.record)

    def __del__(self) -> None:
        self.record.begin_close(self.aclose)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    leftovers = dict(drives._by_id)
    drives._by_id.clear()
    drives._by_run.clear()
    assert not leftovers


async def test_a_drive_at_a_yield_in_this_loop_is_closed_and_waited_for() -> None:
    """Its consumer holds it and may never ask again; the next drive of the run comes first."""
    stream = Stream()
    await anext(stream)

    await make_way(KEY)

    assert ["closing", "closed"] == stream.log
    assert not known(stream.record.drive_id)
    assert stream.record.closed.is_set()


async def test_after_a_break_the_next_drive_waits_for_the_old_one() -> None:
    """F066: no loop turn lies between `break` and the new start; the stream's `__del__` spoke."""
    log, record = await _break_out()
    assert [] == log
    assert record.phase == "closing"
    assert known(record.drive_id)

    await make_way(KEY)

    assert ["closing", "closed"] == log
    assert record.closed.is_set()


async def test_a_start_that_is_cancelled_does_not_stop_the_old_drives_closing() -> None:
    """The closing is a task of its own; giving up on the new drive gives up nothing else."""
    stream = Stream()
    await anext(stream)
    stream.may_close.clear()
    start = asyncio.create_task(make_way(KEY))
    await stream.is_closing.wait()

    start.cancel()
    await asyncio.wait({start})
    stream.may_close.set()
    await stream.record.closed.wait()

    assert start.cancelled()
    assert ["closing", "closed"] == stream.log


async def test_two_starts_close_the_old_drive_once() -> None:
    """Both wait for the same closing."""
    stream = Stream()
    await anext(stream)
    stream.may_close.clear()
    starts = [asyncio.create_task(make_way(KEY)) for _ in range(2)]
    await stream.is_closing.wait()
    assert not any(start.done() for start in starts)

    stream.may_close.set()
    await asyncio.gather(*starts)

    assert ["closing", "closed"] == stream.log


async def test_a_drive_that_its_consumer_closes_is_waited_for() -> None:
    """`closing` counts whoever began it."""
    stream = Stream()
    stream.may_close.clear()
    closing = asyncio.create_task(stream.aclose())
    await stream.is_closing.wait()
    start = asyncio.create_task(make_way(KEY))
    await asyncio.sleep(0)
    assert not start.done()

    stream.may_close.set()
    await asyncio.gather(closing, start)

    assert ["closing", "closed"] == stream.log


async def test_the_wait_for_a_closing_drive_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A store that hangs in the release holds the new start up for so long, and it stays known."""
    stream = Stream()
    await anext(stream)
    stream.may_close.clear()

    await make_way(KEY, patience_seconds=0.0)

    assert "did not close within 0.0 seconds" in caplog.text
    assert known(stream.record.drive_id)
    stream.may_close.set()
    await stream.record.closed.wait()


async def test_a_closing_that_fails_makes_way_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What could not be released belongs to a drive that nobody knows: its death is proved."""
    stream = Stream()
    await anext(stream)

    async def fail() -> None:
        raise ConnectionError("the store is away")

    stream.record.begin_close(fail)
    await make_way(KEY)

    assert not known(stream.record.drive_id)
    assert "closing a drive of run 'r' failed" in caplog.text


async def test_a_running_drive_is_left_alone() -> None:
    """A tool that starts its own run again must not close the run under itself."""
    stream = Stream()

    await make_way(KEY)

    assert [] == stream.log
    assert known(stream.record.drive_id)
    forget(stream.record)


async def test_other_runs_are_left_alone() -> None:
    """Location, scope and run all count."""
    others = [Stream(key) for key in (("x", "", "r"), ("memory://1", "x", "r"), (*KEY[:2], "x"))]
    for stream in others:
        await anext(stream)

    await make_way(KEY)

    assert [True] * 3 == [known(stream.record.drive_id) for stream in others]
    for stream in others:
        forget(stream.record)


async def test_a_drive_in_another_open_loop_is_left_alone() -> None:
    """Its loop may go on at any moment, running or not."""
    with _another_loop() as run:
        stream = run(_at_yield())

        await make_way(KEY)

        assert [] == stream.log
        assert known(stream.record.drive_id)
        run(stream.aclose())


async def test_a_drive_of_a_closed_loop_is_dead() -> None:
    """Nobody can go on with it, whoever holds the stream."""
    with _another_loop() as run:
        stream = run(_at_yield())

    assert not known(stream.record.drive_id)
    await make_way(KEY)

    assert [] == stream.log
    assert stream.record.phase == "closed"


async def test_a_drive_of_a_collected_loop_is_dead() -> None:
    """The table keeps no loop alive."""
    with _another_loop() as run:
        stream = run(_at_yield())
        loop = stream.record.loop
    assert loop is not None
    gone = weakref.ref(loop)

    del loop, run
    gc.collect()

    assert gone() is None
    assert stream.record.loop is None
    forget(stream.record)


async def test_the_table_keeps_no_stream_alive() -> None:
    """Dropped without a closing (a stream without `__del__`), it is not known and makes way."""

    class Plain:
        async def aclose(self) -> None:
            raise AssertionError

    plain = Plain()
    record = register(KEY, plain)
    record.phase = "at_yield"
    assert known(record.drive_id)

    del plain
    gc.collect()

    assert not known(record.drive_id)
    await make_way(KEY)
    assert record.closed.is_set()


async def test_the_closing_task_is_kept_until_it_ends() -> None:
    """The event loop refers to tasks weakly; a collection in between must not lose the closing."""
    log, record = await _break_out()
    await asyncio.sleep(0)

    gc.collect()
    await record.closed.wait()

    assert ["closing", "closed"] == log


async def test_a_stream_dropped_in_another_thread_is_closed_in_its_own_loop() -> None:
    """Python may collect it anywhere; the loop hears of it in a way that is safe for threads."""
    streams = [Stream()]
    record, log = streams[0].record, streams[0].log

    thread = threading.Thread(target=streams.clear)
    thread.start()
    thread.join(30)
    assert record.phase == "closing"
    assert known(record.drive_id)
    await make_way(KEY)

    assert ["closing", "closed"] == log


async def test_forgetting_in_another_thread_wakes_who_waits() -> None:
    """`closed` is set in the drive's own loop; in debug mode asyncio refuses anything else."""
    asyncio.get_running_loop().set_debug(True)
    stream = Stream()
    stream.record.phase = "closing"
    start = asyncio.create_task(make_way(KEY))
    await asyncio.sleep(0)

    thread = threading.Thread(target=forget, args=(stream.record,))
    thread.start()
    thread.join(30)
    await start

    assert stream.record.closed.is_set()


def test_a_stream_dropped_after_its_loop_was_closed_is_forgotten() -> None:
    """There is nobody to close it; nothing is scheduled and no coroutine made."""
    made: list[str] = []

    def close() -> Coroutine[object, object, None]:
        made.append("coroutine")
        raise AssertionError

    stream = asyncio.run(_at_yield())
    record = stream.record

    record.begin_close(close)

    assert [] == made
    assert record.phase == "closed"


def test_a_program_that_ends_right_after_its_break_still_closes_the_drive() -> None:
    """F066: `asyncio.run` cancels what is left while the closing waits for its store."""
    left: list[tuple[list[str], DriveRecord]] = []

    async def main() -> None:
        left.append(await _break_out(turns=5))

    asyncio.run(main())

    log, record = left[0]
    assert ["closing", "closed"] == log
    assert record.phase == "closed"


async def test_a_closing_begins_even_if_it_is_cancelled_first() -> None:
    """A program that cancels all of its tasks in the turn of the `break` still closes the drive."""
    log, record = await _break_out()

    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        assert not task.cancel()
    await record.closed.wait()

    assert ["closing", "closed"] == log


async def test_a_closing_that_has_begun_can_be_cancelled() -> None:
    """Deadlines inside the closing work by cancellation; the record is forgotten all the same."""
    stream = Stream()
    stream.may_close.clear()
    stream.record.begin_close(stream.aclose)
    await stream.is_closing.wait()

    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await stream.record.closed.wait()

    assert ["closing"] == stream.log
    assert not known(stream.record.drive_id)


async def test_a_closing_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A closing that hangs is given up; its lease lapses or is that of a dead drive."""
    monkeypatch.setattr(drives, "CLOSE_SECONDS", 0.0)
    stream = Stream()
    stream.may_close.clear()

    stream.record.begin_close(stream.aclose)
    await stream.record.closed.wait()

    assert not known(stream.record.drive_id)
    assert "closing a drive of run 'r' failed: TimeoutError()" in caplog.text


async def test_a_drive_is_known_while_it_closes_without_its_stream() -> None:
    """The closing need not hold the stream: until it ends, the drive is not dead."""

    class Plain:
        async def aclose(self) -> None:
            raise AssertionError

    may_close = asyncio.Event()

    async def close() -> None:
        await may_close.wait()

    plain = Plain()
    record = register(KEY, plain)
    record.begin_close(close)
    del plain
    gc.collect()
    await asyncio.sleep(0)
    assert record.stream is None
    assert known(record.drive_id)

    may_close.set()
    await make_way(KEY)

    assert not known(record.drive_id)


def test_a_close_that_was_asked_for_and_never_ran_dies_with_its_loop() -> None:
    """Asked for from outside a loop that never turns again: known until the loop is closed."""
    with _another_loop() as run:
        stream = run(_at_yield())
        record = stream.record
        del stream
        gc.collect()
        assert record.phase == "closing"
        assert known(record.drive_id)

    assert not known(record.drive_id)
    forget(record)


async def test_closing_twice_is_closing_once() -> None:
    """The second call, and one on a drive that is over, do nothing."""
    stream = Stream()

    stream.record.begin_close(stream.aclose)
    stream.record.begin_close(stream.aclose)
    await stream.record.closed.wait()
    stream.record.begin_close(stream.aclose)
    await asyncio.sleep(0)

    assert ["closing", "closed"] == stream.log


async def test_two_drives_of_one_run_are_told_apart() -> None:
    """The one that lost the race for the lease forgets itself and nothing else."""
    winner, loser = Stream(), Stream()
    assert winner.record.drive_id != loser.record.drive_id

    forget(loser.record)
    forget(loser.record)
    await anext(winner)
    await make_way(KEY)

    assert ["closing", "closed"] == winner.log
    assert [] == loser.log


def test_an_unknown_drive_is_not_known() -> None:
    """Nothing is assumed of ids that were never given."""
    assert not known("d0")
    assert not known("")


FORKS = """
import asyncio, os, threading
from agentkit.state.journal import drives

class Stream:
    async def aclose(self):
        pass

async def main():
    stream = Stream()
    record = drives.register(("memory://1", "", "r"), stream)
    held, done = threading.Event(), threading.Event()

    def hold():  # a fork may come while any thread holds the lock
        with drives._lock:
            held.set()
            done.wait()

    threading.Thread(target=hold).start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        known = drives.known(record.drive_id)
        os._exit(1 if known or drives._by_run else 0)
    done.set()
    assert drives.known(record.drive_id)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

raise SystemExit(asyncio.run(main()))
"""


def test_a_forked_child_starts_with_an_empty_table() -> None:
    """The drives went on in the parent."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=False, timeout=100)

    assert done.returncode == 0


async def _at_yield() -> Stream:
    stream = Stream()
    await anext(stream)
    return stream


async def _break_out(*, turns: int = 0) -> tuple[list[str], DriveRecord]:
    left: list[tuple[list[str], DriveRecord]] = []

    def stream() -> Stream:
        stream = Stream(turns=turns)
        left.append((stream.log, stream.record))
        return stream

    async for _ in stream():
        break
    return left[0]


T = TypeVar("T")


class _Run(Protocol):
    def __call__(self, coroutine: Coroutine[None, None, T], /) -> T: ...


@contextmanager
def _another_loop() -> Iterator[_Run]:
    """A loop that runs in another thread what it is given, stands in between, and is closed."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:

        def run(coroutine: Coroutine[None, None, T], /) -> T:
            return thread.submit(loop.run_until_complete, coroutine).result(30)

        yield run
        thread.submit(loop.close).result(30)
