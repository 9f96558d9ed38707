"""The world outside the processes: what was done to it, bought from it and told to it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251 - seeded: these dice are replayed
from typing import Final, NamedTuple

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import FailureKind, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import JSON, JSONObject, Message, ToolCall, Usage
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.journal.approval import REJECTED, UNDECIDED
from agentkit.testing._shapes import shape
from agentkit.testing.effects import Effect, EffectKind, effect_of
from agentkit.testing.simulation._process import Process
from agentkit.testing.simulation._weather import Weather
from agentkit.testing.simulation._witness import Witness
from agentkit.tools import ToolContext

RUN: Final = "r1"
"""The run of every schedule."""

_FAILURES: Final[tuple[tuple[FailureKind, bool], ...]] = (
    ("network", True),
    ("overloaded", False),
    ("rate_limited", False),
    ("auth", False),
)
"""How a model attempt fails, and whether it may have been paid for."""


class Word(NamedTuple):
    """What a person said of a question, and what they were told about that.

    Args:
        actor: who; no two words have the same.
        question: the id.
        answer, value: the decision.
        told: `recorded`, `repeated`, `too late` or `refused`.
        text: of the refusal.
    """

    actor: str
    question: str
    answer: str
    value: JSON
    told: str
    text: str = ""


@dataclass
class Outside:
    """What is left outside when all processes are gone.

    Args:
        script: the calls that the model makes, turn by turn: tool and item.

    Attributes:
        effects: what tools did, in order.
        answers: what was asked of the model and bought from it.
        promises: what was told to the outside.
        sink: what a system that honours keys has done, by key.
        tokens: the highest fencing token that a system has seen, by item.
        closed: requests that a system refuses from now on, also those that are on their way.
        repeats: how often people have ordered a call again, by its digest.
        words: what people said of questions without driving the run, and were told.
        notes: kind and id of every note that was acknowledged.
        numbers: events and messages that were thought of.
    """

    script: Sequence[Sequence[tuple[str, str]]]
    effects: list[Effect] = field(default_factory=list)
    answers: list[JSONObject] = field(default_factory=list)
    promises: list[JSONObject] = field(default_factory=list)
    sink: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    repeats: Counter[str] = field(default_factory=Counter)
    words: list[Word] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def done(self, tool: str, digest: str) -> Effect | None:
        """The effect that a call had, to whoever looks."""
        for one in self.effects:
            if one.kind == "effect" and one.tool == tool and one.digest == digest:
                return one
        return None

    def done_under(self, key: str) -> Effect | None:
        """The effect that a call had, to whoever asks by its key."""
        for one in self.effects:
            if one.kind == "effect" and one.key == key:
                return one
        return None


@dataclass(frozen=True)
class Here:
    """Where a tool runs: in a process, under a sky, before the outside."""

    process: Process
    outside: Outside
    weather: Weather
    witness: Witness

    def record(
        self,
        tool: str,
        item: str,
        context: ToolContext,
        *,
        kind: EffectKind = "effect",
        result: str = "",
    ) -> Effect:
        """Write down what a tool did; nothing that is left of a dead process does anything."""
        self.process.must_live()
        return self._write(tool, item, context, kind=kind, result=result)

    def request(
        self, tool: str, item: str, context: ToolContext, *, name: str, result: str
    ) -> asyncio.Future[bool]:
        """Send a request that has an effect when it arrives, whatever has become of its sender;
        resolves with whether it had, which it has not once a request of that name was closed.
        """
        process, world = self.process, self.process.world
        process.must_live()
        answer: asyncio.Future[bool] = process.loop.create_future()

        def arrive() -> None:
            kind: EffectKind = "refused" if name in self.outside.closed else "effect"
            self._write(tool, item, context, kind=kind, result=result)
            process.in_thread(0.02, partial(_answer, answer, kind == "effect"))

        world.after(self.weather.journey(), arrive)
        return answer

    def _write(
        self, tool: str, item: str, context: ToolContext, *, kind: EffectKind, result: str
    ) -> Effect:
        process = self.process
        effect = effect_of(
            tool,
            {"item": item},
            context,
            kind=kind,
            result=result,
            pid=process.number,
            holder=self.witness.epoch,
        )
        self.outside.effects.append(effect)
        if kind == "run":
            self.witness.begun(tool)
        who = "outside" if process.gone else process.name
        what = f"{kind} of {tool}({item}), attempt {effect.attempt}, epoch {effect.epoch}"
        process.world.say(who, what)
        return effect

    async def lag(self) -> None:
        """Let the outside take its time."""
        self.process.must_live()
        self.weather.wait_inside(self.process)
        await self.process.clock.sleep(self.weather.lag())


def _answer(answer: asyncio.Future[bool], accepted: bool) -> None:  # noqa: FBT001 - a callback's
    def settle() -> None:
        if not answer.done():
            answer.set_result(accepted)

    answer.get_loop().call_soon_threadsafe(settle)


HERE: ContextVar[Here] = ContextVar("HERE")
"""Set in each process's main task, and so for everything that it starts."""


