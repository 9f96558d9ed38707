"""The loop. Every run, new or resumed, goes through `Drive.events` and nothing else does.

    decide → record the intent → act → record the outcome → fold, and again

Every act has its intent on disk before it, and every event is built from an entry that is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from agentkit.agents.calls import CallRunner, Done, Item, News, Told
from agentkit.agents.claim import Claimed
from agentkit.agents.decide import (
    Ask,
    Dispatch,
    Leave,
    Record,
    decide,
    ending,
    ends_tenure,
    open_turn,
    parked_by,
)
from agentkit.agents.registry import Checked, ToolRegistry
from agentkit.agents.result import AgentEvent
from agentkit.agents.spec import AgentSpec, bare_model
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, ModelError, StoreError
from agentkit.core.contracts.model import ModelReply, ModelRequest
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.types import JSON, ToolCall
from agentkit.core.contracts.values import decode_value, encode_value
from agentkit.core.runtime import Invoker, RunContext
from agentkit.core.runtime.retry import next_retry
from agentkit.state.journal.fold import RunState, TurnState
from agentkit.state.journal.recovery import CallPolicy, plan_turn

__all__ = ["Drive"]

_log = logging.getLogger(__name__)

SLACK_SECONDS = 60.0
"""What a drive's lease is kept for beyond an act's own deadline, for the append that follows."""


class Drive:
    """One tenure of one worker on one run.

    Args:
        claimed: the run, its lease taken.
        spec, registry: the agent's definition; what is sent to the model is the recorded one.
        context: whose run it is and what it works with.
        invoker: the model.
        threads: where synchronous tools run.
        stream: whether text deltas are wanted.
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
        stream: bool,
    ) -> None:
        self._journal, self._tenure, lease = claimed
        self._epoch = lease.epoch
        self._spec = spec
        self._registry = registry
        self._invoker = invoker
        self._clock = context.services.clock
        self._stream = stream
        self._chance = context.services.chance
        self._checked: tuple[int, list[Checked]] = (0, [])
        self._asking: Ask | None = None
        self._dispatched: set[int] = set()
        self._told = 0
        self._over = False
        self._runner = CallRunner(
            run_id=context.correlation_id,
            scope=context.scope,
            identity=context.identity,
            epoch=lease.epoch,
            threads=threads,
            recorder=self._record_value,
        )

    @property
    def state(self) -> RunState:
        """The run as far as it is durable."""
        return self._journal.state

    def news(self) -> None:
        """The heartbeat's call, from its own thread: the head moved or the lease is lost."""
        self._runner.tell_threadsafe(News())

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """Drive the run until it ends, is parked or waits, telling what happens.

        Closing this generator, or cancelling the task that waits for it, leaves the run resumable
        with the lease released.
        """
        try:
            for event in self._opening():
                yield event
            while True:
                self._tenure.check()
                action = decide(self.state, self._spec, self._policies(), epoch=self._epoch)
                if isinstance(action, Leave):
                    break
                if isinstance(action, Record):
                    for event in await self._record(self._again):
                        yield event
                    continue
                acting = self._ask(action) if isinstance(action, Ask) else self._dispatch(action)
                async with aclosing(acting):
                    async for event in acting:
                        yield event
        finally:
            await self._close()

    def _opening(self) -> list[AgentEvent]:
        """What an earlier worker left: repairs of a damaged transcript, results already there."""
        lane = self.state.lane(self._spec.lane)
        events = [AgentEvent("repair", repair) for repair in lane.transcript.repairs]
        turn = open_turn(self.state, self._spec)
        self._policies()
        return events if turn is None else [*events, *self._results(turn, replayed=True)]

    # --- deciding and recording --------------------------------------------------------------

    def _again(self, state: RunState) -> Sequence[e.Body]:
        """`decide` on the newest state, where it says to record something."""
        action = decide(state, self._spec, self._policies(), epoch=self._epoch)
        return action.bodies if isinstance(action, Record) else ()

    async def _record(self, build: Callable[[RunState], Sequence[e.Body]]) -> list[AgentEvent]:
        """Append what `build` says and tell of it."""
        entries = await self._journal.commit(build, lane=self._spec.lane, release=ends_tenure)
        self._tenure.note_seen(self.state.seq)
        self._over = ends_tenure([entry.body for entry in entries])
        return self._tell(entries)

    def _tell(self, entries: Sequence[e.Entry]) -> list[AgentEvent]:
        """Events of durable entries, in the promised order."""
        events: list[AgentEvent] = []
        turn = self.state.lane(self._spec.lane).turn
        for entry in entries:
            body = entry.body
            if isinstance(body, e.ModelAnswered) and turn is not None:
                self._told = 0
                events += [
                    AgentEvent("tool_call", id=entry.seq, call=self._shown(call.index), attempt=1)
                    for call in turn.calls
                ]
            elif isinstance(body, e.ToolStarted) and body.attempt > 1:
                call = self._shown(body.index)
                events.append(
                    AgentEvent("tool_call", id=entry.seq, call=call, attempt=body.attempt)
                )
            elif isinstance(body, e.StepCompleted) and turn is not None:
                events += self._results(turn)
                if body.status == "running":
                    text = f"iteration:{body.iteration}"
                    events.append(AgentEvent("step", text, id=entry.seq))
        return events

    def _results(self, turn: TurnState, *, replayed: bool = False) -> list[AgentEvent]:
        """Results that are due: in call order, each once."""
        events = []
        while self._told < len(turn.calls) and turn.calls[self._told].settled:
            call = turn.calls[self._told]
            outcome = call.outcome
            if outcome is None:
                break
            events.append(
                AgentEvent(
                    "tool_result",
                    outcome.content,
                    id=call.finished_seq,
                    call=self._shown(call.index),
                    attempt=outcome.attempt,
                    is_error=outcome.outcome != "ok",
                    replayed=replayed,
                )
            )
            self._told += 1
        return events

    # --- the model ---------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> AsyncGenerator[AgentEvent, None]:
        """One attempt at the model, its answer and the intents that follow in one append."""
        await self._wait_until(ask.not_before)
        self._tenure.busy(self._invoker.timeout_seconds + SLACK_SECONDS)
        self._tenure.check()
        self._asking = ask
        reply: ModelReply | None = None
        streamed = False
        try:
            async with aclosing(self._invoker.attempt(self._request())) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        reply = item
                    else:
                        streamed = True
                        yield AgentEvent("message_delta", item.text)
        except ModelError as error:
            self._asking = None
            if streamed:
                yield AgentEvent("message_reset")
            failed = self._failure(ask, error)
            await self._record(lambda _: failed)
            return
        if reply is None:
            return
        answered = _answered(ask, reply)
        checked = [self._registry.check(record) for record in answered.calls]
        self._checked = (ask.turn, checked)
        self._dispatched.clear()
        events = await self._record(lambda state: self._after_answer(state, answered))
        self._asking = None
        for event in events:
            yield event

    def _request(self) -> ModelRequest:
        """What the journal says must be sent: recorded prompt and tools, and the transcript."""
        state = self.state
        started = state.started
        if started is None:
            message = f"run {state.run_id!r} has no start entry to make a request from"
            raise AssertionError(message)
        return ModelRequest(
            model=bare_model(started.model),
            system=started.system,
            tools=started.tools,
            messages=state.lane(self._spec.lane).transcript.view(),
            stream=self._stream,
            timeout_seconds=self._invoker.timeout_seconds,
        )

    def _after_answer(self, state: RunState, answered: e.ModelAnswered) -> Sequence[e.Body]:
        lane = state.lane(self._spec.lane)
        end = ending(answered)
        if end is not None:
            return [answered, end]
        turn = TurnState(answered)
        planned = plan_turn(state, turn, self._policies_of(), lane=lane, epoch=self._epoch)
        return [answered, *planned] if answered.calls else [answered]

    def _failure(self, ask: Ask, error: ModelError) -> list[e.Body]:
        """A failed attempt, with the time of the next one or the reason why there is none."""
        delay = next_retry(
            error.kind,
            ask.attempt,
            retry_after_seconds=error.retry_after_seconds,
            should_retry=error.should_retry,
            policy=self._invoker.retry,
            jitter=self._chance.fraction(),
        )
        failed = e.ModelFailed(
            turn=ask.turn,
            attempt=ask.attempt,
            kind=error.kind,
            message=str(error)[:2_000],
            status=error.status,
            retry_at=None if delay is None else int((self._clock.now() + delay) * 1000),
            unknown=error.may_be_paid,
        )
        return [failed] if delay is not None else [failed, parked_by(failed)]

    async def _wait_until(self, at_ms: int) -> None:
        """Wait for the time of a retry. A clock that stepped back does not lengthen the wait."""
        policy = self._invoker.retry
        longest = max(policy.max_seconds, policy.max_retry_after_seconds) * 1.25
        seconds = min(at_ms / 1000 - self._clock.now(), longest) if at_ms else 0.0
        if seconds > 0:
            self._tenure.busy(seconds + SLACK_SECONDS)
            await self._clock.sleep(seconds)

    # --- the tools ---------------------------------------------------------------------------

    async def _dispatch(self, action: Dispatch) -> AsyncGenerator[AgentEvent, None]:
        """Make the calls whose intents are durable, and record each outcome as it comes."""
        turn = action.turn.answer.turn
        self._start(turn, [call.index for call in action.calls])
        while self._runner.in_flight:
            items = await self._runner.next()
            for item in items:
                if isinstance(item, Told):
                    yield AgentEvent("progress", item.text, call=self._shown(item.index))
            for event in await self._take(turn, self._outcomes(items)):
                yield event

    async def _take(self, turn: int, outcomes: dict[int, e.ToolFinished]) -> list[AgentEvent]:
        """Record outcomes that came together; calls that get another attempt start it."""
        if not outcomes:
            return []
        events = await self._record(lambda state: self._after_outcomes(state, outcomes))
        current = self.state.lane(self._spec.lane).turn
        if current is None:
            return events
        self._start(turn, [index for index in outcomes if current.calls[index].outcome is None])
        return [*events, *self._results(current)]

    def _start(self, turn: int, indexes: Sequence[int]) -> None:
        """Dispatch; after this an intent of these calls is in doubt until its outcome comes."""
        current = self.state.lane(self._spec.lane).turn
        self._policies()
        checked = self._checked[1]
        for index in indexes:
            tool = checked[index].tool
            if current is None or tool is None:
                continue
            self._tenure.busy(tool.timeout + SLACK_SECONDS)
            self._tenure.check()
            self._dispatched.add(index)
            self._runner.start(turn, current.calls[index], checked[index])

    def _outcomes(self, items: Sequence[Item]) -> dict[int, e.ToolFinished]:
        outcomes: dict[int, e.ToolFinished] = {}
        for item in items:
            if isinstance(item, News):
                self._stop_if_lost()
            elif isinstance(item, Done):
                if item.error is not None:
                    raise item.error
                if item.finished is not None:
                    outcomes[item.index] = item.finished
        return outcomes

    def _stop_if_lost(self) -> None:
        """Give up what runs when another worker has the run. A lease that merely may have lapsed
        only stops new acts: what is under way can still bring its outcome home.
        """
        if self._tenure.lost:
            self._tenure.check()

    def _after_outcomes(
        self, state: RunState, outcomes: dict[int, e.ToolFinished]
    ) -> Sequence[e.Body]:
        lane = state.lane(self._spec.lane)
        turn = lane.turn
        if turn is None:
            return ()
        planned = plan_turn(
            state,
            turn,
            self._policies_of(),
            lane=lane,
            epoch=self._epoch,
            outcomes=outcomes,
            in_flight=self._runner.in_flight,
        )
        return [*outcomes.values(), *planned]

    async def _record_value(
        self, index: int, name: str, produce: Callable[[], Awaitable[object]]
    ) -> JSON:
        """`ToolContext.record`: a value computed once per call, durable before it is used."""
        turn = self.state.lane(self._spec.lane).turn
        if turn is None:
            message = f"run {self.state.run_id!r}: {name!r} was recorded outside a tool call"
            raise AssertionError(message)
        known = turn.calls[index].values.get(name)
        if known is None:
            known = encode_value(await produce())
            self._tenure.check()
            recorded = e.ValueRecorded(turn.answer.turn, index, name, known)
            await self._journal.commit(lambda _: [recorded], lane=self._spec.lane)
        return decode_value(known)

    # --- looking calls up --------------------------------------------------------------------

    def _policies(self) -> list[CallPolicy]:
        """What is known of the open turn's calls; user code is asked once per turn."""
        turn = self.state.lane(self._spec.lane).turn
        if turn is None or not turn.calls:
            return []
        if self._checked[0] != turn.answer.turn:
            checked = [self._registry.check(record) for record in turn.answer.calls]
            self._checked = (turn.answer.turn, checked)
        return self._policies_of()

    def _policies_of(self) -> list[CallPolicy]:
        return [checked.policy for checked in self._checked[1]]

    def _shown(self, index: int) -> ToolCall:
        return self._checked[1][index].call

    # --- the end -----------------------------------------------------------------------------

    async def _close(self) -> None:
        """End the tenure in order: keep what ended, close what never began, release."""
        ended = await self._runner.close()
        if self._over or self._tenure.lost:
            return
        outcomes = [item.finished for item in ended if item.finished is not None]
        try:
            await self._journal.commit(
                lambda state: self._last_words(state, outcomes),
                lane=self._spec.lane,
                release=lambda _: True,
            )
        except (StoreError, LeaseLost) as error:
            _log.warning("run %r: lease not released, it will lapse: %s", self.state.run_id, error)

    def _last_words(self, state: RunState, outcomes: Sequence[e.ToolFinished]) -> Sequence[e.Body]:
        bodies: list[e.Body] = list(outcomes)
        turn = open_turn(state, self._spec)
        for call in turn.calls if turn is not None else ():
            undispatched = call.outcome is None and call.started_epoch == self._epoch
            if undispatched and call.index not in self._dispatched:
                bodies.append(
                    e.ToolFinished(state.lane(self._spec.lane).turns, call.index, "not_started")
                )
        if self._asking is not None:
            ask = self._asking
            text = "the worker stopped while it waited for the model"
            bodies.append(e.ModelFailed(ask.turn, ask.attempt, "interrupted", text, unknown=True))
        return bodies


def _answered(ask: Ask, reply: ModelReply) -> e.ModelAnswered:
    return e.ModelAnswered(
        turn=ask.turn,
        text=reply.text,
        calls=reply.calls,
        stop=reply.stop,
        usage=reply.usage,
        model=reply.model,
        response_id=reply.response_id,
        native=reply.native,
    )
