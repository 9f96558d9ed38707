import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from agentkit.core.contracts.errors import (
    EntryTooLarge,
    LeaseLost,
    OutcomeUnknown,
    StoreUnreachable,
)
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.types import JSON
from agentkit.tools import Tool, ToolContext, tool
from agentkit.tools.execute import Attempt
from agentkit.tools.outcome import (
    MAX_ERROR_CHARACTERS,
    MAX_RESULT_BYTES,
    CallResult,
    Ended,
    judge,
)
from agentkit.tools.threads import DaemonThreads, default_threads

WAIT = 10.0
"""Longest wait for a described condition, in seconds."""
SOON = 0.02
"""Timeout of tools that never end by themselves, in seconds."""


async def call(
    made: Tool,
    context: ToolContext | None = None,
    *,
    threads: ToolThreads | None = None,
    **arguments: object,
) -> CallResult:
    """Run one attempt, with this loop in the context as the runtime does."""
    context = context or ToolContext(loop=asyncio.get_running_loop())
    ended: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()

    def report(outcome: Ended | BaseException) -> None:
        if isinstance(outcome, BaseException):
            ended.set_exception(outcome)
        else:
            ended.set_result(judge(made, outcome, context.attempt))

    attempt = Attempt(
        made,
        arguments,
        context,
        key=context.idempotency_key,
        threads=threads or default_threads(),
        check=lambda: None,
        report=report,
    )
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        await Attempt.stop([attempt])
        raise


def raising(error: BaseException, *, is_async: bool, **options: object) -> Tool:
    """A tool that raises `error`."""

    def fail() -> str:
        raise error

    async def fail_async() -> str:
        raise error

    decorate = cast("Callable[..., Callable[[object], Tool]]", tool)
    return decorate(**{"side_effecting": True, "name": "fail", **options})(
        fail_async if is_async else fail
    )


both = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


@both
async def test_a_result_is_what_the_model_sees(is_async: bool) -> None:
    """Async tools run in the loop, sync ones in a thread; the outcome is the same."""

    @tool(side_effecting=False)
    def sync(x: int) -> dict[str, object]:
        return {"x": x, "thread": threading.current_thread() is threading.main_thread()}

    @tool(side_effecting=False)
    async def coroutine(x: int) -> dict[str, object]:
        return {"x": x, "thread": threading.current_thread() is threading.main_thread()}

    result = await call(coroutine if is_async else sync, x=3)

    main = "true" if is_async else "false"
    assert CallResult("ok", f'{{"x":3,"thread":{main}}}') == result


async def test_a_sync_function_may_hand_on_a_coroutine() -> None:
    """A wrapper that is not async itself still works; it is awaited in the loop."""

    async def inner() -> str:
        return "inner"

    @tool(side_effecting=False)
    def wrapper() -> Awaitable[str]:
        return inner()

    assert CallResult("ok", "inner") == await call(wrapper)


@both
async def test_an_exception_is_an_error_that_the_model_sees(is_async: bool) -> None:
    """Type and message, no traceback, bounded, valid Unicode."""
    long = raising(ValueError("x" * 100_000), is_async=is_async)
    odd = raising(ValueError("a\udc97"), is_async=is_async)
    bare = raising(KeyError(), is_async=is_async)

    assert CallResult("error", "ValueError: a\ufffd") == await call(odd)
    assert CallResult("error", "KeyError") == await call(bare)
    assert MAX_ERROR_CHARACTERS == len((await call(long)).content)