def draw_script(dice: Random, tools: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Calls for one to three turns; no two have equal arguments."""
    return [
        [(dice.choice(tools), f"t{turn}c{index}") for index in range(dice.choice((1, 1, 2, 2, 3)))]
        for turn in range(1, dice.choice((1, 2, 2, 3)) + 1)
    ]


class SimulatedModel:
    """A model that takes its time, fails, and answers from the transcript.

    Requests and bought answers are written down as `CrashingLLM` does it.

    Args:
        here: who asks.
    """

    origin = "fake"

    def __init__(self, here: Here) -> None:
        self._here = here
        self._inner = FakeLLM(self._answer)

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """See `LLMPort.attempt`."""
        here, turn = self._here, 1 + sum(one.role == "assistant" for one in request.messages)
        here.process.must_live()
        here.process.say(f"asks the model for answer {turn}")
        shapes: list[JSON] = [shape(message) for message in request.messages]
        answers = here.outside.answers
        answers.append({"kind": "asked", "run": RUN, "turn": turn, "messages": shapes})
        await here.lag()
        failed = here.weather.failure("model failure")
        kind, paid = here.weather.world.dice.choice(_FAILURES) if failed else _FAILURES[0]
        if failed and not paid:
            here.process.say(f"the model fails: {kind}")
            raise ModelError("simulated", kind=kind, may_be_paid=False)
        async for item in self._inner.attempt(request):
            if isinstance(item, TextDelta):
                yield item
                continue
            answers.append({"kind": "bought", "run": RUN, "turn": turn})
            if failed:
                here.process.say(f"the model's answer is lost: {kind}")
                raise ModelError("simulated", kind=kind, may_be_paid=True)
            await here.lag()
            yield item

    def _answer(self, messages: Sequence[Message]) -> Turn:
        script = self._here.outside.script
        turn = sum(message.role == "assistant" for message in messages)
        usage = Usage(input_tokens=10 * (turn + 1), output_tokens=turn + 1, requests=1)
        wanted = script[turn] if turn < len(script) else _refused_once(messages)
        calls = tuple(
            ToolCall(f"call_{index}", name, {"item": item})
            for index, (name, item) in enumerate(wanted)
        )
        return Turn(f"step {turn + 1}" if calls else "all done", tool_calls=calls, usage=usage)


def _refused_once(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Tool and item of the calls that were refused, or not approved in time, and not asked for
    again since: this model is stubborn, once.
    """
    asked: Counter[tuple[str, str]] = Counter()
    refused: list[tuple[str, str]] = []
    newest: dict[str, tuple[str, str]] = {}
    for message in messages:
        if message.role == "assistant":
            newest = {one.id: (one.name, _item(one)) for one in message.tool_calls}
            asked.update(newest.values())
        elif message.role == "tool" and message.content.startswith((REJECTED, UNDECIDED)):
            refused.append(newest[message.tool_call_id])
    return [call for call in refused if asked[call] == 1]


def _item(call: ToolCall) -> str:
    arguments = call.arguments
    return str(arguments["item"]) if isinstance(arguments, dict) else ""
