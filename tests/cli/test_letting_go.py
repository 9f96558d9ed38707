"""A command leaves when it is told to, whatever its tools do."""

import signal
from pathlib import Path

import pytest

from tests.cli.kit import Shell, hear

STUBBORN = """
import asyncio
import sys
import time

from agentkit import Agent, ReActCognition, ToolCall, tool
from agentkit.core.testing import FakeLLM, Turn


def tell(text):
    sys.stderr.write(f"<{text}>\\n")
    sys.stderr.flush()


@tool(side_effecting=True)
async def swallow() -> str:
    tell("acting")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@tool(side_effecting=True)
async def block() -> str:
    tell("acting")
    await asyncio.to_thread(time.sleep, 300)
    return "slept"


@tool(side_effecting=True, timeout=0.1)
async def late() -> str:
    await asyncio.to_thread(time.sleep, 300)
    return "slept"


def think(messages):
    name = messages[0].content if messages[0].role == "user" else messages[1].content
    if messages[-1].role == "user":
        return Turn("", tool_calls=(ToolCall("c", name, {}),))
    return Turn("done")


agent = Agent("stubborn", FakeLLM(think), "Act.", cognition=ReActCognition([swallow, block, late]))
"""


@pytest.fixture
def stubborn(shell: Shell) -> Shell:
    """A folder with tools that do not let go."""
    (Path(shell.folder) / "stubborn.py").write_text(STUBBORN)
    return shell


@pytest.mark.parametrize("tool", ["swallow", "block"])
@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "worker"])
def test_the_second_signal_ends_a_command_whose_tool_does_not_let_go(
    stubborn: Shell, command: str, tool: str
) -> None:
    """The process is gone within seconds, says which tool of which run it took with it, and the
    next one finds the lease given back and the call in doubt.
    """
    if command == "run":
        order = ["run", "stubborn:agent", tool, "--run-id", "r1", "--grace", "3600"]
    else:
        submitted = stubborn("submit", "stubborn:agent", tool, "--run-id", "r1")
        assert 0 == submitted.code, submitted
        order = ["worker", "stubborn:agent", "--poll", "0.05", "--grace", "3600"]
    process = stubborn.start(*order)
    try:
        hear(process, "acting")
        process.send_signal(signal.SIGINT)
        hear(process, "again to stop at once" if command == "run" else "3600 s to be left")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    resumed = stubborn("resume", "r1", "--wait", "0")

    assert 130 == process.returncode, err
    assert f"did not let go, and ends with this process: {tool} of run 'r1'" in err.decode()
    assert b"no run is held here any more" not in err
    assert 5 == resumed.code
    assert f"{tool} was started" in resumed.err


def test_a_run_that_ended_does_not_wait_for_a_thread_that_it_left_behind(stubborn: Shell) -> None:
    """The answer is there, the tool ran out of time: the process leaves with the answer."""
    done = stubborn("run", "stubborn:agent", "late", "--run-id", "r1", seconds=30)

    assert 5 == done.code
    assert "late of run 'r1'" in done.err
