"""The run that is measured: one tool a turn, a 200-byte result, a model that answers at once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort, Row
from agentkit.core.contracts.types import CallRecord, Usage
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.state.journal.codec import decode_rows
from agentkit.tools import tool

RESULT_BYTES = 200
RESULT = "19 °C, light rain, wind from the west. ".ljust(RESULT_BYTES - 1, ".")
assert len(RESULT.encode()) == RESULT_BYTES

_USAGE = Usage(input_tokens=900, output_tokens=40, requests=1)


@tool(side_effecting=False)
async def look_up(place: str) -> str:
    """The weather of a place."""
    return RESULT if place else ""


class Moment(NamedTuple):
    """When the model was asked: wall time, and CPU time of the process and of the loop's thread."""

    wall: float
    process: float
    loop: float


class Model:
    """Asks for one call `iterations` times and then answers. It remembers when it was asked: from
    one moment to the next lies exactly one iteration.
    """

    origin = "benchmark"

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self.moments: list[Moment] = []
        self.last_request: ModelRequest | None = None

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer at once."""
        asked = len(self.moments)
        self.last_request = request
        self.moments.append(Moment(time.perf_counter(), time.process_time(), time.thread_time()))
        if asked >= self._iterations:
            yield ModelReply(text="Take an umbrella.", usage=_USAGE)
            return
        call = CallRecord(f"call_{asked:08d}", "look_up", f'{{"place": "Berlin {asked:06d}"}}')
        yield ModelReply(calls=(call,), stop="tool_use", usage=_USAGE)


async def run(store: JournalPort, iterations: int, *, run_id: str = "run") -> Model:
    """Run the agent on `store`; what is returned knows the moments."""
    model = Model(iterations)
    cognition = ReActCognition(tools=[look_up], max_iterations=iterations + 1)
    agent = Agent(name="weather", prompt="You answer questions about weather.", cognition=cognition)
    services = Services(invoker=Invoker(llm=model), checkpointer=Checkpointer(port=store))
    result = await agent.run("Umbrella?", RunContext(correlation_id=run_id, services=services))
    assert result.stop_reason == "completed"
    assert len(model.moments) == iterations + 1
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
    for entry, _ in decode_rows(rows, after=0, before=b"", run_id="run"):
        if isinstance(entry.body, e.ModelAnswered) and not entry.body.calls:
            break
        if isinstance(entry.body, e.ModelAnswered | e.ToolFinished):
            groups.append([])
        if groups:
            groups[-1].append(rows[entry.seq - 1].body)
    return groups


def fingerprint(bodies: list[bytes]) -> str:
    """Number, length and hash of bodies in their order."""
    hashed = blake2b(digest_size=16)
    for body in bodies:
        hashed.update(len(body).to_bytes(8, "big") + body)
    return f"{len(bodies)} rows, {sum(map(len, bodies))} bytes, {hashed.hexdigest()}"
