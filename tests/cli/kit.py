"""The command line as a process of its own, and a folder to run it in."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import agentkit
from tests.cli.forks import run_forked

SOURCES = Path(agentkit.__file__).parents[1]

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")

AGENTS = '''
import asyncio
import pathlib
import sys

from agentkit import Agent, ReActCognition, tool
from agentkit.core.contracts.types import ToolCall
from agentkit.core.testing import FakeLLM, Turn


def tell(text):
    sys.stderr.write(f"<{text}>\\n")
    sys.stderr.flush()


@tool(side_effecting=False)
async def look(item: str) -> str:
    """Look something up."""
    tell("looking")
    while pathlib.Path("hold-tool").exists():
        await asyncio.sleep(0.02)
    return f"value of {item}"


@tool(side_effecting=True)
async def send(item: str) -> str:
    """Send something."""
    with pathlib.Path("sent").open("a") as log:
        log.write(item + "\\n")
    tell("sending")
    while pathlib.Path("hold-send").exists():
        await asyncio.sleep(0.02)
    return f"sent {item}"


class Slow:
    """A model that waits while it is held."""

    origin = "fake"

    def __init__(self, inner):
        self.inner = inner

    async def attempt(self, request):
        tell("asked")
        while pathlib.Path("hold-model").exists():
            await asyncio.sleep(0.02)
        async for item in self.inner.attempt(request):
            yield item


def think(messages):
    if not any(message.role == "assistant" for message in messages):
        return Turn("I look.", tool_calls=(ToolCall("c1", "look", {"item": "a"}),))
    return Turn("It is " + messages[-1].content)


def shout(messages):
    if not any(message.role == "assistant" for message in messages):
        return Turn("I send.", tool_calls=(ToolCall("c1", "send", {"item": "a"}),))
    return Turn("Done: " + messages[-1].content)


looker = Agent("looker", Slow(FakeLLM(think)), "Look.", cognition=ReActCognition([look]))
sender = Agent("sender", FakeLLM(shout), "Send.", cognition=ReActCognition([send]))
talker = Agent("talker", FakeLLM("hello"), "Talk.")
nobody = 7
'''


KILLER = """
import os
import signal

from agentkit.state.checkpoints.adapters.sqlite import SqliteCheckpointStore

calls = 0


def call():
    global calls
    calls += 1
    if calls == int(os.environ.get("KILL_AT", "0")):
        os.kill(os.getpid(), signal.SIGKILL)


def watched(name):
    real = getattr(SqliteCheckpointStore, name)

    async def method(self, *arguments, **options):
        call()
        found = await real(self, *arguments, **options)
        call()
        return found

    setattr(SqliteCheckpointStore, name, method)


for name in ("acquire", "append", "entomb", "delete_run"):
    watched(name)
"""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


class Shell:
    """A folder with agents in it where commands are run as processes of their own.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "agents.py").write_text(AGENTS)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in KEYS},
            "PYTHONPATH": str(SOURCES),
            "AGENTKIT_STORE_URL": "sqlite:///runs.db",
        }

    def __call__(self, *arguments: str, seconds: float = 60.0, **environment: str) -> Done:
        """Run `agentkit` with these arguments to its end, in an interpreter of its own if it is
        given an environment of its own.
        """
        if not environment:
            return Done(
                *run_forked(
                    arguments, folder=self.folder, environment=self.environment, seconds=seconds
                )
            )
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=seconds)
        return Done(process.returncode, out.decode(), err.decode())

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `agentkit` with these arguments."""
        return subprocess.Popen(
            [sys.executable, "-m", "agentkit", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def touch(self, name: str) -> Path:
        """Make a marker."""
        path = self.folder / name
        path.touch()
        return path

    def suspended(self, run: str = "r1") -> str:
        """A run that waits for a decision about `send`; returns the question's id."""
        hold = self.touch("hold-send")
        worker = self.start("run", "agents:sender", "Send a.", "--run-id", run)
        hear(worker, "sending")
        worker.kill()
        worker.communicate()
        hold.unlink()
        asked = self("resume", run, "--json")
        assert 5 == asked.code, asked
        return str(asked.json["suspended"]["questions"][0]["id"])

    def interrupted(self, run: str = "r1") -> None:
        """A run whose worker was killed with SIGKILL in the middle of `look`."""
        hold = self.touch("hold-tool")
        worker = self.start("run", "agents:looker", "Look at a.", "--run-id", run)
        hear(worker, "looking")
        worker.kill()
        worker.communicate()
        hold.unlink()

    def startup(self, code: str, name: str = "startup") -> str:
        """A folder for PYTHONPATH whose `sitecustomize` runs `code` in every process."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(textwrap.dedent(code))
        return f"{folder}{os.pathsep}{SOURCES}"

    def killed_at_each(self, *arguments: str) -> Iterator[int]:
        """Run the command again and again; the n-th is killed with SIGKILL before or after its
        n-th write to a store, until one comes to its end. Yields after each kill.
        """
        path = self.startup(KILLER, name="killer")
        for kills in itertools.count(1):
            done = self(*arguments, PYTHONPATH=path, KILL_AT=str(kills))
            if done.code != -signal.SIGKILL:
                assert 0 == done.code, done
                return
            yield kills

    def without(self, *modules: str) -> str:
        """A PYTHONPATH with which these modules cannot be found."""
        return self.startup(
            f"""
            import importlib.machinery
            find = importlib.machinery.PathFinder.find_spec

            def find_spec(name, path=None, target=None):
                return None if name.split(".")[0] in {modules!r} else find(name, path, target)

            importlib.machinery.PathFinder.find_spec = find_spec
            """,
            name="hidden",
        )


def hear(worker: subprocess.Popen[bytes], mark: str) -> None:
    """Read what a worker tells on standard error until it says `<mark>`, or a line that ends so."""
    assert worker.stderr is not None
    heard = []
    marks = (f"<{mark}>".encode(), f" {mark}\n".encode())
    while not (line := worker.stderr.readline()).endswith((marks[0] + b"\n", marks[1])):
        heard.append(line)
        assert line, b"".join(heard)
