"""What tools wait for, as it is recorded in the run's journal."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.contracts.types import INPUT_ANSWERS
from agentkit.core.contracts.values import canonical, decode_value, digest
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal
from agentkit.state.journal.lanes import CallState, WaitState
from agentkit.tools.waiting import Waited, Waiter, WaitFor

__all__ = ["MAX_IGNORED_ENDS", "AnswerUnused", "Waiting"]

MAX_IGNORED_ENDS = 100
"""How often a tool whose attempt is over may wait again before it is held for good."""


_UNNAMED = "ask:"


class AnswerUnused(UserWarning):
    """A tool asks anew and has not asked again what was answered: its prompt may have changed."""


class Waiting:
    """Records the waits of the calls of a lane's newest turn.

    Args:
        journal: of the run.
        lane: whose calls.
        check: raises where the drive may not act any more.
        clock: for deadlines.
    """

    def __init__(
        self, journal: Journal, *, lane: str, check: Callable[[], None], clock: ClockPort
    ) -> None:
        self._journal = journal
        self._lane = lane
        self._check = check
        self._clock = clock

    def waiter(
        self,
        started: e.ToolStarted,
        *,
        under_way: Callable[[], bool],
        check: Callable[[str], None],
        leave: Callable[[], None],
    ) -> Waiter:
        """What one attempt is given to wait by.

        Args:
            started: the attempt.
            under_way: whether it still is.
            check: raises where it may not wait, given the wait's name.
            leave: ends it, because it waits.
        """
        return _Rest(self, started, under_way=under_way, check=check, leave=leave).wait

    async def wait(self, started: e.ToolStarted, wanted: WaitFor) -> Waited | None:
        """The end of this wait, where it had one before; else it is on record from now on that the
        attempt waits for it, and so is to be left.
        """
        known = self._known(started, wanted.name, self._journal.state)
        if known is None or not known.ended:
            self._check()
            await self._journal.commit(
                lambda state: self._begin(state, started, wanted), lane=self._lane
            )
            known = self._known(started, wanted.name, self._journal.state)
        if known is None or not known.ended or known.attempt == started.attempt:
            return None
        return Waited(known.how, decode_value(known.value))

    def warn_of_unused(self, started: e.ToolStarted, asked: Collection[str]) -> None:
        """Warn where an attempt that is to be left waits for an unnamed question and has not come
        to another one that was answered. It is no error: who records answers may pass them over.
        """
        waits = self._call(started, self._journal.state).waits
        unnamed = {
            name: wait
            for name, wait in waits.items()
            if wait.question is not None and name.startswith(_UNNAMED)
        }
        waiting = [name for name, wait in unnamed.items() if name in asked and not wait.ended]
        unused = [name for name, wait in unnamed.items() if wait.ended and name not in asked]
        if waiting and unused:
            message = (
                f"run {self._journal.state.run_id!r}: {started.name} asks {waiting[-1][:90]!r} and "
                f"has not asked {unused[-1][:90]!r} again, whose answer is not used. Where this is "
                "one question whose prompt changes, give it a name: ask(prompt, name=…)"
            )
            warnings.warn(message, AnswerUnused, stacklevel=2)

    def _begin(self, state: RunState, started: e.ToolStarted, wanted: WaitFor) -> Sequence[e.Body]:
        known = self._known(started, wanted.name, state)
        if known is not None and (known.ended or known.attempt == started.attempt):
            return ()
        if state.cancel is not None:
            return ()  # nobody is asked any more: the attempt is left, and its run ends
        now_ms = int(self._clock.now() * 1000)
        until = wanted.until
        if until is None:
            until = 0 if wanted.seconds is None else now_ms + int(wanted.seconds * 1000)
        if known is None and wanted.kind == "input":
            return [_question(self._call(started, state), started, wanted, until)]
        begun = e.WaitStarted(
            started.turn,
            started.index,
            wanted.name,
            wanted.kind,
            until,
            wanted.event,
            wanted.on_deadline,
        )
        return [begun]

    def _known(self, started: e.ToolStarted, name: str, state: RunState) -> WaitState | None:
        return self._call(started, state).waits.get(name)

    def _call(self, started: e.ToolStarted, state: RunState) -> CallState:
        turn = state.lane(self._lane).turn
        if turn is None or turn.answer.turn != started.turn:
            message = f"run {state.run_id!r}: {started.name} waited outside its call"
            raise AssertionError(message)
        return turn.calls[started.index]


class _Rest:
    """The waits of one attempt. It is left as soon as none of them is being recorded, so that all
    which it began together are on record.
    """

    def __init__(
        self,
        waiting: Waiting,
        started: e.ToolStarted,
        *,
        under_way: Callable[[], bool],
        check: Callable[[str], None],
        leave: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self._started = started
        self._under_way = under_way
        self._check = check
        self._leave_attempt = leave
        self._loop = asyncio.get_running_loop()
        self._recording = self._ignored = 0
        self._asked: set[str] = set()
        self._sleepers: list[asyncio.Future[Waited]] = []

    async def wait(self, wanted: WaitFor) -> Waited:
        """The end of a wait that has one; any other one is recorded, and the attempt left."""
        if not self._under_way():
            return await self._over()
        self._check(wanted.name)
        self._asked.add(wanted.name)
        self._recording += 1
        try:
            ended = await self._waiting.wait(self._started, wanted)
        finally:
            self._recording -= 1
        if ended is not None:
            return ended
        self._loop.call_soon(self._leave)
        sleeper: asyncio.Future[Waited] = self._loop.create_future()
        self._sleepers.append(sleeper)
        return await sleeper

    async def _over(self) -> NoReturn:
        """For a tool that goes on although its attempt is over: it is cancelled whenever it waits
        again. One that never lets go is held, so that it does not keep the loop busy.
        """
        turn = self._loop.create_future()
        if self._ignored < MAX_IGNORED_ENDS:
            self._ignored += 1
            self._loop.call_soon(turn.set_result, None)
        await turn
        raise asyncio.CancelledError

    def _leave(self) -> None:
        if self._recording or not self._under_way():
            return
        self._waiting.warn_of_unused(self._started, self._asked)
        self._leave_attempt()
        for sleeper in self._sleepers:
            sleeper.cancel()


def _question(
    call: CallState, started: e.ToolStarted, wanted: WaitFor, until: int
) -> e.QuestionAsked:
    return e.QuestionAsked(
        turn=started.turn,
        index=started.index,
        kind="input",
        tool=started.name,
        arguments=canonical(call.arguments),
        digest=digest(started.name, call.arguments),
        answers=INPUT_ANSWERS,
        prompt=wanted.prompt,
        deadline=until,
        on_deadline=wanted.on_deadline,
        name=wanted.name,
        schema=wanted.schema,
    )
