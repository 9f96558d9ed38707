"""The calls of one turn while they run: started together, heard of one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NoReturn, TypeAlias

from agentkit.agents.recording import Recording
from agentkit.agents.registry import Checked
from agentkit.agents.transact import TransactionalCall
from agentkit.agents.waiting import Waiting
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, StatementRefused
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.contracts.values import to_text
from agentkit.state.journal.lanes import OPEN_OUTCOMES, CallState
from agentkit.state.journal.recovery import MAX_WHY_CHARACTERS, Verdict
from agentkit.tools import Tool, ToolContext, reconcile
from agentkit.tools.execute import Attempt, HeldBack
from agentkit.tools.outcome import Ended, judge, result_of

__all__ = ["CallRunner", "Done", "Item", "Left", "Looked", "News", "Told"]


@dataclass(frozen=True, slots=True)
class Done:
    """A call ended. `error` is what must stop the drive instead of becoming an outcome."""

    index: int
    finished: e.ToolFinished | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """A tool was asked about an attempt in doubt. `error`: as for `Done`."""

    index: int
    verdict: Verdict | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A tool reported progress."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Left:
    """A call waits; its attempt is over, and on record as such."""

    index: int


@dataclass(frozen=True, slots=True)
class News:
    """The heartbeat heard of a moved head or a lost lease."""


Item: TypeAlias = Done | Looked | Told | Left | News


class CallRunner:
    """Runs calls of one turn concurrently. What happens to them arrives in a mailbox.

    Args:
        run_id, scope, identity, epoch: of the run, for the tools' contexts.
        threads: where synchronous tools run.
        check: raises where the drive may not act any more.
        held: whether no call may begin now, whatever its intent says: its run was stopped, or may
            have been by what nobody has read yet.
        recording: makes `ToolContext.record` and `once` durable.
        waiting: records what tools wait for.
        late: hears of the outcome of an attempt that had been given up, whenever that may be.
        owner: names this worker, for the tools' contexts.
    """

    def __init__(
        self,
        *,
        run_id: str,
        scope: Scope,
        identity: str,
        epoch: int,
        threads: ToolThreads,
        check: Callable[[], None],
        held: Callable[[], bool],
        recording: Recording,
        waiting: Waiting,
        late: Callable[[e.ToolFinished], None],
        owner: str = "",
    ) -> None:
        self._run_id = run_id
        self._scope = scope
        self._identity = identity
        self._epoch = epoch
        self._owner = owner
        self._threads = threads
        self._check = check
        self._held = held
        self._recording = recording
        self._waiting = waiting
        self._late = late
        self._attempts: dict[int, Attempt] = {}
        self._transactions: dict[int, TransactionalCall] = {}
        self._under_way: dict[int, e.ToolStarted] = {}
        self._items: list[Item] = []
        self._closing = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def running(self) -> bool:
        """Whether a call is in flight, or something of one has not been heard."""
        return bool(self._attempts or self._transactions or self._items)

    @property
    def in_flight(self) -> frozenset[int]:
        """Calls whose end has not been taken from the mailbox, or whose transaction is to come."""
        return frozenset((*self._attempts, *self._transactions))

    def start(self, turn: int, call: CallState, checked: Checked) -> None:
        """Make the call now, or as soon as the drive takes its `transaction`; its intent is
        durable.
        """
        tool, arguments, started = checked.tool, checked.arguments, call.started
        if tool is None or arguments is None or started is None:
            message = f"run {self._run_id!r}: call {call.index} has no tool or intent to start by"
            raise AssertionError(message)
        self._under_way[call.index] = started
        attempt, uncounted = started.attempt, call.interrupted

        def done(ended: Ended | BaseException) -> Done:
            return _done(tool, turn, call.index, attempt, ended, tries=attempt - uncounted)

        if tool.transactional:
            self._transactions[call.index] = TransactionalCall(
                tool,
                arguments,
                self._context(call, started, tool),
                started=started,
                threads=self._threads,
                check=self._check,
                judge=lambda ended: done(ended).finished,
                leave=lambda: self._under_way.pop(call.index, None),
            )
            self._wake.set()
            return

        def report(ended: Ended | BaseException) -> None:
            end = done(ended)
            unmade = ended if isinstance(ended, Ended) and not ended.started else None
            if unmade is not None and (self._closing or unmade.held):
                end = Done(call.index, e.ToolFinished(turn, call.index, "not_started", "", attempt))
            self.tell(end)

        def late(ended: Ended) -> None:
            finished = done(ended).finished
            if finished is not None and finished.outcome not in OPEN_OUTCOMES:
                self._late(finished)

        self._attempts[call.index] = Attempt(
            tool,
            arguments,
            self._context(call, started, tool),
            key=started.key,
            threads=self._threads,
            check=self._check_begin,
            report=report,
            late=late,
        )

    def ask(self, call: CallState, checked: Checked) -> None:
        """Ask the call's tool what became of its newest attempt."""
        tool, arguments, started = checked.tool, checked.arguments, call.started
        look = tool.reconcile if tool is not None else None
        if tool is None or arguments is None or started is None or look is None:
            message = f"run {self._run_id!r}: nobody can be asked about call {call.index}"
            raise AssertionError(message)
        wanted = {parameter.name for parameter in look.signature.parameters}
        self._attempts[call.index] = Attempt(
            look,
            {name: value for name, value in arguments.items() if name in wanted},
            replace(
                self._context(call, started, tool),
                recorder=_not_by_looking,
                keeper=_not_by_looking,
                waiter=_not_by_looking,
            ),
            key="",
            threads=self._threads,
            check=self._check,
            report=lambda ended: self.tell(_looked(tool, call.index, ended)),
        )

    async def next(self) -> list[Item]:
        """Wait until something happened or a transaction is due; a call that ended is no longer in
        flight.
        """
        while not (self._items or self._transactions):
            self._wake.clear()
            await self._wake.wait()
        return self._take()

    def transaction(self) -> TransactionalCall | None:
        """The next call to be made in a transaction, if there is one; no longer in flight."""
        for index in self._transactions:
            return self._transactions.pop(index)
        return None

    async def close(self) -> None:
        """Cancel what runs and wait for it to let go; then nothing more is heard of it."""
        self._closing = True
        try:
            await Attempt.stop(self._attempts.values())
        finally:
            self._under_way.clear()
            self._transactions.clear()

    def ended(self) -> list[Done]:
        """Once closed: what had ended by itself, or had not begun. Whether a tool that was
        cancelled took effect is not known, so it has no outcome.
        """
        attempts = self._attempts.copy()
        return [
            item
            for item in self._take()
            if isinstance(item, Done)
            and (not attempts[item.index].interrupted or _is_known(item.finished))
        ]

    def tell(self, item: Item) -> None:
        """Put something into the mailbox; only from the drive's own thread."""
        self._items.append(item)
        self._wake.set()

    def tell_threadsafe(self, item: Item) -> None:
        """Put something into the mailbox from any thread; too late is no error."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.tell, item)

    def _take(self) -> list[Item]:
        items, self._items = self._items, []
        for item in items:
            if isinstance(item, Done | Looked | Left):
                self._attempts.pop(item.index, None)
                self._under_way.pop(item.index, None)
        return items

    def _context(self, call: CallState, started: e.ToolStarted, tool: Tool) -> ToolContext:
        return ToolContext(
            tool=tool.name,
            call_id=call.record.id,
            run_id=self._run_id,
            scope=self._scope,
            identity=self._identity,
            idempotency_key=started.key,
            fencing_token=self._epoch,
            owner=self._owner,
            attempt=started.attempt,
            recorder=lambda name, produce: self._record(started, name, produce),
            keeper=lambda key, ttl, produce: self._keep(started, key, ttl, produce),
            reporter=lambda text: self._report(started, text),
            waiter=self._waiting.waiter(
                started,
                under_way=lambda: self._under_way.get(started.index) is started,
                check=lambda name: self._check_attempt(started, name),
                leave=lambda: self._leave(started),
            ),
            loop=self._loop,
        )

    def _check_begin(self) -> None:
        """Right before a tool is entered, maybe long after it was dispatched."""
        self._check()
        if self._held():
            raise HeldBack

    async def _record(
        self, started: e.ToolStarted, name: str, produce: Callable[[], Awaitable[object]]
    ) -> JSON:
        self._check_attempt(started, name)
        return await self._recording.record(started.index, name, produce)

    async def _keep(
        self,
        started: e.ToolStarted,
        key: str,
        ttl_seconds: float,
        produce: Callable[[], Awaitable[object]],
    ) -> JSON:
        self._check_attempt(started, key)
        return await self._recording.once(key, ttl_seconds, produce)

    def _leave(self, started: e.ToolStarted) -> None:
        """End an attempt that waits."""
        attempt = self._attempts.get(started.index)
        if attempt is not None and self._under_way.get(started.index) is started:
            del self._under_way[started.index]
            attempt.leave()
            self.tell(Left(started.index))

    def _check_attempt(self, started: e.ToolStarted, name: str) -> None:
        """Refuse an attempt that was left behind when it ran out of time or its drive ended:
        another call may stand in its place by now.
        """
        if started.transactional:
            text = "a transactional tool is one unit already: it takes no record(), once() or wait"
            raise StatementRefused(f"{started.name}: {text}, so {name!r} was not done")
        if self._under_way.get(started.index) is not started:
            text = f"this attempt at {started.name} is over, so {name!r} was not done"
            raise LeaseLost(f"run {self._run_id!r}: {text}", run_id=self._run_id)

    def _report(self, started: e.ToolStarted, text: str) -> None:
        if self._under_way.get(started.index) is started:
            self.tell(Told(started.index, text))


async def _not_by_looking(*_: object) -> NoReturn:
    raise StatementRefused("a reconcile function only looks: it takes no record(), once() or wait")


def _is_known(finished: e.ToolFinished | None) -> bool:
    return finished is not None and finished.outcome in {"ok", "not_started"}


def _done(
    tool: Tool,
    turn: int,
    index: int,
    attempt: int,
    ended: Ended | BaseException,
    *,
    tries: int,
) -> Done:
    """What the end of this attempt means, which is number `tries` of those that count."""
    if isinstance(ended, BaseException):
        return Done(index, None, ended)
    result = judge(tool, ended, tries)
    outcome: e.Outcome = "retrying" if result.retry else result.outcome
    return Done(index, e.ToolFinished(turn, index, outcome, result.content, attempt))


def _looked(tool: Tool, index: int, ended: Ended | BaseException) -> Looked:
    if isinstance(ended, BaseException):
        return Looked(index, None, ended)
    found = ended.value
    match found:
        case reconcile.Done(result=value):
            known = result_of(tool, value)
            return Looked(index, Verdict("happened", known.content, known.outcome))
        case reconcile.CannotHappen():
            return Looked(index, Verdict("cannot_happen"))
        case reconcile.Unknown():
            why = to_text(str(found.why))
        case _ if ended.timed_out:
            why = f"it took longer than {tool.timeout:g} seconds"
        case _ if ended.error is not None:
            why = judge(tool, ended, 1).content
        case _:
            why = f"it returned a {type(found).__name__} instead of Done, CannotHappen or Unknown"
    return Looked(index, Verdict("unknown", why[:MAX_WHY_CHARACTERS]))
