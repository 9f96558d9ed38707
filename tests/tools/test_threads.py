import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from agentkit.tools.threads import DaemonThreads, default_threads

WAIT = 10.0
"""Longest wait for a described condition, in seconds."""


async def test_results_and_errors_come_back_to_the_loop() -> None:
    """Whatever the call raises belongs to whoever awaits it; the thread lives on."""
    threads = DaemonThreads(limit=1)

    def leave() -> None:
        sys.exit(3)

    def stop() -> None:
        raise StopIteration

    assert await threads.submit(lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        await threads.submit(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.submit(stop)
    error = await asyncio.gather(threads.submit(leave), return_exceptions=True)
    assert [SystemExit] == [type(one) for one in error]
    assert await threads.submit(lambda: "still here") == "still here"


async def test_threads_are_daemons_and_kept() -> None:
    """They cannot keep the process alive, and are not made anew for each call."""
    threads = DaemonThreads(limit=4)

    first = await threads.submit(threading.current_thread)
    second = await threads.submit(threading.current_thread)

    assert first.daemon
    assert first is second


async def test_calls_run_side_by_side_up_to_the_limit() -> None:
    """As many as the limit run at once; the next one waits for one of them to end."""
    threads = DaemonThreads(limit=3)
    together = threading.Barrier(4)
    release = threading.Event()
    order: list[int] = []

    def meet(number: int) -> Callable[[], None]:
        def call() -> None:
            order.append(number)
            together.wait(WAIT)
            release.wait(WAIT)

        return call

    running = [threads.submit(meet(number)) for number in range(3)]
    waiting = threads.submit(lambda: order.append(99))
    await default_threads().submit(lambda: together.wait(WAIT))
    assert 99 not in order

    release.set()
    await asyncio.gather(*running, waiting)
    assert order[-1] == 99


async def test_context_variables_are_those_of_the_caller() -> None:
    """A tool sees the caller's variables; what it sets stays its own."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("caller")
    threads = DaemonThreads(limit=1)

    def look() -> str:
        seen = variable.get()
        variable.set("tool")
        return seen

    assert await threads.submit(look) == "caller"
    assert variable.get() == "caller"


async def test_giving_up_does_not_stop_the_thread() -> None:
    """Cancelling the awaitable leaves the call running; its late end disturbs nobody."""
    threads = DaemonThreads(limit=1)
    release, ended = threading.Event(), threading.Event()

    def call() -> None:
        release.wait(WAIT)
        ended.set()

    pending = asyncio.ensure_future(threads.submit(call))
    await asyncio.sleep(0)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending

    release.set()
    await threads.submit(lambda: None)
    assert ended.is_set()


def test_a_closed_loop_is_met_quietly() -> None:
    """A thread that ends after its loop was closed says nothing and takes the next call."""
    threads = DaemonThreads(limit=1)
    release = threading.Event()

    async def leave() -> None:
        _ = threads.submit(lambda: release.wait(WAIT))

    async def again() -> str:
        return await threads.submit(lambda: "next")

    asyncio.run(leave())
    release.set()
    assert asyncio.run(again()) == "next"


def test_a_tool_that_never_returns_does_not_keep_the_process() -> None:
    """The process ends though a thread is stuck; a forked child starts with fresh threads."""
    program = """
import asyncio, os, threading
from agentkit.tools.threads import default_threads

async def stuck():
    default_threads().submit(threading.Event().wait)
    await default_threads().submit(lambda: None)

async def fine():
    return await asyncio.wait_for(default_threads().submit(os.getpid), 10)

asyncio.run(stuck())
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(fine()) == os.getpid() else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ("0\n", "") == (done.stdout, done.stderr)


def test_the_process_shares_one_set_of_threads() -> None:
    """All runs of a process share the limit."""
    assert default_threads() is default_threads()
    with pytest.raises(ValueError, match="at least 1"):
        DaemonThreads(limit=0)


async def test_a_system_that_gives_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any thread the call is refused and forgotten; with one it waits for it."""

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = DaemonThreads(limit=2)
    release, started = threading.Event(), threading.Event()
    runs: list[str] = []

    def first() -> None:
        started.set()
        release.wait(WAIT)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(lambda: runs.append("refused"))
    running = threads.submit(first)
    assert await default_threads().submit(lambda: started.wait(WAIT))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        waiting = threads.submit(lambda: runs.append("waited"))
    release.set()
    await running
    await waiting

    assert ["waited"] == runs
