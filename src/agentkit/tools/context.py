"""What a running tool knows about its call, and the two things it may ask of the runtime."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias, cast

from agentkit.core.contracts.errors import EntryTooLarge, RunError, StoreError
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.contracts.values import decode_value, encode_value, to_text

__all__ = ["Recorder", "Reporter", "ToolContext"]

Recorder: TypeAlias = "Callable[[str, Callable[[], Awaitable[object]]], Awaitable[JSON]]"
"""`recorder(name, produce)`: the decoded value recorded under `name` for this call; where there is
none, `await produce()`, make its encoded form durable, and return that decoded. Runs in the
runtime's loop. It is never entered twice at once for one name."""

Reporter: TypeAlias = "Callable[[str], None]"
"""`reporter(text)`: show progress. Called in the runtime's loop; must not block."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ToolContext:
    """Passed to a tool's parameter that is annotated with it; the model does not see it.

    The runtime builds one per attempt. A test may build one by hand: everything has a default, and
    `record` then keeps its values in memory.

    Args:
        idempotency_key: the same for every attempt of this call, in any process; different for
            every other call. Empty for tools without side effects.
        fencing_token: grows with each worker that takes the run over. A sink that keeps the
            highest token it saw, and refuses lower ones, is safe from a paused worker.
        run_id: the run.
        scope: whose run it is.
        identity: on whose behalf the run acts, where it was started with one.
        attempt: 1 for the first attempt of this call.
        tool: the tool's name.
        call_id: the provider's label of the call; it is no identity.
        recorder: see `Recorder`; for the runtime.
        reporter: see `Reporter`; for the runtime.
        loop: the loop in which `recorder` and `reporter` run; for the runtime.
    """

    idempotency_key: str = ""
    fencing_token: int = 0
    run_id: str = ""
    scope: Scope = field(default_factory=Scope)
    identity: str = ""
    attempt: int = 1
    tool: str = ""
    call_id: str = ""
    recorder: Recorder = field(default_factory=lambda: _in_memory({}), repr=False)
    reporter: Reporter = field(default=lambda _text: None, repr=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)
    _faults: list[BaseException] = field(default_factory=list, init=False, repr=False)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict, init=False, repr=False)

    @property
    def fault(self) -> BaseException | None:
        """The store's or run's error that `record` met first; it outweighs the tool's outcome."""
        return self._faults[0] if self._faults else None

    def progress(self, text: str) -> None:
        """Show `text` to whoever watches the run. Provisional: it is never stored or replayed.

        Returns at once, from async tools and from the threads of sync ones.
        """
        shown = to_text(str(text))
        if self.loop is None or self.loop is _running_loop():
            self.reporter(shown)
            return
        try:
            self.loop.call_soon_threadsafe(self.reporter, shown)
        except RuntimeError:
            return  # the loop is closed: nobody watches any more

    async def record(self, name: str, fn: Callable[[], object]) -> JSON:
        """Run `fn` once per call and name; later attempts get the recorded value.

        The value is durable when this returns. A crash between the end of `fn` and that moment
        leaves it unrecorded: the next attempt runs `fn` again.

        Args:
            name: the step's name, unique within the tool.
            fn: takes no arguments, sync (run in the loop) or async.

        Returns:
            The value as it is read back from the store (see the reference page "Values"), also
            the first time.

        Raises:
            ResultNotStorable: the value cannot be kept; nothing was recorded.
            StoreError: it could not be made durable. Let it pass: it ends this attempt in any
                case and leaves the run resumable.
            LeaseLost: another worker owns the run; as above.
        """
        check_id(name, what="name of a recorded step")
        raised: list[BaseException] = []

        async def produce() -> object:
            try:
                value = fn()
                return await value if inspect.isawaitable(value) else value
            except BaseException as exc:
                raised.append(exc)
                raise

        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                return await self.recorder(name, produce)
        except (StoreError, RunError) as exc:
            if exc not in raised and not isinstance(exc, EntryTooLarge):
                self._faults.append(exc)
            raise

    def record_sync(self, name: str, fn: Callable[[], object]) -> JSON:
        """`record` for sync tools: blocks the tool's thread; `fn` (sync) runs in that thread.

        Raises:
            RuntimeError: called in an event loop's thread, where it would block the loop.
        """
        if _running_loop() is not None:
            raise RuntimeError("record_sync() blocks the event loop: use `await context.record(…)`")
        if self.loop is None:
            return asyncio.run(self.record(name, fn))
        loop = self.loop
        asked: SimpleQueue[asyncio.Future[tuple[object, BaseException | None]] | None]
        asked = SimpleQueue()

        async def produce() -> object:
            answer = loop.create_future()
            asked.put(answer)
            value, exc = await answer
            if exc is None:
                return value
            # SystemExit and its like would end the loop; here they concern the tool's thread only.
            raise exc if isinstance(exc, Exception) else _StepLeft

        recorded = asyncio.run_coroutine_threadsafe(self.record(name, produce), loop)
        recorded.add_done_callback(lambda _: asked.put(None))
        answer = asked.get()
        if answer is None:
            return recorded.result()
        outcome = _outcome(fn)
        loop.call_soon_threadsafe(_settle, answer, outcome)
        try:
            return recorded.result()
        except _StepLeft:
            raise cast("BaseException", outcome[1]) from None


class _StepLeft(Exception):
    """Stands in the loop for what a step raised beside ordinary errors."""


def _outcome(fn: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return fn(), None
    except BaseException as exc:  # noqa: BLE001  # it is raised again where the value is awaited
        return None, exc


def _settle(
    answer: asyncio.Future[tuple[object, BaseException | None]],
    outcome: tuple[object, BaseException | None],
) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _in_memory(values: dict[str, str]) -> Recorder:
    async def recorder(name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        if name not in values:
            values[name] = encode_value(await produce())
        return decode_value(values[name])

    return recorder


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
