"""The run that is measured: one tool a turn, a 200-byte result, a model that answers at once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import CallRecord, Usage
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.tools import tool

RESULT_BYTES = 200
RESULT = "19 °C, light rain, wind from the west. ".ljust(RESULT_BYTES - 1, ".")
assert len(RESULT.encode()) == RESULT_BYTES

Pause: TypeAlias = "Callable[[], Awaitable[None]]"

_DECODE = msgspec.json.Decoder(e.Entry).decode
_USAGE = Usage(input_tokens=900, output_tokens=40, requests=1)


@tool(side_effecting=False)
async def look_up(place: str) -> str:
    """The weather of a place."""
    return RESULT if place else ""


class Moment(NamedTuple):
    """Seconds of wall time and of the process's CPU time."""

    wall: float
    process: float


def now() -> Moment:
    """This moment."""
    return Moment(time.perf_counter(), time.process_time())


class Model:
    """Asks for one call `iterations` times and then answers.

    From `left[i]` to `asked[i + 1]` lies exactly one iteration, the model's own time taken out.

    Args:
        iterations: how many.
        pause: run after every `every` iterations, in the model's own time: whatever is measured
            beside the run meets the machine in the same state.
        every: see `pause`.
    """

    origin = "benchmark"

    def __init__(self, iterations: int, pause: Pause | None = None, *, every: int = 10) -> None:
        self.iterations = iterations
        self._pause = pause
        self._every = every
        self.asked: list[Moment] = []
        self.left: list[Moment] = []
        self.last_request: ModelRequest | None = None

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer at once."""
        asked = len(self.asked)
        self.asked.append(now())
        self.last_request = request
        if self._pause is not None and asked and asked % self._every == 0:
            await self._pause()
        self.left.append(now())
        if asked >= self.iterations:
            yield ModelReply(text="Take an umbrella.", usage=_USAGE)
            return
        call = CallRecord(f"call_{asked:08d}", "look_up", f'{{"place": "Berlin {asked:06d}"}}')
        yield ModelReply(calls=(call,), stop="tool_use", usage=_USAGE)


async def run(store: JournalPort, model: Model, *, run_id: str = "run") -> Model:
    """Run the agent on `store` with `model`, which then knows the moments."""
    iterations = model.iterations
    cognition = ReActCognition(tools=[look_up], max_iterations=iterations + 1)
    agent = Agent(name="weather", prompt="You answer questions about weather.", cognition=cognition)
    services = Services(invoker=Invoker(llm=model), checkpointer=Checkpointer(port=store))
    result = await agent.run("Umbrella?", RunContext(correlation_id=run_id, services=services))
    assert result.stop_reason == "completed"
    assert len(model.asked) == iterations + 1
    return model


def memory_store() -> JournalPort:
    """A new store in memory."""
    return InMemoryCheckpointStore()


def sqlite_store(folder: Path, name: str) -> SqliteCheckpointStore:
    """A new store in a file of `folder`."""
    return SqliteCheckpointStore(folder / f"{name}.db")


async def rows_of(store: JournalPort, run_id: str = "run") -> list[Row]:
    """All rows of a run."""
    rows: list[Row] = []
    while page := await store.read(run_id, after=len(rows)):
        rows += page
    return rows


def groups_of(rows: list[Row]) -> list[list[bytes]]:
    """The bodies of the iterations' rows, as the run committed them: the answer with the intent in
    one group, the outcome with the step's boundary in the next.
    """
    groups: list[list[bytes]] = []
    for row in rows:
        fact = _DECODE(row.body).body
        if isinstance(fact, e.ModelAnswered) and not fact.calls:
            break
        if isinstance(fact, e.ModelAnswered | e.ToolFinished):
            groups.append([])
        if groups:
            groups[-1].append(row.body)
    return groups


def fingerprint(bodies: list[bytes]) -> str:
    """Number, length and hash of bodies in their order."""
    hashed = blake2b(digest_size=16)
    for body in bodies:
        hashed.update(len(body).to_bytes(8, "big") + body)
    return f"{len(bodies)} rows, {sum(map(len, bodies))} bytes, {hashed.hexdigest()}"
