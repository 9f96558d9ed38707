"""A paused worker wakes up after another one took its run over, and its late command is refused.

Needs no key: a function stands in for the model and answers from the conversation. Run it as

    python examples/fencing_sink.py

The first worker stops in the middle of its tool, as a suspended machine does: it is not dead, it
just does not know how late it is. The next worker opens the gate and closes it again. Then the
first one goes on, and without the fencing token it would open the gate once more.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from agentkit import (
    Agent,
    Checkpointer,
    Invoker,
    ReActCognition,
    RunContext,
    Services,
    ToolCall,
    ToolContext,
    tool,
)
from agentkit.core.contracts.errors import LeaseLost
from agentkit.core.contracts.types import Message
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

RUN_ID = "lock-7"
TASK = "Let the barge through lock 7."
COMMANDS = (80, 0)
TOOL_ENDED = threading.Event()


class StaleToken(Exception):
    """The command is of a worker that has been replaced; nothing was changed."""


class Gates:
    """The sink: remembers for each gate the highest token it has seen, and refuses lower ones.

    Check and change are one statement, so that no command comes between them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, gate: str, percent: int, *, token: int) -> None:
        """Open `gate` so far."""
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS gate (name TEXT PRIMARY KEY, percent INT, token INT)"
            )
            done = db.execute(
                "INSERT INTO gate VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET percent = excluded.percent, token = excluded.token "
                "WHERE excluded.token >= gate.token",
                (gate, percent, token),
            )
            if not done.rowcount:
                raise StaleToken(f"gate {gate} has seen a newer worker; {percent} % refused")

    def percent(self, gate: str) -> int:
        """How far `gate` is open."""
        with closing(sqlite3.connect(self._path)) as db:
            found = db.execute("SELECT percent FROM gate WHERE name = ?", (gate,)).fetchone()
        return int(found[0])


def agent(folder: Path, *, pause: bool) -> Agent:
    """The definition; `pause`: its process stands still inside the first call."""
    gates = Gates(folder / "gates.db")

    @tool(side_effecting=True, idempotent=True)
    def set_gate(percent: int, context: ToolContext) -> str:
        """Set the gate; setting it twice to the same value does no harm."""
        if pause:
            # To this thread, so that it does not run on until the process has noticed.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        try:
            gates.set("7", percent, token=context.fencing_token)
        except StaleToken as stale:
            print(f"  [sink] {stale}", flush=True)
            raise
        finally:
            TOOL_ENDED.set()
        print(f"  [sink] gate 7 is at {percent} %", flush=True)
        return f"gate 7 is at {percent} %"

    return Agent(name="keeper", prompt="Keep the lock.", cognition=ReActCognition([set_gate]))


def answer(messages: Sequence[Message]) -> Turn:
    """What a model might say: open the gate, close it, report."""
    given = sum(message.role == "assistant" for message in messages)
    if given == len(COMMANDS):
        return Turn(content="The barge is through.")
    call = ToolCall(id=f"c{given}", name="set_gate", arguments={"percent": COMMANDS[given]})
    return Turn(tool_calls=(call,))


class Later(SystemClock):
    """A clock that is ahead by more than a lease, so that nobody has to wait for one here."""

    def elapsed(self) -> float:
        """Seconds, and twenty more."""
        return super().elapsed() + 20.0


async def work(folder: Path, *, first: bool) -> None:
    """Drive the run: the first worker until it is stopped, the next one to the end."""
    store = SqliteCheckpointStore(folder / "runs.db", clock=None if first else Later())
    services = Services(invoker=Invoker(llm=FakeLLM(answer)), checkpointer=Checkpointer(port=store))
    context = RunContext(correlation_id=RUN_ID, services=services)
    result = await agent(folder, pause=first).run(TASK, context)
    print(f"  [answer] {result.output}", flush=True)
    await store.aclose()


def main() -> None:
    """Start the first worker, pause it, be the next one, and wake the first one up."""
    if sys.argv[1:]:
        try:
            asyncio.run(work(Path(sys.argv[1]), first=True))
        except LeaseLost:
            TOOL_ENDED.wait(30)  # it runs in a thread of its own
            print("  [worker] has lost the run and stops", flush=True)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with subprocess.Popen([sys.executable, __file__, name]) as paused:  # noqa: S603 - itself
            os.waitpid(paused.pid, os.WUNTRACED)
            print("first worker is paused inside its tool; next worker:", flush=True)
            asyncio.run(work(folder, first=False))
            print("first worker goes on:", flush=True)
            paused.send_signal(signal.SIGCONT)
        print(f"the gate is at {Gates(folder / 'gates.db').percent('7')} %", flush=True)


if __name__ == "__main__":
    main()