async def test_an_exception_that_cannot_be_shown_is_still_an_outcome() -> None:
    """Neither an error whose text raises nor a group hides what happened."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    group = ExceptionGroup("tasks", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])

    shown = await call(raising(Mute(), is_async=True))
    assert shown.content == "Mute: <its message cannot be read: RuntimeError>"
    shown = await call(raising(group, is_async=True))
    assert shown.content == "ValueError: a; KeyError: 'b'"


@both
@pytest.mark.parametrize(
    ("side_effecting", "outcome"), [(True, "unknown"), (False, "error")], ids=["effects", "safe"]
)
@pytest.mark.parametrize(
    "error",
    [
        OutcomeUnknown("the line broke"),
        asyncio.CancelledError("odd"),
        ExceptionGroup("tasks", [OutcomeUnknown("the line broke")]),
    ],
    ids=["unknown", "cancelled", "group"],
)
async def test_a_tool_that_cannot_tell_has_an_unknown_outcome(
    error: BaseException, side_effecting: bool, outcome: str, is_async: bool
) -> None:
    """So has one that cancels itself; without side effects it is simply an error."""
    made = raising(error, is_async=is_async, side_effecting=side_effecting)

    assert outcome == (await call(made)).outcome


@both
@pytest.mark.parametrize(
    ("side_effecting", "outcome"), [(True, "unknown"), (False, "error")], ids=["effects", "safe"]
)
async def test_f048_a_timeout_with_side_effects_is_unknown(
    side_effecting: bool, outcome: str, is_async: bool
) -> None:
    """It may have happened; only a tool without side effects has merely failed."""
    release = threading.Event()

    @tool(side_effecting=side_effecting, timeout=SOON)
    def sync() -> None:
        release.wait(WAIT)

    @tool(side_effecting=side_effecting, timeout=SOON)
    async def coroutine() -> None:
        await asyncio.Event().wait()

    result = await call(coroutine if is_async else sync)
    release.set()

    assert outcome == result.outcome
    assert "timed out after 0.02 seconds" in result.content
    assert ("not known" in result.content) == side_effecting


async def test_f048_attempts_in_one_process_never_overlap() -> None:
    """While a thread works on a call, another attempt waits for its end and takes it."""
    release = threading.Event()
    runs: list[int] = []

    @tool(side_effecting=True, idempotent=True, timeout=SOON, max_attempts=3)
    def write(context: ToolContext) -> str:
        runs.append(context.attempt)
        release.wait(WAIT)
        return "written"

    def context(attempt: int, key: str = "k1") -> ToolContext:
        return ToolContext(idempotency_key=key, attempt=attempt, loop=asyncio.get_running_loop())

    first = await call(write, context(1))
    second = await call(write, context(2))
    release.set()
    third = await call(write, context(3))
    fourth = await call(write, context(3, key="k2"))

    assert [("unknown", False), ("unknown", False)] == [
        (one.outcome, one.retry) for one in (first, second)
    ]
    assert [CallResult("ok", "written")] * 2 == [third, fourth]
    assert [1, 3] == runs


def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    """An attempt in the child runs the tool, though a thread of the parent was at the same call."""
    program = """
import asyncio, os, threading
from agentkit.tools import ToolContext, tool
from agentkit.tools.execute import Attempt
from agentkit.tools.threads import default_threads

parent, entered = os.getpid(), threading.Event()

@tool(side_effecting=True, idempotent=True)
def write() -> str:
    entered.set()
    return threading.Event().wait() if os.getpid() == parent else "written"

async def attempt(until):
    ended = asyncio.get_running_loop().create_future()
    context = ToolContext(idempotency_key="k", loop=asyncio.get_running_loop())
    Attempt(
        write, {}, context, key="k", threads=default_threads(), check=lambda: None,
        report=ended.set_result,
    )
    return await until(ended)

async def begun(_):
    while not entered.is_set():
        await asyncio.sleep(0)

async def result(ended):
    return (await asyncio.wait_for(ended, 20)).value

asyncio.run(attempt(begun))
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(attempt(result)) == "written" else 1)
print(os.waitpid(child, 0)[1])
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert ("0\n", "") == (done.stdout, done.stderr)


async def test_waiting_for_a_thread_is_not_the_tools_fault() -> None:
    """Its time runs from its own start; a call that never got a thread was not run."""
    threads = DaemonThreads(limit=1)
    release, started = threading.Event(), threading.Event()
    runs: list[str] = []

    @tool(side_effecting=True, timeout=WAIT)
    def first() -> None:
        started.set()
        release.wait(WAIT)

    @tool(side_effecting=True, timeout=SOON)
    def second() -> None:
        runs.append("second")

    occupied = asyncio.ensure_future(call(first, threads=threads))
    assert await default_threads().submit(lambda: started.wait(WAIT))
    result = await call(second, threads=threads)
    release.set()
    await occupied
    await threads.submit(lambda: None)

    assert CallResult("error", "Tool 'second' was not run: no thread was free for it") == result
    assert [] == runs


