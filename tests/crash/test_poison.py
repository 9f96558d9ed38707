"""F068: runs that kill every worker that takes them."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.types import JSONObject, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.runtime.context import MAX_RECOVERIES
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, StoreWrapper
from agentkit.testing.crash import ForkServer
from agentkit.tools import tool

HERE = "tests.crash.test_poison:work"


class Fatal(StoreWrapper):
    """Reading a run that has begun ends the process, as running out of memory does."""

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Read, and die of it."""
        rows = await self.inner.read(run, after=after, limit=limit)
        if rows:
            os._exit(9)
        return rows


def work(argument: JSONObject) -> None:
    """Drive the run, as far as that goes."""
    log = Path(str(argument["log"]))

    def note(what: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    @tool(side_effecting=False)
    def look() -> str:
        note("tool")
        os._exit(9)

    def answer(_: object) -> Turn:
        note("model")
        return Turn("", tool_calls=(ToolCall("c", "look", {}),))

    note("worker")
    store = SqliteCheckpointStore(str(argument["store"]))
    services = Services(
        invoker=Invoker(llm=FakeLLM(answer)),
        checkpointer=Checkpointer(port=Fatal(store) if argument["dies"] == "reading" else store),
    )
    agent = Agent("worker", cognition=ReActCognition([look]))
    asyncio.run(agent.run("Go.", RunContext(correlation_id="r", services=services)))


@pytest.mark.parametrize("dies", ["in its tool", "reading"])
def test_f068_it_is_parked_after_so_many_workers(
    dies: Literal["in its tool", "reading"], tmp_path: Path
) -> None:
    """A supervisor that starts the next worker at once: each takeover is counted in the store when
    the run is claimed, before it is read; then it is parked with the reason, and nothing that was
    paid for is bought again on the way.
    """
    log, path = tmp_path / "log", tmp_path / "runs.db"
    with ForkServer(HERE) as server:
        ends = []
        for _ in range(3 * MAX_RECOVERIES):
            ended = server.run({"store": str(path), "log": str(log), "dies": dies})
            ends.append(ended.detail)
            if "exit code 9" not in ended.detail:
                break

    done = log.read_text().split()
    assert ["exit code 9"] * (1 + MAX_RECOVERIES) == ends[:-1]
    assert "RunParked" in ends[-1]
    assert f"{MAX_RECOVERIES + 1} workers in a row died at this run" in ends[-1]
    assert 2 + MAX_RECOVERIES == done.count("worker")
    assert (1, 1 if dies == "reading" else 1 + MAX_RECOVERIES) == (
        done.count("model"),
        done.count("tool"),
    )
    [listed], _ = asyncio.run(SqliteCheckpointStore(path).list_runs())
    assert ("parked", "worker", 1) == (
        listed.summary.status,
        listed.summary.agent,
        listed.summary.usage.requests,
    )
