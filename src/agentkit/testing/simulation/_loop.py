"""The event loop of one simulated process: asyncio's own order, on virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Protocol, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_BURIAL_ROUNDS = 20


class Grave(BaseException):
    """Raised by every port of a process that is gone. No `except Exception` sees it."""


class _Host(Protocol):
    now: float
    accidents: list[str]

    def timer(self, loop: ProcessLoop, handle: asyncio.TimerHandle) -> None: ...

    def wake(self, loop: ProcessLoop) -> None: ...


class ProcessLoop(asyncio.AbstractEventLoop):
    """Runs callbacks first in, first out, one for each `turn`; timers come from its world.

    Only what the runtime needs of a loop is there: no sockets, signals, child processes, executors.

    Args:
        world: whose time it lives in.

    Attributes:
        held: it is not its turn, whatever is ready: frozen, or busy with a long computation.
        listed: the world knows that it has something to run.
    """

    def __init__(self, world: _Host) -> None:
        self._world = world
        self._ready: deque[asyncio.Handle] = deque()
        self._overdue: list[asyncio.Handle] = []
        self._closed = False
        self._burying = False
        self.held = False
        self.listed = False

    # --- for the world ---

    def may_run(self) -> bool:
        """Whether there is a callback to run, and nothing that holds the loop."""
        return bool(self._ready) and not self.held and not self._closed

    def turn(self) -> bool:
        """Run the next callback; `False` where it was cancelled meanwhile, or there is none."""
        if not self.may_run():
            return False
        handle = self._ready.popleft()
        if handle.cancelled():
            return False
        handle._run()  # noqa: SLF001 - for event loop implementations
        return True

    def due(self, handle: asyncio.Handle) -> None:
        """A timer's time has come. One that comes while the loop is held waits behind all that
        arrives meanwhile: a loop that wakes up looks at its connections before its timers.
        """
        if self.held:
            self._overdue.append(handle)
        else:
            self._add(handle)

    def hold(self) -> None:
        """Run nothing until `let_go`."""
        self.held = True

    def let_go(self) -> None:
        """Go on."""
        self.held = False
        self._ready.extend(self._overdue)
        self._overdue.clear()
        if self._ready:
            self._wake()

    def bury(self) -> None:
        """End everything that is in here, after the process has gone.

        What runs for that reaches nothing outside, because all ports refuse; it is there so that
        tables and sets of the real process hold nothing of it.
        """
        running = asyncio._get_running_loop()  # noqa: SLF001 - the public getter raises
        self._burying = True
        self.let_go()
        left = asyncio.all_tasks(self)
        for _ in range(_BURIAL_ROUNDS):
            if not left:
                break
            for task in left:
                task.cancel()
            asyncio._set_running_loop(self)  # noqa: SLF001 - for event loop implementations
            while self._ready:
                self.turn()
            left = asyncio.all_tasks(self)
        self.close()
        asyncio._set_running_loop(running)  # noqa: SLF001 - for event loop implementations

    # --- for asyncio ---

    def time(self) -> float:
        """The world's."""
        return self._world.now

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` after everything that is ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """The same from a thread of the process; a closed loop refuses."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` in `delay` seconds of virtual time."""
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when`."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._burying:
            self._add(handle)
        else:
            self._world.timer(self, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: object,
    ) -> asyncio.Task[_T]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def is_running(self) -> bool:
        """Whether one of its callbacks runs now."""
        return asyncio._get_running_loop() is self  # noqa: SLF001 - the public getter raises

    def is_closed(self) -> bool:
        """Whether its process is gone."""
        return self._closed

    def close(self) -> None:
        """Run nothing any more."""
        self._closed = True
        self._ready.clear()
        self._overdue.clear()

    def get_debug(self) -> bool:
        """Never: the debug mode measures real time."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody awaits is an accident, unless its process is gone."""
        if not (self._closed or self._burying):
            self._world.accidents.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio tells of a cancelled timer; the world skips it when its time comes."""

    def _add(self, handle: asyncio.Handle) -> None:
        if self._closed:
            return
        self._ready.append(handle)
        if not (self.listed or self.held or self._burying):
            self._wake()

    def _wake(self) -> None:
        if not (self.listed or self._burying):
            self.listed = True
            self._world.wake(self)

    def finalize(self, generator: AsyncGenerator[object, object]) -> None:
        """An asynchronous generator was dropped half-way: close it in a task, as asyncio does."""
        if not self._closed:
            self.create_task(_closing(generator))


async def _closing(generator: AsyncGenerator[object, object]) -> None:
    await generator.aclose()
