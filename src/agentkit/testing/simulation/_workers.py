"""Who lives in the processes: workers that drive the run, people who answer its questions, and
operators who say what they like.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random  # noqa: TID251 - seeded: these dice are replayed

from agentkit.agents import AgentEvent, AgentResult, send_event, settle_call, unpark
from agentkit.core.contracts.errors import (
    InvalidDecision,
    RunError,
    RunSuspended,
    StoreError,
)
from agentkit.core.contracts.ports import ChancePort, ClockPort
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import IN_DOUBT_ANSWERS, Decision, Question
from agentkit.core.contracts.values import digest
from agentkit.core.runtime import Invoker, RetryPolicy, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.crash.scenario import promise
from agentkit.testing.simulation._agent import TASK, the_agent
from agentkit.testing.simulation._network import NetworkStore
from agentkit.testing.simulation._outside import HERE, RUN, Here, SimulatedModel
from agentkit.testing.simulation._process import ProcessChance, ProcessThreads, Renewer
from agentkit.testing.simulation._waiting_tools import CHOICES, EVENT

START_SECONDS = 4.0
"""A worker begins at most so long after its process."""

EAGER_SECONDS = 4.0
LAZY_SECONDS = 12.0
"""A worker that cannot have the run tries again after at most so long; lazily in bad weather, so
that a schedule costs little."""

_RETRY = RetryPolicy(base_seconds=0.5, max_seconds=8.0, max_retry_after_seconds=8.0)
EXPECTED = (RunError, StoreError, InvalidDecision)
"""What may come of any request to a run."""

LONGEST_SECONDS = 300.0
"""How long anybody waits at most before they look again, once the weather is calm."""

LOOK_SECONDS = (2.0, 8.0)
MOST_IDLE = 40.0
"""A person looks again after so long, or up to so many times as long where nobody is wanted."""

_PATIENCE = 3
"""A person orders a call again less often than this; then it is left alone."""


class Inhabitant:
    """What worker and person have in common: a process, services, and a drive that may be told
    to stop.

    Args:
        here: where it lives.
        store: its connection to the store.
        max_recoveries: of its services.

    Attributes:
        clock, chance: its process's.
        suspended: its last attempt to drive was refused because the run waits.
    """

    def __init__(self, here: Here, store: NetworkStore, *, max_recoveries: int) -> None:
        self.here = here
        self.store = store
        process = here.process
        self.clock: ClockPort = process.clock
        self.chance: ChancePort = ProcessChance(process)
        self.suspended = False
        self.context = RunContext(
            correlation_id=RUN,
            services=Services(
                invoker=Invoker(SimulatedModel(here), retry=_RETRY, timeout_seconds=60.0),
                checkpointer=Checkpointer(port=store),
                clock=process.clock,
                chance=self.chance,
                threads=ProcessThreads(process, here.weather.thread, here.weather.ending),
                heartbeat=Renewer(process, store.send_renewal),
                max_recoveries=max_recoveries,
            ),
        )

    async def live(self) -> None:
        """The process's main."""
        raise NotImplementedError

    @property
    def _dice(self) -> Random:
        return self.here.process.world.dice

    async def pause(self, least: float, most: float) -> None:
        """Do nothing for some time."""
        await self.here.process.clock.sleep(self._dice.uniform(least, most))

    async def unpark(self) -> None:
        """Let the run go on, without driving it."""
        self.here.process.say("lets the run go on")
        await unpark(self.store, RUN, actor="operator", clock=self.here.process.clock)

    async def event(self, number: int) -> None:
        """Tell the run of an event that nobody else tells of."""
        name = f"parcel-{number}"
        self.here.process.say(f"sends {name}")
        await send_event(self.store, RUN, EVENT, name, event_id=name, clock=self.clock)
        self.acknowledged("event_received", name)

    def acknowledged(self, kind: str, identity: str) -> None:
        """The store has answered that this note is recorded."""
        self.here.process.must_live()
        if (kind, identity) not in self.here.outside.notes:
            self.here.outside.notes.append((kind, identity))

    async def attempt(self, drive: Callable[[], Awaitable[AgentResult | None]]) -> bool:
        """Drive the run in a task that may be cancelled; whether the run has ended."""
        process = self.here.process
        task = asyncio.ensure_future(drive())
        process.cancel = task.cancel
        await asyncio.wait({task})
        process.driving = False
        if task.cancelled():
            process.say("has stopped")
            return False
        error = task.exception()
        self.suspended = isinstance(error, RunSuspended)
        if error is None:
            result = task.result()
            return result is not None and result.stop_reason not in {"suspended", "parked"}
        process.say(f"gives up for now: {type(error).__name__}: {error}")
        if isinstance(error, EXPECTED):
            return False
        raise error

    def told(self, event: AgentEvent) -> None:
        """Write down what the outside has been told."""
        self.here.process.must_live()
        self.here.outside.promises.append(promise(RUN, event))
        self.here.process.say(f"tells: {event.type} {event.id or ''} {event.text[:40]!r}")