async def test_a_system_without_threads_left_is_an_error_outcome() -> None:
    """The call was not run and says so."""

    class NoThreads:
        def submit(self, _call: object) -> Awaitable[object]:
            raise RuntimeError("can't start new thread")

    @tool(side_effecting=True)
    def write() -> None: ...

    result = await call(write, threads=cast("ToolThreads", NoThreads()))

    assert "was not run" in result.content


async def test_a_tool_that_ends_in_spite_of_its_timeout_has_its_result() -> None:
    """What a cancelled tool still returns is its outcome; what it raises is not."""

    @tool(side_effecting=True, timeout=SOON)
    async def finishes() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    @tool(side_effecting=True, timeout=SOON)
    async def breaks() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("cleaning up")

    assert CallResult("ok", "done all the same") == await call(finishes)
    assert "timed out" in (await call(breaks)).content


async def test_a_tool_that_ignores_its_cancellation_is_left_behind() -> None:
    """No await is without a deadline."""
    release = asyncio.Event()

    @tool(side_effecting=True, timeout=SOON)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    result = await call(stubborn)
    release.set()

    assert result.outcome == "unknown"
    assert not result.retry


async def test_the_tools_own_timeout_error_is_an_error() -> None:
    """`TimeoutError` from inside is not our deadline."""
    result = await call(raising(TimeoutError("upstream"), is_async=True))

    assert CallResult("error", "TimeoutError: upstream") == result


def _cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: (i for i in range(3)), "generator"),
        (_cyclic, "contains itself"),
        (lambda: {1: "a", "1": "b"}, "two keys"),
        (lambda: {"s": socket.socket}, "socket.socket"),
    ],
)
async def test_f073_a_result_that_cannot_be_kept_is_an_error_and_not_repeated(
    make: Callable[[], object], kind: str
) -> None:
    """The error names tool and type; the effect counts as done even where attempts are left."""

    @tool(side_effecting=True, idempotent=True, max_attempts=5)
    async def fetch() -> object:
        return make()

    result = await call(fetch)

    assert (result.outcome, result.retry) == ("error", False)
    assert result.content.startswith("Tool 'fetch' ran, but its result cannot be kept: ")
    assert kind in result.content


async def test_f073_a_result_over_the_limit_is_an_error() -> None:
    """What no store takes does not get as far as a store; what fits does."""

    @tool(side_effecting=True)
    async def fetch(text: str, times: int) -> str:
        return text * times

    assert (await call(fetch, text="x", times=MAX_RESULT_BYTES - 2)).outcome == "ok"
    assert "over the limit" in (await call(fetch, text="x", times=MAX_RESULT_BYTES)).content
    assert "over the limit" in (await call(fetch, text="\x00", times=3 * 1024 * 1024)).content


@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param("a\x00b", "a\x00b", id="f081-nul"),
        pytest.param("a\\u0000b", "a\\u0000b", id="f081-escape"),
        pytest.param("\ud83d\ude00 \udc97", "😀 \ufffd", id="f082"),
        pytest.param(
            {"v": float("nan"), "w": float("inf")},
            '{"v":{"$float":"nan"},"w":{"$float":"inf"}}',
            id="f083",
        ),
        pytest.param([2**64, -(2**63) - 1], "[18446744073709551616,-9223372036854775809]"),
        pytest.param(b"\xff\xfe", '{"$bytes":"//4="}', id="f087-f091"),
        pytest.param(None, "", id="none"),
    ],
)
async def test_odd_results_are_outcomes_in_valid_text(value: object, content: str) -> None:
    """Whatever a tool returns, the run goes on and the text can be stored and sent."""

    @tool(side_effecting=True)
    async def fetch() -> object:
        return value

    result = await call(fetch)
    result.content.encode()

    assert CallResult("ok", content) == result


@both
@pytest.mark.parametrize(
    ("options", "attempt", "retry"),
    [
        ({"side_effecting": False}, 1, False),
        ({"side_effecting": False, "max_attempts": 1}, 1, False),
        ({"side_effecting": False, "max_attempts": 3}, 2, True),
        ({"side_effecting": False, "max_attempts": 3}, 3, False),
        ({"side_effecting": True, "max_attempts": 1}, 1, False),
        ({"side_effecting": True, "idempotent": True, "max_attempts": 2}, 1, True),
        ({"side_effecting": True, "idempotent": True}, 1, False),
    ],
)
async def test_f053_attempts_are_counted_in_one_place(
    options: dict[str, object], attempt: int, retry: bool, is_async: bool
) -> None:
    """Another attempt is due only where it can do no harm and the tool's number allows it."""
    made = raising(ConnectionError("x"), is_async=is_async, **options)

    result = await call(made, ToolContext(attempt=attempt))

    assert ("error", retry) == (result.outcome, result.retry)


