"""A worker dies in the middle of a run, and the next one carries on where it stopped.

Needs no key: a function stands in for the model and answers from the conversation. Run it as

    python examples/resume_after_crash.py

The first worker is a process of its own that kills itself as soon as its first step is durable. The
second one shares nothing with it but the store's file and the run's id.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentkit import (
    Agent,
    Checkpointer,
    Invoker,
    ReActCognition,
    RunContext,
    Services,
    ToolCall,
    tool,
)
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

RUN_ID = "tide-report"
TASK = "When is the next high tide in Bergen?"


@tool(side_effecting=False)
def tide_table(place: str) -> list[str]:
    """High tides of the day at `place`."""
    print(f"  [tool] tide_table({place!r}) in process {os.getpid()}", flush=True)
    return ["04:12", "16:38"]


def answer(messages: Sequence[Message]) -> Turn:
    """What a model might say: look the tide up once, then answer from the result."""
    last = messages[-1]
    if last.role == "tool":
        return Turn(content=f"High tides in Bergen today: {last.content}.")
    return Turn(tool_calls=(ToolCall(id="c1", name="tide_table", arguments={"place": "Bergen"}),))


AGENT = Agent(
    name="harbour",
    prompt="Answer from the tide table.",
    cognition=ReActCognition(tools=[tide_table]),
)


def context(database: Path) -> RunContext:
    """The run, as any process can name it."""
    services = Services(
        invoker=Invoker(llm=FakeLLM(answer)),
        checkpointer=Checkpointer(port=SqliteCheckpointStore(database)),
    )
    return RunContext(correlation_id=RUN_ID, services=services)


async def first_worker(database: Path) -> None:
    """Work until the first step is durable, then die without a word."""
    async for event in AGENT.stream(TASK, context(database)):
        if event.type == "step":
            print(f"  [step] {event.text} is durable; the worker is killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


async def next_worker(database: Path) -> None:
    """Same run id, same store: the tool is not called again."""
    ctx = context(database)
    checkpointer = Checkpointer(port=SqliteCheckpointStore(database))
    slot = ReActCognition.checkpoint_slot(RUN_ID, AGENT.name)
    print(f"  [checkpoints] {await checkpointer.list_versions(slot)}")
    result = await AGENT.run(TASK, ctx)
    print(f"  [answer] {result.output} ({result.usage.requests} model answers in all)")


def main() -> None:
    """Start the first worker, bury it, and be the next one."""
    if sys.argv[1:]:
        asyncio.run(first_worker(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "runs.db")
        print("first worker:", flush=True)
        command = [sys.executable, __file__, str(database)]
        died = subprocess.run(command, check=False)  # noqa: S603 - it starts itself
        print(f"it ended with {signal.Signals(-died.returncode).name}; next worker:", flush=True)
        asyncio.run(next_worker(database))


if __name__ == "__main__":
    main()