class Worker(Inhabitant):
    """Starts the run or carries it on, again and again, until it has ended."""

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        await self.pause(0.0, START_SECONDS)
        while not await self.attempt(self._drive):
            eager = self.here.weather.calm
            await self.pause(0.5, EAGER_SECONDS if eager else LAZY_SECONDS)
            if eager and self.suspended:
                with contextlib.suppress(*EXPECTED):
                    await self._sleep_until_due()

    async def _sleep_until_due(self) -> None:
        """A run that waits for a time, by this worker's clock, need not end before that."""
        head = await self.store.head(RUN)
        due = None if head is None or head.summary is None else head.summary.due_at
        left = 0.0 if due is None else due / 1000 - self.clock.now()
        if left > 0:
            self.here.weather.lasts(left)
            await self.pause(0.0, min(left, LONGEST_SECONDS))

    async def _drive(self) -> AgentResult | None:
        agent, likely = the_agent(), self.here.process.world.likely
        wait = 8.0 if likely(0.05) else 0.0
        if likely(0.5):
            result = await agent.run(TASK, self.context, wait_seconds=wait)
            self.told(AgentEvent("final", result=result))
            return result
        stays, dawdles = likely(0.9), likely(0.3)
        last: AgentResult | None = None
        async for event in agent.stream(TASK, self.context, wait_seconds=wait):
            self.told(event)
            last = event.result or last
            if not stays and likely(0.2) and not self.here.weather.calm:
                self.here.process.say("leaves the stream")
                break
            if dawdles:
                await self.pause(0.0, 2.0)
        return last


class Person(Inhabitant):
    """Looks at the run now and then, answers its questions, and mends what parked it."""

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        idle = 1.0
        while True:
            least, most = LOOK_SECONDS
            await self.pause(least * idle, most * idle)
            try:
                state = await load(self.store, RUN)
            except StoreError:
                continue
            if state.end is not None:
                return
            awaited = any(wait.event == EVENT for wait in state.waits)
            wanted = state.parked is not None or bool(state.questions) or awaited
            idle = 1.0 if wanted or not self.here.weather.calm else min(2 * idle, MOST_IDLE)
            if state.parked is not None and self.here.process.world.likely(0.5):
                with contextlib.suppress(*EXPECTED):
                    await self.unpark()
            elif state.parked is not None:
                await self.attempt(lambda: self._resume({}))
            elif state.questions:
                await self._answer(state)
            elif awaited:
                with contextlib.suppress(*EXPECTED):
                    await self.event(next(self.here.outside.numbers))

    async def _answer(self, state: RunState) -> None:
        decisions = {}
        for question in state.questions:
            await self.pause(0.0, 3.0)
            decisions[question.id] = self._decision(question)
            if self.here.process.world.likely(0.2):
                break
        words = {key: one.answer for key, one in decisions.items()}
        self.here.process.say(f"decides {words}")
        await self.attempt(lambda: self._resume(decisions))

    async def _resume(self, decisions: dict[str, Decision]) -> AgentResult | None:
        result = await the_agent().resume(RUN, decisions, self.context)
        self.told(AgentEvent("final", result=result))
        return result

    def _decision(self, question: Question) -> Decision:
        """Mostly that of somebody who looks outside; sometimes of somebody who does not."""
        likely, me = self.here.process.world.likely, self.here.process.name
        if question.kind == "input":
            return Decision("answer", self._dice.choice(CHOICES), me)
        if question.kind == "approval":
            return self._approval(me)
        done = self.here.outside.done(question.tool, question.digest)
        if likely(0.1):
            return Decision("skip", actor=me)
        if likely(0.1):
            return Decision("failed", "it did not work", me)
        if done is not None:
            return Decision("done", done.result, me)
        repeats = self.here.outside.repeats
        repeats[question.digest] += 1
        again = repeats[question.digest] < _PATIENCE
        return Decision("run_again" if again else "skip", actor=me)

    def _approval(self, me: str) -> Decision:
        answer = self._dice.choice(("approve", "approve", "reject", "edit"))
        item = f"e{next(self.here.outside.numbers)}c0"
        return Decision(answer, {"item": item} if answer == "edit" else None, me)


class Operator(Inhabitant):
    """Settles calls in doubt and lets parked runs go on at any moment, while the weather is bad;
    looks outside only before claiming that something was done.
    """

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        while not self.here.weather.calm:
            await self.pause(1.0, 12.0)
            with contextlib.suppress(*EXPECTED):
                await self._meddle(await load(self.store, RUN))

    async def _meddle(self, state: RunState) -> None:
        if state.parked is not None:
            await self.unpark()
            return
        turn = state.lane(agent_lane(the_agent().name)).turn
        calls = [] if turn is None else [one for one in turn.calls if not one.settled]
        if turn is None or not calls:
            return
        call = self._dice.choice(calls)
        name = f"{turn.answer.turn}.{call.index}"
        record = call.record
        done = self.here.outside.done(record.name, digest(record.name, call.arguments))
        answer = self._dice.choice(IN_DOUBT_ANSWERS)
        if done is None and answer == "done":
            answer = "failed"
        value = done.result if done is not None and answer == "done" else ""
        self.here.process.say(f"says of call {name}: {answer}")
        await settle_call(
            self.store,
            RUN,
            name,
            Decision(answer, value, "operator"),
            clock=self.here.process.clock,
        )