STORE_ERRORS = [
    StoreUnreachable("disk full"),
    LeaseLost("run 'r': taken over", run_id="r"),
]


@both
@pytest.mark.parametrize("error", STORE_ERRORS, ids=["store", "lease"])
@pytest.mark.parametrize("manner", ["passes", "wraps", "groups", "swallows"])
async def test_a_store_error_is_never_a_tools_outcome(
    error: Exception, manner: str, is_async: bool
) -> None:
    """Whatever the tool makes of it, the run learns of the store's error."""

    async def recorder(name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        await produce()
        raise error

    context = ToolContext(run_id="r", recorder=recorder, loop=asyncio.get_running_loop())

    def treat(exc: Exception) -> str:
        if manner == "wraps":
            raise ValueError("mine") from exc
        if manner == "groups":
            raise ExceptionGroup("mine", [exc])
        if manner == "swallows":
            return "fine"
        raise exc

    @tool(side_effecting=True)
    def sync(given: ToolContext) -> str:
        try:
            given.record_sync("step", lambda: 1)
        except type(error) as exc:
            return treat(exc)
        return "never"

    @tool(side_effecting=True)
    async def coroutine(given: ToolContext) -> str:
        try:
            await given.record("step", lambda: 1)
        except type(error) as exc:
            return treat(exc)
        return "never"

    with pytest.raises(type(error)) as caught:
        await call(coroutine if is_async else sync, context)
    assert caught.value is error


@both
async def test_a_wrapped_store_error_is_found_without_the_context(is_async: bool) -> None:
    """A tool that reaches the store on another way cannot hide its errors either."""
    outer = ValueError("outer")
    outer.__cause__ = StoreUnreachable("gone")

    with pytest.raises(StoreUnreachable):
        await call(raising(outer, is_async=is_async))


async def test_errors_of_other_runs_and_too_large_steps_are_outcomes() -> None:
    """A tool may drive runs of its own; and what it records is its own affair."""
    other = LeaseLost("run 'child': taken over", run_id="child")

    async def recorder(name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        raise EntryTooLarge("too large", run_id="r")

    @tool(side_effecting=True)
    async def step(context: ToolContext) -> JSON:
        return await context.record("step", lambda: 1)

    assert (await call(raising(other, is_async=True))).outcome == "error"
    context = ToolContext(run_id="r", recorder=recorder)
    assert CallResult("error", "EntryTooLarge: too large") == await call(step, context)


@both
async def test_our_own_cancellation_passes(is_async: bool) -> None:
    """It is not an outcome: the run stays as it is, the tool may have acted."""
    started, release = threading.Event(), threading.Event()
    cleaned: list[str] = []

    @tool(side_effecting=True)
    def sync() -> None:
        started.set()
        release.wait(WAIT)

    @tool(side_effecting=True)
    async def coroutine() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    task = asyncio.ensure_future(call(coroutine if is_async else sync))
    assert await default_threads().submit(lambda: started.wait(WAIT))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()

    assert cleaned == (["up"] if is_async else [])


async def test_sys_exit_in_a_thread_is_the_tools_error() -> None:
    """It would end the thread alone, so it is an outcome like any other."""

    @tool(side_effecting=True)
    def leave() -> None:
        sys.exit(3)

    assert CallResult("error", "SystemExit: 3") == await call(leave)


async def test_sys_exit_in_an_async_tool_is_the_tools_error() -> None:
    """As in a thread: a parser of arguments that gives up ends no worker, and no other run."""

    @tool(side_effecting=True)
    async def leave() -> None:
        sys.exit(3)

    assert CallResult("error", "SystemExit: 3") == await call(leave)


def test_an_interrupt_in_an_async_tool_leaves() -> None:
    """In the loop, a person asks the process to end: nothing is recorded."""
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(call(raising(KeyboardInterrupt(), is_async=True)))
