"""A worker dies while its tool runs a command; whoever takes the run ends that command first."""

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Shell, hear

AGENT = """
    import os
    import sys
    from pathlib import Path

    from agentkit import Agent, ReActCognition, ToolCall, ToolContext, tool
    from agentkit.core.testing import FakeLLM, Turn
    from agentkit.tools import run_command

    CHILD = '''
    import os, subprocess, sys, time
    from pathlib import Path
    child = subprocess.Popen(["sleep", "600"])
    Path("pids").write_text(f"{os.getpid()} {child.pid}")
    print("<running>", file=sys.__stderr__, flush=True)
    time.sleep(600)
    '''


    def lives(pid):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        return text[text.rindex(")") + 2] != "Z"


    @tool(side_effecting=False)
    async def build(context: ToolContext) -> str:
        '''Build.'''
        if Path("pids").exists():
            left = [lives(pid) for pid in Path("pids").read_text().split()]
            return f"left alive: {left}"
        sys.stderr.write("<beginning>\\n")
        sys.stderr.flush()
        await run_command(context, [sys.executable, "-c", CHILD.replace("\\n    ", "\\n")])
        return "built"


    def think(messages):
        if messages[-1].role == "user":
            return Turn(tool_calls=(ToolCall("c1", "build", {}),))
        return Turn(messages[-1].content)


    builder = Agent("builder", FakeLLM(think), cognition=ReActCognition([build]))
"""


def alive(pid: int) -> bool:
    """Whether a process of this number lives and is more than a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text[text.rindex(")") + 2] != "Z"


@pytest.fixture
def left(shell: Shell) -> Iterator[list[int]]:
    """What the command of a killed worker has left running; it does not outlive the test."""
    (shell.folder / "shop.py").write_text(textwrap.dedent(AGENT))
    worker = shell.start("run", "shop:builder", "Build.", "--run-id", "r1")
    hear(worker, "beginning")
    pids = shell.folder / "pids"
    while not (pids.exists() and len(pids.read_text().split()) == 2):
        os.sched_yield()
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()
    running = [int(pid) for pid in pids.read_text().split()]
    yield running
    for pid in filter(alive, running):
        os.kill(pid, signal.SIGKILL)


def test_the_next_worker_kills_what_is_left_before_anything_else(
    shell: Shell, left: list[int]
) -> None:
    """SIGKILL leaves command and child running; when the tool is entered again neither lives."""
    before = [alive(pid) for pid in left]

    resumed = shell("resume", "r1", "--wait", "0")

    assert [True, True] == before
    assert (0, "left alive: [False, False]\n") == (resumed.code, resumed.out)
    assert "killed process group" in resumed.err


def test_who_cancels_a_dead_workers_run_kills_what_is_left(shell: Shell, left: list[int]) -> None:
    """The run ends, and so do the command and its child."""
    done = shell("cancel", "r1", "--wait", "0")

    assert 0 == done.code
    assert [False, False] == [alive(pid) for pid in left]


def test_the_record_of_a_command_is_shown_and_harmless(shell: Shell, left: list[int]) -> None:
    """`show` tells of it and kills nothing; it has no secret of the environment."""
    shown = shell("show", "r1")

    assert "recorded process:1." in shown.out
    assert [True, True] == [alive(pid) for pid in left]
    shell("cancel", "r1", "--wait", "0")
