"""Every await of a run, one after the other: to cancel it there, or to start a rival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["Suspensions", "cancelled_at"]

_T = TypeVar("_T")


class Suspensions:
    """Counts how often tasks of this loop suspend, and does something at some of these moments.

    A suspension is a return to the event loop, wherever it happens: in the model, in a tool, in an
    append that waits for the disk, in the closing of a stream.

    Args:
        at: the numbers of the suspensions, from 1.
        do: called at each of them, before the loop goes on.

    Attributes:
        count: how many there were so far.
        done: how often `do` was called.
    """

    def __init__(self, at: Collection[int], do: Callable[[], object]) -> None:
        self.count = 0
        self.done = 0
        self._at = at
        self._do = do

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count those of all tasks that are begun within the `with` statement."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def make(
            loop: asyncio.AbstractEventLoop,
            coroutine: Coroutine[Any, Any, _T],
            context: Context | None = None,
        ) -> asyncio.Task[_T]:
            return asyncio.Task(_Watched(coroutine, self._pass), loop=loop, context=context)

        loop.set_task_factory(make)  # type: ignore[arg-type]  # typeshed has the generator form too
        try:
            yield
        finally:
            loop.set_task_factory(before)

    def _pass(self) -> None:
        self.count += 1
        if self.count in self._at:
            self.done += 1
            self._do()


async def cancelled_at(coroutine: Coroutine[Any, Any, object], at: Collection[int]) -> int:
    """Run a coroutine in a task of its own, and cancel that task at these suspensions of it or of
    any task that it starts.

    Returns:
        How often it was cancelled; fewer times than asked for where it had ended before.

    Raises:
        AssertionError: it was cancelled while it ran, and swallowed that.
        Exception: what it raised instead.
    """
    requested: list[bool] = []
    suspensions = Suspensions(at, lambda: requested.append(task.cancel()))
    with suspensions.counted():
        task = asyncio.create_task(coroutine)
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()
        if any(requested):
            raise AssertionError(f"it was cancelled at suspension {min(at)} and returned a result")
    return sum(requested)


class _Watched(Coroutine[Any, Any, _T]):
    """A coroutine that tells of each suspension."""

    def __init__(self, inner: Coroutine[Any, Any, _T], tell: Callable[[], None]) -> None:
        self._inner = inner
        self._tell = tell

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as the base class has it
        waits_for = self._inner.send(value)
        self._tell()
        return waits_for

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as the base class has it
        waits_for = self._inner.throw(*error)
        self._tell()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._inner.__await__()
