"""The loop. Every run, new or resumed, goes through `Drive.events` and nothing else does.

    decide → record the intent → act → record the outcome → fold, and again

Every act has its intent on disk before it, and every event is built from an entry that is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from agentkit.agents.asking import SLACK_SECONDS, Asking
from agentkit.agents.attention import Attention
from agentkit.agents.calls import Done, Item, Left, Looked, News, Told
from agentkit.agents.claim import Claimed
from agentkit.agents.decide import (
    Action,
    Ask,
    Dispatch,
    Leave,
    Record,
    after_answer,
    answered_by,
    decide,
    due_calls,
    ends_tenure,
    last_words,
    open_turn,
    split_told,
)
from agentkit.agents.listening import Listener
from agentkit.agents.pump import told_while_running
from agentkit.agents.registry import ToolRegistry
from agentkit.agents.reports import Reports
from agentkit.agents.result import AgentEvent
from agentkit.agents.runners import runner_for
from agentkit.agents.spec import AgentSpec
from agentkit.agents.telling import CurrentTurn, Teller
from agentkit.agents.transact import TransactionalCall
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunError, StoreError
from agentkit.core.contracts.model import ModelReply, TextDelta
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.runtime import Invoker, RunContext
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lanes import LaneState, TurnState
from agentkit.state.journal.recovery import CallPolicy, Verdict, plan_turn

__all__ = ["Drive"]

_log = logging.getLogger(__name__)


class Drive:
    """One tenure of one worker on one run.

    Args:
        claimed: the run, its lease taken.
        spec, registry: the agent's definition; what is sent to the model is the recorded one.
        context: whose run it is and what it works with.
        invoker: the model.
        threads: where synchronous tools run.
        attention: by which the drive is reached while it waits.
        stream: whether text deltas are wanted.

    Attributes:
        listener: hears what the heartbeat has to tell.
    """

    def __init__(
        self,
        claimed: Claimed,
        *,
        spec: AgentSpec,
        registry: ToolRegistry,
        context: RunContext,
        invoker: Invoker,
        threads: ToolThreads,
        attention: Attention,
        stream: bool,
    ) -> None:
        self._journal, self._tenure, self._heartbeat = claimed
        self._epoch = self._tenure.lease.epoch
        self._spec = spec
        self._services = context.services
        self._attention = attention
        self._turn = CurrentTurn(registry, context)
        self._teller = Teller(self._turn)
        self._dispatched: set[tuple[int, int]] = set()
        self._ended: dict[int, e.ToolFinished] = {}
        self._moved = False
        self._verdicts: dict[int, Verdict] = {}
        self._reports = Reports(self._journal, spec, token=context.services.chance.token)
        self._runner = runner_for(
            self._journal,
            self._tenure,
            context,
            lane=spec.lane,
            threads=threads,
            late=self._reports.tell_later,
        )
        clock, wake = context.services.clock, partial(self._runner.tell, News())
        self.listener = Listener(
            self._journal, attention, lose=self._tenure.lose, clock=clock, wake=wake
        )
        self._asking = Asking(
            self._tenure,
            spec,
            invoker,
            services=context.services,
            attention=attention,
            listener=self.listener,
            stream=stream,
        )

    @property
    def state(self) -> RunState:
        """The run as far as it is durable."""
        return self._journal.state

    @property
    def _lane(self) -> LaneState:
        return self.state.lane(self._spec.lane)

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """Drive the run until it ends, is parked or waits, telling what happens.

        Closing this generator, or cancelling the task that waits for it, leaves the run resumable
        with the lease released.
        """
        try:
            turn = open_turn(self.state, self._spec)
            for event in self._teller.opening(self._lane, turn, found=self.state.seq):
                yield event
            while not self._journal.released:  # the lease goes with the last entries
                self._tenure.check()
                action = self._decide(self.state)
                if isinstance(action, Leave) or self._attention.draining:
                    break
                if isinstance(action, Record):
                    for event in await self._record(self._again):
                        yield event
                    continue
                acting = self._ask(action) if isinstance(action, Ask) else self._dispatch(action)
                async with aclosing(acting):
                    async for event in acting:
                        yield event
            if self.state.cancel is not None and not self._journal.released:
                for event in await self._end_cancelled():
                    yield event
        finally:
            try:
                await self._close()
            finally:
                self._heartbeat.unwatch(self._tenure)

    # --- deciding and recording --------------------------------------------------------------

    def _decide(self, state: RunState) -> Action:
        turn = open_turn(state, self._spec)
        policies = [] if turn is None else self._policies(turn)
        return decide(state, self._spec, policies, epoch=self._epoch, now_ms=self._now_ms())

    def _policies(self, turn: TurnState) -> list[CallPolicy]:
        return self._turn.policies(turn, autonomy=self.state.autonomy)

    def _now_ms(self) -> int:
        return int(self._services.clock.now() * 1000)

    def _again(self, state: RunState) -> Sequence[e.Body]:
        """`decide` on the newest state, where it says to record something."""
        action = self._decide(state)
        return action.bodies if isinstance(action, Record) else ()

    async def _record(self, build: Callable[[RunState], Sequence[e.Body]]) -> list[AgentEvent]:
        """Append what `build` says and tell of it."""
        entries = await self._journal.commit(build, lane=self._spec.lane, release=ends_tenure)
        self._tenure.note_seen(self.state.seq)
        return self._teller.tell(entries, self._lane.turn)

    # --- the model ---------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> AsyncGenerator[AgentEvent, None]:
        """One attempt at the model, its answer and the intents that follow in one append."""
        reply: ModelReply | None = None
        streamed = False
        async with aclosing(self._asking.attempt(ask, self.state)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    reply = item
                elif isinstance(item, TextDelta):
                    streamed = True
                    yield AgentEvent("message_delta", item.text)
                else:
                    await self._record(item.recorded)
                    self._asking.under_way = None
                    if streamed:
                        yield AgentEvent("message_reset")
        if reply is None:
            return
        answered = answered_by(ask, reply)
        self._dispatched.clear()
        known = {"epoch": self._epoch, "now_ms": self._now_ms(), "said": self._asking.said}
        policies = self._policies(TurnState(answered))
        events = await self._record(
            lambda state: self.listener.held(
                after_answer(state, self._spec, answered, policies, **known)
            )
        )
        self._asking.under_way = None
        for event in events:
            yield event

    # --- the tools ---------------------------------------------------------------------------

    async def _dispatch(self, action: Dispatch) -> AsyncGenerator[AgentEvent, None]:
        """Make the calls whose intents are durable, and record each outcome as it comes."""
        self._start(action)
        while self._acting():
            events = await self._step()
            telling = told_while_running(events, self._step, self._acting)
            async with aclosing(telling):
                async for event in telling:
                    yield event

    def _acting(self) -> bool:
        return self._runner.running() and not self.listener.must_stop()

    async def _step(self) -> list[AgentEvent]:
        """Wait until something happened to the calls, record it, and tell."""
        items = await self._runner.next()
        events = [
            AgentEvent("progress", item.text, call=self._turn.call(item.index))
            for item in items
            if isinstance(item, Told)
        ]
        self._take(items)
        events += await self._settle()
        call = self._runner.transaction()
        if call is not None:
            events += await self._transact(call)
        return events

    async def _settle(self) -> list[AgentEvent]:
        """Record what has ended, and begin what follows from it."""
        if not (self._ended or self._verdicts or self._moved):
            return []
        self._moved = False
        events = await self._record(self._after_outcomes)
        self._ended.clear()
        self._verdicts.clear()
        self._start(self._due())
        return events

    async def _transact(self, call: TransactionalCall) -> list[AgentEvent]:
        """Make a call whose outcome is recorded in its own transaction, or not at all."""

        def build(state: RunState, finished: e.ToolFinished) -> Sequence[e.Body]:
            return self._after_outcomes(state, {call.index: finished})

        entries, failed = await call.make(self._journal, build, spec=self._spec)
        if failed is not None:
            self._ended[call.index] = failed
            return await self._settle()
        self._tenure.note_seen(self.state.seq)
        events = self._teller.tell(entries, self._lane.turn)
        self._start(self._due())
        return events

    def _due(self) -> Dispatch:
        lane = self._lane
        if lane.turn is None or lane.turn.closed or self._attention.draining:
            return Dispatch([], [])
        policies = self._policies(lane.turn)
        flying = self._runner.in_flight
        return due_calls(
            self.state, lane.turn, policies, lane=lane, epoch=self._epoch, in_flight=flying
        )

    def _start(self, due: Dispatch) -> None:
        """Dispatch; after this a call is in doubt until its outcome is recorded."""
        turn = self._lane.turn
        if turn is None:
            return
        looked_up = self._turn.look_up(turn)
        for call in (*due.calls, *due.doubt):
            checked = looked_up[call.index]
            if checked.tool is None:
                message = f"run {self.state.run_id!r}: call {call.index} has an intent but no tool"
                raise AssertionError(message)
            self._tenure.busy(checked.tool.timeout + SLACK_SECONDS)
            self._tenure.check()
            if call in due.doubt:
                self._runner.ask(call, checked)
                continue
            if not checked.tool.transactional:  # without outcome it has not been made
                self._dispatched.add((call.index, call.attempt))
            self._runner.start(turn.answer.turn, call, checked)

    def _take(self, items: Sequence[Item]) -> None:
        """Keep the outcomes among `items` until they are recorded; raise what must stop us."""
        errors = []
        for item in items:
            if isinstance(item, Done) and item.finished is not None:
                self._ended[item.index] = item.finished
            elif isinstance(item, Looked) and item.verdict is not None:
                self._verdicts[item.index] = item.verdict
            elif isinstance(item, Done | Looked) and item.error is not None:
                errors.append(item.error)
            elif isinstance(item, News):
                self._stop_if_lost()
                self._moved = True
            elif isinstance(item, Left):
                self._moved = True
        if errors:
            raise errors[0]

    def _stop_if_lost(self) -> None:
        """Give up what runs when another worker has the run. A lease that merely may have lapsed
        only stops new acts: what is under way can still bring its outcome home.
        """
        if self._tenure.lost:
            self._tenure.check()

    def _after_outcomes(
        self, state: RunState, known: dict[int, e.ToolFinished] | None = None
    ) -> Sequence[e.Body]:
        lane = state.lane(self._spec.lane)
        turn = lane.turn
        if turn is None:
            return ()
        ended, overtaken = split_told(turn, known or self._ended)
        planned = plan_turn(
            state,
            turn,
            self._policies(turn),
            lane=lane,
            epoch=self._epoch,
            outcomes=ended,
            verdicts=self._verdicts,
            in_flight=self._runner.in_flight,
            now_ms=self._now_ms(),
        )
        return [*ended.values(), *overtaken, *self.listener.held(planned)]

    async def _close(self) -> None:
        """End the tenure in order: keep what ended, close what never began, release."""
        self.listener.close()
        cancelled = await self._let_go()
        if not (self._tenure.lost or self._journal.fenced or self._journal.released):
            await self._release()
        if self._tenure.lost or self._journal.fenced:  # also where the release has found it out
            await self._reports.tell(list(self._ended.values()))
        if cancelled is not None:
            raise cancelled

    async def _let_go(self) -> asyncio.CancelledError | None:
        """Cut off the calls that run, and keep what is known of them."""
        cancelled: asyncio.CancelledError | None = None
        try:
            await self._runner.close()
        except asyncio.CancelledError as exc:
            cancelled = exc  # once more: what is left takes one append, then it counts
        try:
            self._take(self._runner.ended())
        except Exception as error:  # noqa: BLE001 - what ended the drive is on its way already
            _log.warning("run %r: a call ended badly: %r", self.state.run_id, error)
        return cancelled

    async def _end_cancelled(self) -> list[AgentEvent]:
        """Carry out the cancel that somebody asked for."""
        if cancelled := await self._let_go():
            raise cancelled
        entries = await self._journal.commit(
            self._last, lane=self._spec.lane, release=lambda _: True
        )
        return self._teller.tell(entries, self._lane.turn)

    async def _release(self) -> None:
        try:
            await self._journal.commit(self._last, lane=self._spec.lane, release=lambda _: True)
        except (StoreError, RunError) as error:
            _log.warning("run %r: lease not released, it will lapse: %s", self.state.run_id, error)

    def _last(self, state: RunState) -> Sequence[e.Body]:
        return last_words(
            state,
            self._spec,
            epoch=self._epoch,
            ended=self._ended,
            dispatched=self._dispatched,
            asking=self._asking.under_way,
        )
