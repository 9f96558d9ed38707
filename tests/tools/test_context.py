import asyncio
import math
import threading
from collections.abc import Awaitable, Callable

import pytest

from agentkit.core.contracts.errors import InvalidId, ResultNotStorable
from agentkit.core.contracts.types import JSON, Scope
from agentkit.tools import ToolContext
from agentkit.tools.threads import DaemonThreads


async def test_a_step_runs_once_and_gives_what_was_recorded() -> None:
    """The first time, too, it is the value as it is read back."""
    context = ToolContext()
    runs: list[int] = []

    def step() -> object:
        runs.append(1)
        return {"t": (1, b"x"), "n": math.inf}

    async def step_async() -> object:
        runs.append(2)
        return "async"

    first = await context.record("a", step)
    again = await context.record("a", step)
    other = await context.record("b", step_async)

    assert {"t": [1, b"x"], "n": math.inf} == first == again
    assert other == "async"
    assert [1, 2] == runs


async def test_two_askers_of_one_step_share_it() -> None:
    """Concurrent calls under one name do not run it twice."""
    context = ToolContext()
    started, release = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def step() -> str:
        runs.append(1)
        started.set()
        await release.wait()
        return "once"

    both = asyncio.gather(context.record("a", step), context.record("a", step))
    await started.wait()
    release.set()

    assert ["once", "once"] == list(await both)
    assert [1] == runs


async def test_a_step_that_fails_is_not_recorded() -> None:
    """Its error passes, and the next attempt runs it again; so does a value that cannot be kept."""
    context = ToolContext()

    with pytest.raises(ZeroDivisionError):
        await context.record("a", lambda: 1 // 0)
    with pytest.raises(ResultNotStorable):
        await context.record("a", object)
    assert await context.record("a", lambda: "now") == "now"
    assert context.fault is None
    with pytest.raises(InvalidId, match="name of a recorded step"):
        await context.record("", lambda: 1)


async def test_sync_tools_record_from_their_thread() -> None:
    """The step runs in the tool's own thread, the recording in the loop."""
    loop = asyncio.get_running_loop()
    where: list[object] = []

    async def recorder(name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        where.append(threading.current_thread())
        value = await produce()
        assert isinstance(value, int)
        return value + 1

    context = ToolContext(recorder=recorder, loop=loop)

    def step() -> int:
        where.append(threading.current_thread())
        return 1

    def body() -> object:
        where.append(threading.current_thread())
        return context.record_sync("a", step)

    result = await DaemonThreads(limit=1).submit(body)

    thread, in_loop, in_step = where
    assert result == 2
    assert in_loop is threading.main_thread()
    assert thread is in_step
    assert thread is not in_loop


async def test_errors_of_a_sync_step_come_back_to_its_thread() -> None:
    """Even those that would end a thread."""
    context = ToolContext(loop=asyncio.get_running_loop())

    def leave() -> object:
        raise SystemExit(3)

    def body() -> list[str]:
        seen = []
        for step in (lambda: 1 // 0, object, leave):
            try:
                context.record_sync("a", step)
            except (ZeroDivisionError, ResultNotStorable, SystemExit) as exc:
                seen.append(type(exc).__name__)
        return seen

    assert ["ZeroDivisionError", "ResultNotStorable", "SystemExit"] == (
        await DaemonThreads(limit=1).submit(body)
    )


async def test_a_step_that_is_recorded_is_not_run_in_the_thread() -> None:
    """A value from an earlier attempt comes back at once."""

    async def recorder(name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        return "recorded"

    context = ToolContext(recorder=recorder, loop=asyncio.get_running_loop())

    result = await DaemonThreads(limit=1).submit(
        lambda: context.record_sync("a", lambda: pytest.fail("ran again"))
    )

    assert result == "recorded"


async def test_record_sync_in_the_loop_is_refused() -> None:
    """It would wait for itself."""
    with pytest.raises(RuntimeError, match="use `await context"):
        ToolContext(loop=asyncio.get_running_loop()).record_sync("a", lambda: 1)


def test_a_context_made_by_hand_needs_no_loop() -> None:
    """A test of a sync tool builds one with defaults."""
    context = ToolContext()

    assert context.record_sync("a", lambda: 1) == 1
    assert context.record_sync("a", lambda: 2) == 1
    context.progress("shown to nobody")
    assert (context.scope, context.attempt, context.fencing_token) == (Scope(), 1, 0)
    with pytest.raises(AttributeError):
        context.attempt = 2  # type: ignore[misc]


async def test_progress_is_shown_in_the_loop() -> None:
    """From the loop at once, from a thread through the loop; the text is valid Unicode."""
    shown: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    context = ToolContext(
        reporter=lambda text: shown.put_nowait(
            (text, threading.current_thread() is threading.main_thread())
        ),
        loop=asyncio.get_running_loop(),
    )

    context.progress("one\udc97")
    await DaemonThreads(limit=1).submit(lambda: context.progress("two"))

    assert [("one\ufffd", True), ("two", True)] == [await shown.get(), await shown.get()]


def test_progress_after_the_loop_is_gone_is_nothing() -> None:
    """A thread that was left behind may still report."""
    loop = asyncio.new_event_loop()
    loop.close()

    ToolContext(loop=loop, reporter=pytest.fail).progress("late")


async def test_two_attempts_do_not_share_steps_in_memory() -> None:
    """Each context made by hand has a memory of its own."""
    first, second = ToolContext(), ToolContext()

    assert [1, 2] == [await first.record("a", lambda: 1), await second.record("a", lambda: 2)]
