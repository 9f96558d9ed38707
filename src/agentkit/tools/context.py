"""What a running tool knows about its call, and what it may ask of the runtime."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError as CancelledInThread
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias, TypeVar, cast

from agentkit.core.contracts.errors import EntryTooLarge, RunError, StoreError
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.contracts.values import decode_value, encode_value, to_text
from agentkit.tools.waiting import AttemptLeft, CanWait, Waited, Waiter, WaitFor

__all__ = ["Keeper", "Recorder", "Reporter", "ToolContext"]

_T = TypeVar("_T")

Recorder: TypeAlias = "Callable[[str, Callable[[], Awaitable[object]]], Awaitable[JSON]]"
"""`recorder(name, produce)`: the decoded value recorded under `name` for this call; where there is
none, `await produce()`, make its encoded form durable, and return that decoded. Runs in the
runtime's loop. It is never entered twice at once for one name."""

Keeper: TypeAlias = "Callable[[str, float, Callable[[], Awaitable[object]]], Awaitable[JSON]]"
"""`keeper(key, ttl_seconds, produce)`: the decoded value kept under `key`; where nobody has claimed
it, claim it, `await produce()`, keep its encoded form, and return that decoded. Runs in the
runtime's loop."""

Reporter: TypeAlias = "Callable[[str], None]"
"""`reporter(text)`: show progress. Called in the runtime's loop; must not block."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ToolContext(CanWait):
    """Passed to a tool's parameter that is annotated with it; the model does not see it.

    The runtime builds one per attempt. A test may build one by hand: everything has a default, and
    `record` and `once` then keep their values in memory, for as long as the context lives.

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
        owner: names the worker that makes the attempt, as its lease does.
        recorder, keeper, reporter, waiter: see `Recorder`, `Keeper`, `Reporter`, `Waiter`; for the
            runtime.
        loop: the loop in which these run; for the runtime.
    """

    idempotency_key: str = ""
    fencing_token: int = 0
    run_id: str = ""
    scope: Scope = field(default_factory=Scope)
    identity: str = ""
    attempt: int = 1
    tool: str = ""
    call_id: str = ""
    owner: str = ""
    recorder: Recorder = field(default_factory=lambda: _in_memory({}), repr=False)
    keeper: Keeper = field(default_factory=lambda: _kept_in_memory({}), repr=False)
    reporter: Reporter = field(default=lambda _text: None, repr=False)
    waiter: Waiter = field(default_factory=lambda: _nobody_to_wait_for, repr=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)
    _faults: list[BaseException] = field(default_factory=list, init=False, repr=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _left: list[bool] = field(default_factory=list, init=False, repr=False)
    _locks: dict[tuple[str, str], asyncio.Lock] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def fault(self) -> BaseException | None:
        """The store's or run's error that `record` or `once` met first; it outweighs the tool's
        outcome.
        """
        return self._faults[0] if self._faults else None

    @property
    def left(self) -> bool:
        """Whether this attempt was left because the tool waits: its end says nothing then."""
        return bool(self._left)

    def leave(self) -> None:
        """For the runtime: the attempt is over, whatever the tool makes of that."""
        self._left.append(True)

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
        return await self._guarded(
            ("record", name), fn, lambda produce: self.recorder(name, produce)
        )

    def record_sync(self, name: str, fn: Callable[[], object]) -> JSON:
        """`record` for sync tools: blocks the tool's thread; `fn` (sync) runs in that thread.

        Raises:
            RuntimeError: called in an event loop's thread, where it would block the loop.
        """
        return self._from_thread("record", lambda step: self.record(name, step), fn)

    async def once(self, key: str, ttl_seconds: float, fn: Callable[[], object]) -> JSON:
        """Run `fn` at most once within `ttl_seconds`, whoever asks: for sinks without keys of their
        own.

        Within that time, from the first call on, every later call with this key gets the value of
        the first: in any run, tool, attempt and process of this scope. That `fn` is about to run is
        durable before it does, and its value after; in between, and after a crash or an exception
        in between, nobody knows whether it took effect. Then, until the time is over, `fn` is not
        run again by anybody.

        Args:
            key: names the effect, such as `mail:order-17`; checked like an id.
            ttl_seconds: for how long.
            fn: takes no arguments, sync (run in the loop) or async.

        Returns:
            The value as it is read back from the store (see the reference page "Values"), also
            the first time.

        Raises:
            OutcomeUnknown: somebody is at it, or was and never said how it ended. Let it pass: it
                makes the call one in doubt.
            ResultNotStorable: `fn` ran, and its value cannot be kept.
            StoreError, LeaseLost: as for `record`.
            ValueError: `ttl_seconds` is not a positive number.
        """
        check_id(key, what="key")
        number = isinstance(ttl_seconds, int | float) and not isinstance(ttl_seconds, bool)
        if not number or not 0 < ttl_seconds < math.inf:
            raise ValueError(f"ttl_seconds must be a positive number, not {ttl_seconds!r}")
        return await self._guarded(
            ("once", key), fn, lambda produce: self.keeper(key, ttl_seconds, produce)
        )

    def once_sync(self, key: str, ttl_seconds: float, fn: Callable[[], object]) -> JSON:
        """`once` for sync tools: blocks the tool's thread; `fn` (sync) runs in that thread.

        Raises:
            RuntimeError: called in an event loop's thread, where it would block the loop.
        """
        return self._from_thread("once", lambda step: self.once(key, ttl_seconds, step), fn)

    async def _guarded(
        self,
        place: tuple[str, str],
        fn: Callable[[], object],
        keep: Callable[[Callable[[], Awaitable[object]]], Awaitable[JSON]],
    ) -> JSON:
        """`keep` with `fn`, one at a time for each place; whatever fails beside `fn` is a fault."""
        raised: list[BaseException] = []

        async def produce() -> object:
            try:
                value = fn()
                return await value if inspect.isawaitable(value) else value
            except BaseException as exc:
                raised.append(exc)
                raise

        try:
            async with self._locks.setdefault(place, asyncio.Lock()):
                return await keep(produce)
        except (StoreError, RunError) as exc:
            if exc not in raised and not isinstance(exc, EntryTooLarge):
                self._faults.append(exc)
            raise

    def _from_thread(
        self,
        what: str,
        keep: Callable[[Callable[[], object]], Coroutine[object, object, JSON]],
        fn: Callable[[], object],
    ) -> JSON:
        """`keep` in the runtime's loop, with `fn` in this thread."""
        if _running_loop() is not None:
            raise RuntimeError(
                f"{what}_sync() blocks the event loop: use `await context.{what}(…)`"
            )
        if self.loop is None:
            return asyncio.run(keep(fn))
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

        recorded = asyncio.run_coroutine_threadsafe(keep(produce), loop)
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

    def _wait_in_thread(self, what: str, waiting: Coroutine[object, object, _T]) -> _T:
        if _running_loop() is not None:
            waiting.close()
            raise RuntimeError(
                f"{what}_sync() blocks the event loop: use `await context.{what}(…)`"
            )
        if self.loop is None:
            return asyncio.run(waiting)
        if self.left:
            waiting.close()
            raise AttemptLeft
        try:
            return asyncio.run_coroutine_threadsafe(waiting, self.loop).result()
        except CancelledInThread:
            raise AttemptLeft from None


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


def _kept_in_memory(values: dict[str, str]) -> Keeper:
    recorder = _in_memory(values)
    return lambda key, _ttl_seconds, produce: recorder(key, produce)


async def _nobody_to_wait_for(wanted: WaitFor) -> Waited:
    raise RuntimeError(f"{wanted.name}: a tool can only wait in a run; give the context a waiter")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
