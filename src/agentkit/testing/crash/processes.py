"""Real worker processes, by the hundred: forked from one that has imported everything already.

Starting Python and importing an agent takes most of a second; forking takes milliseconds. The
server is a child process without threads or event loop. It forks one worker for each order, waits
for it, and says how it ended. A worker is a process like any other: SIGKILL ends it for good.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.types import JSON, JSONObject

__all__ = ["Ended", "ForkServer", "How", "WorkerStuck", "serve"]

How: TypeAlias = Literal["killed", "completed", "failed"]
"""How a worker ended: by SIGKILL, by itself, or in any other way."""

_START_SECONDS = 60.0
"""How long a server may take to import what its workers need."""

_END_SECONDS = 3.0
"""How long a server may take to end when there are no more orders."""


class WorkerStuck(AgentkitError):
    """A worker did not end within its bound; it was killed."""


class Ended(msgspec.Struct, frozen=True):
    """The end of a worker. `detail`: its traceback or signal, where it failed."""

    how: How
    pid: int
    detail: str = ""


class _Order(msgspec.Struct, frozen=True):
    """What the server is told: the argument of the worker's function, and when to kill it."""

    argument: dict[str, JSON]
    kill_after_seconds: float | None = None


class ForkServer:
    """Runs a function in processes of their own, one at a time. Use it in a `with` statement.

    Args:
        function: `package.module:name` of a function of one JSON object. Its module is imported
            once, in the server; `module.warm_up()` is called there where it exists.
        setup: given to `warm_up`, where there is something to tell it.
        limit_seconds: the longest a worker may take.
        path: folders to import from, beside the ones of this process.
    """

    def __init__(
        self,
        function: str,
        *,
        setup: JSONObject | None = None,
        limit_seconds: float = 60.0,
        path: tuple[Path, ...] = (),
    ) -> None:
        self._limit_seconds = limit_seconds
        self._buffer = b""
        folders = [str(folder) for folder in path] + [entry for entry in sys.path if entry]
        self._server = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "agentkit.testing.crash", "serve", function, *_told(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            start_new_session=True,
        )
        self._read(_START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, argument: JSONObject, *, kill_after_seconds: float | None = None) -> Ended:
        """Run the function in a new process and wait for its end.

        Args:
            argument: given to the function.
            kill_after_seconds: SIGKILL the process so long after its start, if it still runs.

        Raises:
            WorkerStuck: it did not end in time.
        """
        self.start(argument, kill_after_seconds=kill_after_seconds)
        return self.wait()

    def start(self, argument: JSONObject, *, kill_after_seconds: float | None = None) -> int:
        """Like `run`, but return the pid as soon as the process is there; `wait` has to follow."""
        order = _Order(argument, kill_after_seconds)
        stdin = self._server.stdin
        if stdin is None:
            raise AssertionError("the server has no stdin")
        stdin.write(msgspec.json.encode(order) + b"\n")
        stdin.flush()
        return msgspec.json.decode(self._read(self._limit_seconds), type=int)

    def wait(self) -> Ended:
        """The end of the worker that was started.

        Raises:
            WorkerStuck: it did not end in time.
        """
        return msgspec.json.decode(self._read(self._limit_seconds), type=Ended)

    def kill(self) -> None:
        """End the server and its worker at once, from any thread; who waits for them is told."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the server, and every worker that it may still have."""
        stdin, stdout = self._server.stdin, self._server.stdout
        if stdin is not None:
            stdin.close()  # no more orders: a server without a worker ends
        try:
            self._server.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
        if stdout is not None:
            stdout.close()

    def _read(self, seconds: float) -> bytes:
        """The server's next line."""
        stdout = self._server.stdout
        if stdout is None:
            raise AssertionError("the server has no stdout")
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([stdout], [], [], seconds)
            part = os.read(stdout.fileno(), 65_536) if ready else b""
            if not part:
                self.close()
                why = f"nothing came within {seconds:g} s" if not ready else "the server is gone"
                raise WorkerStuck(f"worker process: {why}")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _told(setup: JSONObject | None) -> list[str]:
    return [] if setup is None else [msgspec.json.encode(setup).decode()]


def serve(function: str, *setup: str) -> None:
    """The server's side: read orders from stdin until it closes. `setup`: as JSON, or nothing."""
    # Workers and modules may print; only the server speaks to the one who ordered.
    out = os.dup(1)
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    imported = importlib.import_module(module)
    getattr(imported, "warm_up", lambda *_: None)(*map(msgspec.json.decode, setup))
    os.write(out, b'"ready"\n')
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=_Order)
        report, reported = os.pipe()
        pid = os.fork()
        if pid == 0:
            _work(getattr(imported, name), order.argument, reported)
        os.close(reported)
        os.write(out, b"%d\n" % pid)
        if order.kill_after_seconds is not None:
            _kill_later(pid, order.kill_after_seconds)
        ended = _ended(pid, report)
        os.close(report)
        os.write(out, msgspec.json.encode(ended) + b"\n")


def _work(function: Callable[[JSONObject], None], argument: JSONObject, reported: int) -> None:
    """The worker's side, in the forked child; never returns."""
    status = 1
    try:
        # A worker that reads its stdin gets nothing, and takes no orders away from the server.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        function(argument)
        status = 0
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        os.write(reported, traceback.format_exc().encode()[-60_000:])
    finally:
        sys.stderr.flush()
        os._exit(status)


def _kill_later(pid: int, seconds: float) -> None:
    """Wait for the worker's end at most so long, then kill it. It is not reaped here, so its pid
    cannot have become another's.
    """
    descriptor = os.pidfd_open(pid)
    try:
        select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    os.kill(pid, signal.SIGKILL)


def _ended(pid: int, report: int) -> Ended:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        return Ended("killed", pid)
    if code == 0:
        return Ended("completed", pid)
    detail = os.read(report, 65_536).decode(errors="replace") or f"exit code {code}"
    return Ended("failed", pid, detail)
