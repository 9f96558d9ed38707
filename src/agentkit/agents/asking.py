"""One attempt at the model: what is sent, what comes back, and what a failure means."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from agentkit.agents.attention import Attention, Stopped
from agentkit.agents.decide import Ask, failed_by
from agentkit.agents.listening import Listener
from agentkit.agents.spec import AgentSpec, asked_model
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.runtime import Invoker, Services
from agentkit.core.runtime.retry import next_retry
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lease import Tenure

__all__ = ["SLACK_SECONDS", "Asking", "Failed"]

SLACK_SECONDS = 60.0
"""What a drive's lease is kept for beyond an act's own deadline, for the append that follows."""


class Failed(NamedTuple):
    """An attempt failed; `bodies` say how, and whether another follows or the run is parked."""

    bodies: list[e.Body]

    def recorded(self, state: RunState) -> list[e.Body]:
        """What is recorded of it; a run that somebody has stopped is not parked for it."""
        return self.bodies[:1] if state.stopping else self.bodies


class Asking:
    """Asks the model for one drive.

    Args:
        tenure: the drive's hold on the run.
        spec: of the agent.
        invoker: the model.
        services: clock and chance.
        attention, listener: by which the drive is reached while it waits.
        stream: whether text deltas are wanted.

    Attributes:
        under_way: the attempt whose end is not on record.
        said: how many messages the user had added when the newest request was made.
    """

    def __init__(
        self,
        tenure: Tenure,
        spec: AgentSpec,
        invoker: Invoker,
        *,
        services: Services,
        attention: Attention,
        listener: Listener,
        stream: bool,
    ) -> None:
        self.under_way: Ask | None = None
        self.said = 0
        self._tenure = tenure
        self._spec = spec
        self._invoker = invoker
        self._services = services
        self._attention = attention
        self._listener = listener
        self._stream = stream

    async def attempt(
        self, ask: Ask, state: RunState
    ) -> AsyncGenerator[TextDelta | ModelReply | Failed, None]:
        """Deltas, then a reply or a failure; neither where the run is to be left before."""
        if not await self._wait_until(ask.not_before):
            return
        self._tenure.busy(self._invoker.timeout_seconds + SLACK_SECONDS)
        self._tenure.check()
        self.under_way = ask
        try:
            async with aclosing(self._invoker.attempt(self._request(state))) as items:
                while item := await self._attention.wait(
                    lambda: anext(items, None), until=self._listener.must_stop
                ):
                    yield item
        except Stopped:
            return  # the last words say that it was under way
        except ModelError as error:
            yield Failed(self._failure(ask, error))

    def _request(self, state: RunState) -> ModelRequest:
        """What the journal says must be sent: recorded prompt and tools, and the transcript."""
        started = state.started
        if started is None:
            message = f"run {state.run_id!r} has no start entry to make a request from"
            raise AssertionError(message)
        self.said = state.lane(self._spec.lane).said
        return ModelRequest(
            model=asked_model(started.model, origin=self._invoker.llm.origin),
            system=started.system,
            tools=started.tools,
            messages=state.lane(self._spec.lane).transcript.view(),
            stream=self._stream,
            timeout_seconds=self._invoker.timeout_seconds,
        )

    def _failure(self, ask: Ask, error: ModelError) -> list[e.Body]:
        delay = next_retry(
            error.kind,
            ask.attempt,
            retry_after_seconds=error.retry_after_seconds,
            should_retry=error.should_retry,
            policy=self._invoker.retry,
            jitter=self._services.chance.fraction(),
        )
        return failed_by(ask, error, now=self._services.clock.now(), delay_seconds=delay)

    async def _wait_until(self, at_ms: int) -> bool:
        """Wait for the time of a retry; whether it has come before the run is to be left. A clock
        that stepped back does not lengthen the wait.
        """
        policy, clock = self._invoker.retry, self._services.clock
        longest = max(policy.max_seconds, policy.max_retry_after_seconds) * 1.25
        seconds = min(at_ms / 1000 - clock.now(), longest) if at_ms else 0.0
        if seconds <= 0:
            return True
        self._tenure.busy(seconds + SLACK_SECONDS)
        try:
            await self._attention.wait(
                lambda: clock.sleep(seconds), until=self._listener.may_not_begin
            )
        except Stopped:
            return False
        return True
