"""Commands of tools run in a group of their own, of which nothing outlives the call."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from agentkit.core.runtime.groups import Group, group_of, kill_group
from agentkit.tools import CommandTimedOut, ToolContext, run_command

SLEEP = "import time; time.sleep(600)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(float(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    """Whether a process of this number lives and is more than a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text[text.rindex(")") + 2] != "Z"


async def gone(pid: int) -> bool:
    """Wait until it has ended; one that lives on is ended here, and told."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10.0):
            while alive(pid):
                os.sched_yield()
                await asyncio.sleep(0)
            return True
    os.kill(pid, signal.SIGKILL)
    return False


async def child_in(path: Path) -> int:
    """The number that a parent has written."""
    while not (path.exists() and path.read_text()):  # noqa: ASYNC240 - small
        os.sched_yield()
        await asyncio.sleep(0)
    return int(path.read_text())  # noqa: ASYNC240 - small


async def test_a_command_gets_its_words_input_folder_and_environment(tmp_path: Path) -> None:
    """No shell looks at them, and exit code and both outputs come back."""
    code = (
        "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['A'], sys.stdin.read());"
        "print('bad', file=sys.stderr); sys.exit(3)"
    )
    words = ["$HOME; echo no", "*", ""]
    result = await run_command(
        ToolContext(),
        [sys.executable, "-c", code, *words],
        folder=tmp_path,
        environment={"A": "b"},
        send="hällo\nworld",
    )

    assert (3, "bad\n", False) == (result.code, result.errors, result.cut)
    assert f"{words} {tmp_path} b hällo\nworld\n" == result.output


async def test_output_beyond_the_limit_is_read_and_dropped() -> None:
    """The command is not held up by it."""
    code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 10)"
    result = await run_command(ToolContext(), [sys.executable, "-c", code], max_output_bytes=1000)

    assert (0, "x" * 1000, "y" * 10, True) == (
        result.code,
        result.output,
        result.errors,
        result.cut,
    )


@pytest.mark.slow
async def test_a_whole_group_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    """What the command has started goes with it; what it did until then is not known."""
    note = tmp_path / "child"
    command = [sys.executable, "-c", PARENT, str(note), "600"]
    running = asyncio.create_task(run_command(ToolContext(), command, timeout_seconds=5.0))
    child = await child_in(note)
    with pytest.raises(CommandTimedOut, match="ran longer than 5 seconds and was killed"):
        await running

    assert await gone(child)


async def test_a_whole_group_is_killed_when_its_call_is_cancelled(tmp_path: Path) -> None:
    """As at a tool's timeout, a cancelled run, and a worker that is told to stop."""
    note = tmp_path / "child"
    command = [sys.executable, "-c", PARENT, str(note), "600"]
    running = asyncio.create_task(run_command(ToolContext(), command))
    child = await child_in(note)
    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()
    assert await gone(child)


async def test_nothing_outlives_a_command_that_has_ended(tmp_path: Path) -> None:
    """A child that it left behind, and that holds its output open, is killed."""
    note = tmp_path / "child"
    result = await run_command(ToolContext(), [sys.executable, "-c", PARENT, str(note), "0"])
    child = await child_in(note)

    assert (0, f"{child}\n") == (result.code, result.output)
    assert await gone(child)


async def test_a_command_that_could_not_be_recorded_does_not_begin(tmp_path: Path) -> None:
    """It stands at its gate until the group is durable."""

    async def refuse(name: str, produce: object) -> None:
        raise OSError("the disk is full")

    made = tmp_path / "made"
    context = ToolContext(recorder=refuse)
    with pytest.raises(OSError, match="full"):
        await run_command(context, ["touch", str(made)])

    assert not made.exists()


async def test_a_text_is_no_command_and_an_unknown_program_is_named() -> None:
    """Both before anything is started."""
    with pytest.raises(TypeError, match="a list of words"):
        await run_command(ToolContext(), "ls -l")
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await run_command(ToolContext(), ["no-such-program"])


async def test_a_number_that_belongs_to_another_process_is_not_killed() -> None:
    """A group whose first process began at another moment, or whose mark nobody carries."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SLEEP, start_new_session=True
    )
    group = group_of(process.pid, "mark")
    other = Group(group.number, group.started - 1, "mark")
    ended = await asyncio.create_subprocess_exec("true", start_new_session=True)
    await ended.wait()
    refused = [kill_group(other), kill_group(Group(ended.pid, 1, "mark"))]
    lives = alive(process.pid)
    killed = kill_group(group)
    await process.wait()

    assert ([False, False], True, True) == (refused, lives, killed)
    assert os.getpid() != process.pid
