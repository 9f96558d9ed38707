"""The wrappers that hold the borders: around the store, the model and the tools.

Product code has no crash points of its own; what is tested is what is shipped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar, cast

from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort, ToolThreads
from agentkit.core.contracts.transactions import Proposal, Transaction
from agentkit.core.contracts.types import JSON
from agentkit.state.checkpoints.adapters import StoreWrapper
from agentkit.testing._shapes import shape
from agentkit.testing.crash.plan import CrashPlan
from agentkit.testing.lines import JsonLines

__all__ = ["CrashingLLM", "CrashingStore", "ShortLease", "crashing"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class CrashingStore(StoreWrapper):
    """A store with a border before and after each acquire, append, release and note.

    Args:
        inner: the store that does the work.
        plan: counts the borders.
    """

    def __init__(self, inner: JournalPort, plan: CrashPlan) -> None:
        super().__init__(inner)
        self.plan = plan

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        self.plan.border("acquire:before")
        lease = await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)
        self.plan.border("acquire:after")
        return lease

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """See `JournalPort.append`."""
        what = "note" if lease is None else "release" if release else "append"
        self.plan.border(f"{what}:before")
        head = await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )
        self.plan.border(f"{what}:after")
        return head

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """See `TransactionalPort.transact`; its append begins when the tool has ended."""

        def concluded(ended: _T) -> Proposal | None:
            self.plan.border("append:before")
            return conclude(ended)

        done = await super().transact(
            run,
            act,
            concluded,
            after=after,
            lease=lease,
            threads=threads,
            timeout_seconds=timeout_seconds,
        )
        self.plan.border("append:after")
        return done


class ShortLease(StoreWrapper):
    """A store whose leases last `seconds`, so that a test need not wait for long ones.

    The heartbeat does not come more often for it: a worker has to be done in that time, or stops.

    Args:
        inner: the store that does the work.
        seconds: the length of each lease.
    """

    def __init__(self, inner: JournalPort, seconds: float) -> None:
        super().__init__(inner)
        self.seconds = seconds

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        return await super().acquire(
            run, owner, min(ttl_seconds, self.seconds), supersede=supersede, above=above
        )


class CrashingLLM:
    """A model with a border before an attempt, between its deltas, and after its answer is paid.

    Each request and each answer is written down before anybody sees it: what was asked, and what
    was bought.

    Args:
        inner: the model that answers.
        plan: counts the borders.
        log: where requests and answers are written down.
        run: the run, for the log.
    """

    def __init__(self, inner: LLMPort, plan: CrashPlan, log: JsonLines, *, run: str) -> None:
        self._inner = inner
        self._plan = plan
        self._log = log
        self._run = run

    @property
    def origin(self) -> str:
        """The inner model's."""
        return self._inner.origin

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """See `LLMPort.attempt`. A delta is handed on in two halves, with a border between."""
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        shapes: list[JSON] = [shape(message) for message in request.messages]
        self._log.write({"kind": "asked", "run": self._run, "turn": turn, "messages": shapes})
        self._plan.border("model:before")
        async for item in self._inner.attempt(request):
            if isinstance(item, TextDelta):
                middle = len(item.text) // 2
                yield TextDelta(item.text[:middle])
                self._plan.border("model:delta")
                yield TextDelta(item.text[middle:])
                continue
            self._log.write(
                {
                    "kind": "bought",
                    "run": self._run,
                    "turn": turn,
                    "input_tokens": item.usage.input_tokens,
                    "output_tokens": item.usage.output_tokens,
                }
            )
            self._plan.border("model:after")
            yield item


def crashing(plan: CrashPlan, function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A tool's function, sync or async, with a border before it begins and after it returned."""
    if inspect.iscoroutinefunction(function):
        awaited = cast("Callable[_P, Awaitable[object]]", function)

        @functools.wraps(function)
        async def in_loop(*args: _P.args, **kwargs: _P.kwargs) -> object:
            plan.border("tool:before")
            result = await awaited(*args, **kwargs)
            plan.border("tool:after")
            return result

        return cast("Callable[_P, _R]", in_loop)

    @functools.wraps(function)
    def in_thread(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        plan.border("tool:before")
        result = function(*args, **kwargs)
        plan.border("tool:after")
        return result

    return in_thread
