"""Running a command from a tool, so that nothing of it outlives its call."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from agentkit.core.contracts.errors import OutcomeUnknown
from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock
from agentkit.core.runtime.groups import MARK_VARIABLE, RECORD_PREFIX, Group, group_of, kill_group
from agentkit.tools.context import ToolContext

__all__ = ["MAX_OUTPUT_BYTES", "CommandResult", "CommandTimedOut", "run_command"]

MAX_OUTPUT_BYTES = 1024 * 1024
"""What is kept of each output of a command; the rest is read and dropped."""

_LAST_OUTPUT_SECONDS = 1.0
"""How long the output of a command is awaited after its end: others may hold it open."""

_LOOK_SECONDS = 0.02

_REAP_SECONDS = 0.3
"""How long a killed command may take to be gone."""

_PIECE_BYTES = 65_536

_GATE = 'IFS= read -r go && exec "$@"'
"""Waits for a line, then becomes the command. Where the worker dies before it has let it go, the
line never comes, and nothing is run.
"""


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    Args:
        code: its exit code; negative for a signal.
        output: of standard output, as UTF-8 with what is none replaced.
        errors: of standard error, likewise.
        cut: more was written than `max_output_bytes`.
    """

    code: int
    output: str
    errors: str
    cut: bool = False


class CommandTimedOut(OutcomeUnknown):
    """A command ran longer than it may and was killed; what it did until then is not known."""


async def run_command(
    context: ToolContext,
    command: Sequence[str],
    *,
    timeout_seconds: float | None = None,
    folder: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    send: str | bytes = b"",
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> CommandResult:
    """Run a command in a process group of its own, and wait for its end.

    The whole group is killed when the command has ended, when its time is over, and when the call
    is cancelled or times out. Which group it is is durable before the command begins: where the
    worker dies, the next one on this machine kills what is left before it does anything else.
    What has left the group (a daemon) is not found. No shell is involved: the words are passed as
    they are; who wants one runs `["sh", "-c", "…"]`.

    Args:
        context: of the tool's call.
        command: program and arguments.
        timeout_seconds: how long it may take; the tool's own timeout holds in any case.
        folder: where it runs; the worker's current folder otherwise.
        environment: all of its environment; the worker's otherwise.
        send: its standard input.
        max_output_bytes: what is kept of each output.

    Raises:
        CommandTimedOut: it took too long and was killed.
        FileNotFoundError: there is no such program.
        TypeError: the command is one text.
        StoreError, LeaseLost: the group could not be recorded; the command did not begin.
    """
    words, mark = _checked(command, environment), SystemChance().token()
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _GATE, "sh", *words),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
        cwd=folder,
        env={**(os.environ if environment is None else environment), MARK_VARIABLE: mark},
    )
    group = group_of(process.pid, mark)
    try:
        await _record(context, group)
        async with _in_time(words[0], timeout_seconds):
            return await _finish(process, group, send, max_output_bytes)
    finally:
        await _end(process, group)


def _checked(command: Sequence[str], environment: Mapping[str, str] | None) -> list[str]:
    if isinstance(command, str) or not command:
        raise TypeError(f"a command is a list of words, like ['ls', '-l'], not {command!r}")
    words = [str(word) for word in command]
    path = None if environment is None else environment.get("PATH", "")
    if "/" not in words[0] and shutil.which(words[0], path=path) is None:
        raise FileNotFoundError(f"there is no program {words[0]!r}")
    return words


async def _record(context: ToolContext, group: Group) -> None:
    fact = {"owner": context.owner, **msgspec.structs.asdict(group)}
    await context.record(f"{RECORD_PREFIX}{context.attempt}.{group.mark[:8]}", lambda: fact)


async def _end(process: Process, group: Group) -> None:
    """See that nothing is left of it, and close its pipes; a process object has no method for that
    (https://github.com/python/cpython/issues/114177).
    """
    kill_group(group)
    if process.returncode is None:
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=_REAP_SECONDS)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - see above


@asynccontextmanager
async def _in_time(name: str, seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as exc:
        message = f"{name} ran longer than {seconds:g} seconds and was killed"
        raise CommandTimedOut(message) from exc


async def _finish(process: Process, group: Group, send: str | bytes, limit: int) -> CommandResult:
    """Let the command go, and hear it out."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError("a command was started without pipes")
    given = send.encode() if isinstance(send, str) else send
    feeding = asyncio.ensure_future(_feed(process.stdin, given))
    reading = [
        asyncio.ensure_future(_read(stream, limit)) for stream in (process.stdout, process.stderr)
    ]
    try:
        code = await _end_of(process)
        await asyncio.wait(reading, timeout=_LAST_OUTPUT_SECONDS)
        if not all(one.done() for one in reading):
            kill_group(group)  # whoever holds its output open
            await asyncio.wait(reading, timeout=_LAST_OUTPUT_SECONDS)
        outputs = [one.result() if one.done() else (b"", True) for one in reading]
    finally:
        for task in (feeding, *reading):
            task.cancel()
    output, errors = (data.decode("utf-8", "replace") for data, _ in outputs)
    return CommandResult(code, output, errors, cut=any(cut for _, cut in outputs))


async def _end_of(process: Process) -> int:
    """Its exit code, as soon as it has ended: `wait` also waits for whoever else holds its pipes
    open (https://github.com/python/cpython/issues/119710).
    """
    clock = SystemClock()
    while process.returncode is None:
        await clock.sleep(_LOOK_SECONDS)
    return process.returncode


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    try:
        stdin.write(b"go\n" + given)
        await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # it does not want to hear all of it


async def _read(stream: asyncio.StreamReader, limit: int) -> tuple[bytes, bool]:
    kept = bytearray()
    cut = False
    while piece := await stream.read(_PIECE_BYTES):
        room = limit - len(kept)
        cut = cut or len(piece) > room
        kept += piece[:room]
    return bytes(kept), cut
