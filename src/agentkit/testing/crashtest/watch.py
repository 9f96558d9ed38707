"""What the tools of an agent under test do: one line before each is entered, one after it left.

A tool is wrapped around its own function, inside the runtime, so whatever enters it is seen: the
runtime, or a wrapper of the user's that enters it twice. What the function does to the world cannot
be seen from outside; a test double of the world tells it with `note_effect`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import threading
from collections import Counter
from collections.abc import Awaitable
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import Cognition
from agentkit.agents.registry import ToolRegistry
from agentkit.core.contracts.errors import InvalidSpec, ResultNotStorable
from agentkit.core.contracts.values import digest, encode_value
from agentkit.testing.crash import CrashPlan
from agentkit.testing.lines import JsonLines
from agentkit.tools import Tool, ToolContext

__all__ = ["Line", "LineKind", "TracedPlan", "Watch", "note_effect", "watched"]

LineKind: TypeAlias = Literal["entered", "left", "raised", "effect"]
"""`effect`: a test double of the outside world says that something changed there."""

_CONTEXT = "agentkit_crashtest_context"
"""The parameter through which a tool that takes no `ToolContext` is seen with one."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log, on the disk before the tool goes on.

    Args:
        kind: see `LineKind`.
        tool: its name.
        key: the call's idempotency key; empty for tools without side effects.
        arguments: a digest of what the function was given.
        attempt: as the tool was told.
        epoch: the fencing token, as the tool was told.
        pid: of the process.
        value: of `left`: what it returned, encoded; of `effect`: what changed.
        error: of `raised`: the error.
        key_read: of `left`: the function read its key or its fencing token.
    """

    kind: LineKind
    tool: str
    key: str
    arguments: str
    attempt: int
    epoch: int
    pid: int
    value: str = ""
    error: str = ""
    key_read: bool = False


class TracedPlan(CrashPlan):
    """A plan that gives each border a place which is the same in the next run, and notes it.

    How many outcomes share an append differs from run to run; so places are counted from each
    request to the model anew. `append:after@2` comes after this worker's second request,
    `append:after@2#3` is the third of that name there, `tool:before:mail@2` is one of a tool.

    Args:
        place: where to die; `None` for nowhere.
        trace: where the places are written down.
    """

    def __init__(self, place: str | None, *, trace: JsonLines) -> None:
        super().__init__()
        self._place = place
        self._trace = trace
        self._requests = 0
        self._times: Counter[str] = Counter()
        self._turn = threading.Lock()

    def border(self, name: str, *, tool: str = "") -> None:
        """See `CrashPlan.border`."""
        super().border(name)
        with self._turn:
            if name == "model:before":
                self._requests += 1
                self._times.clear()
            kind = f"{name}:{tool}" if tool else name
            self._times[kind] += 1
            number = "" if self._times[kind] == 1 else f"#{self._times[kind]}"
            place = f"{kind}@{self._requests}{number}"
            self._trace.write({"place": place, "tool": tool})
            if place == self._place:
                os.kill(os.getpid(), self.how)


class Watch:
    """The log of one run's tools.

    Args:
        path: the file of the log.
        plan: has a border before a tool is entered, inside it, and after it left.
    """

    def __init__(self, path: Path, plan: TracedPlan) -> None:
        self._lines = JsonLines(path, sync=True)
        self._plan = plan

    def read(self) -> list[Line]:
        """All lines so far, of every process."""
        return [msgspec.convert(line, Line) for line in self._lines.read()]

    def enter(self, tool: Tool, context: ToolContext, arguments: object) -> _Call:
        """Pass the border, and write that the tool is entered."""
        self._plan.border("tool:before", tool=tool.name)
        line = Line(
            "entered",
            tool.name,
            context.idempotency_key,
            _digest(tool.name, arguments),
            context.attempt,
            context.fencing_token,
            os.getpid(),
        )
        self.write(line)
        self._plan.border("effect:before", tool=tool.name)
        object.__setattr__(context, "__class__", _NoticingContext)  # same layout: no fields added
        return _Call(self, line, context)

    def write(self, line: Line) -> None:
        """Append one line."""
        self._lines.write(msgspec.to_builtins(line))

    def leave(self, line: Line) -> None:
        """Write how the tool ended, and pass the border."""
        self.write(line)
        self._plan.border("tool:after", tool=line.tool)


class _NoticingContext(ToolContext):
    """The same context; notices whether the tool ever looked at its key or token."""

    def __getattribute__(self, name: str) -> object:
        if name in {"idempotency_key", "fencing_token"}:
            object.__getattribute__(self, "__dict__")["_key_read"] = True
        return object.__getattribute__(self, name)


class _Call:
    """One entrance of a tool; a context manager around its function."""

    def __init__(self, watch: Watch, line: Line, context: ToolContext) -> None:
        self.watch = watch
        self.line = line
        self._context = context

    def left(self, value: object) -> None:
        try:
            text = encode_value(value)
        except ResultNotStorable:
            text = "null"
        read = "_key_read" in vars(self._context)
        self.watch.leave(msgspec.structs.replace(self.line, kind="left", value=text, key_read=read))

    def raised(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error!s:.500}"
        self.watch.leave(msgspec.structs.replace(self.line, kind="raised", error=text))


_CALL: ContextVar[_Call | None] = ContextVar("agentkit_crashtest_call", default=None)


def note_effect(what: str = "effect") -> None:
    """Tell a crash test that the world outside has changed now; without one, do nothing.

    Call it in the test double of what a tool acts on (the fake mail server, the fake bank), where
    the change happens and in the tool's own task or thread. The crash test then counts effects
    instead of entrances, and sees a tool that says `idempotent=True` and acts twice.

    Args:
        what: names the effect; a tool may have several.
    """
    call = _CALL.get()
    if call is not None:
        call.watch.write(msgspec.structs.replace(call.line, kind="effect", value=what))


def watched(agent: Agent, watch: Watch) -> Agent:
    """The same agent, whose tools are seen by `watch`. The one given is left as it is.

    Raises:
        InvalidSpec: its cognition does not let its tools be replaced.
    """
    tools = tuple(_watched(tool, watch) for tool in agent.cognition.tools)
    cognition: Cognition = copy.copy(agent.cognition)
    try:
        if tools:
            setattr(cognition, "tools", tools)  # noqa: B010 - read-only in the protocol
    except AttributeError as exc:
        kind = type(cognition).__name__
        raise InvalidSpec(f"agent {agent.name!r}: the tools of {kind} cannot be wrapped") from exc
    seen = copy.copy(agent)
    seen.cognition = cognition
    seen._registry = ToolRegistry(tools)  # noqa: SLF001 - an agent's tools are fixed otherwise
    return seen


def _watched(tool: Tool, watch: Watch) -> Tool:
    """A copy with the same schema, whose function is wrapped; of the same class, so that whatever
    a class of the user's does around the function goes on.
    """
    if not tool.definition.name:
        raise AssertionError(tool)  # asked for so that the schema is made of the real function
    inner, name = tool.signature, tool.signature.context
    function = inner.function

    def begun(given: dict[str, object]) -> _Call:
        context = given[name] if name else given.pop(_CONTEXT)
        arguments = {key: value for key, value in given.items() if key != name}
        call = watch.enter(tool, cast("ToolContext", context), arguments)
        _CALL.set(call)
        return call

    @functools.wraps(function)
    async def in_loop(**given: object) -> object:
        call = begun(given)
        return await _until_left(call, cast("Awaitable[object]", function(**given)))

    @functools.wraps(function)
    def in_thread(**given: object) -> object:
        call = begun(given)
        try:
            value = function(**given)
        except BaseException as exc:
            call.raised(exc)
            raise
        if inspect.isawaitable(value):
            return _until_left(call, value)
        call.left(value)
        return value

    signature = dataclasses.replace(
        inner, function=in_loop if tool.is_async else in_thread, context=name or _CONTEXT
    )
    seen = copy.copy(tool)
    vars(seen)["signature"] = signature  # a frozen value; the copy is not shared yet
    return seen


async def _until_left(call: _Call, awaitable: Awaitable[object]) -> object:
    _CALL.set(call)
    try:
        value = await awaitable
    except BaseException as exc:
        call.raised(exc)
        raise
    call.left(value)
    return value


def _digest(tool: str, arguments: object) -> str:
    try:
        return digest(tool, arguments)
    except ResultNotStorable:
        return digest(tool, repr(arguments))
