"""`run` and `resume`: drive one run and tell what happens."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import NoReturn

import msgspec

from agentkit.agents import Agent, AgentEvent, AgentResult
from agentkit.agents.checking import checked_start
from agentkit.agents.decisions import NEED_VALUE
from agentkit.cli.exits import FAILED, NEEDS_SOMEONE, OK
from agentkit.cli.output import as_dict, at_time, emit_json, one_line, say, shorten
from agentkit.cli.questions import asked_lines
from agentkit.cli.reference import is_here, load_agent, load_recorded
from agentkit.cli.session import (
    leave_interrupted,
    leave_with,
    resume_command,
    run_command,
)
from agentkit.core.contracts.errors import AgentkitError, InvalidDecision, RunInterrupted
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Decision, Scope, Wait
from agentkit.core.contracts.values import parse_arguments
from agentkit.core.runtime import Invoker, RunContext, Services, SystemChance
from agentkit.core.runtime.context import Autonomy
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.places import in_memory, missing_file
from agentkit.state.journal.journal import load_known

__all__ = ["Order", "chosen_invoker", "drive", "parse_answers", "read_value"]

_VOLATILE = (
    "Warning: memory:// is gone when this command ends, and the run with it: nothing can show or "
    "resume it."
)


@dataclass(frozen=True)
class Order:
    """What a command line asks for. `task` is `None` to resume."""

    reference: str | None
    task: str | None
    run_id: str | None
    after: str | None = None
    answers: Sequence[str] = ()
    model: str | None = None
    identity: str = ""
    autonomy: Autonomy = "gated"
    scope: Scope = field(default_factory=Scope)
    wait_seconds: float = 15.0
    grace_seconds: float = 0.0


def drive(order: Order, *, store_url: str | None, as_json: bool) -> NoReturn:
    """Carry the order out and leave with the exit code of its result."""
    try:
        decisions = parse_answers(order.answers)
        run_id = check_id(order.run_id) if order.run_id is not None else SystemChance().token()
        if order.task is not None:
            checked_start(order.task, order.after, run_id=run_id)
        with _prints_aside():
            agent = load_agent(order.reference) if order.reference else None
        invoker = chosen_invoker(order.model)
        context = _context(order, run_id)
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    except KeyboardInterrupt:
        leave_interrupted(as_json=as_json)

    resume = _resume(order, run_id, store_url)
    left_behind = {run_id: resume}

    async def work(store: JournalPort) -> int:
        if in_memory(store):
            say(_VOLATILE, error=True)
        services = Services(invoker=invoker, checkpointer=Checkpointer(port=store))
        view, within = store.scoped(order.scope), replace(context, services=services)
        try:
            with _prints_aside():
                chosen = agent or await _recorded(view, run_id)
                result = await _follow(chosen, order, within, decisions, quiet=as_json)
        except (asyncio.CancelledError, RunInterrupted):
            if missing_file(store) is not None or not await _has_begun(view, run_id):
                left_behind.clear()
            raise
        return _report(result, resume, as_json=as_json)

    creates = order.task is not None
    run_command(
        store_url,
        work,
        as_json=as_json,
        creates=creates,
        left_behind=left_behind,
        grace_seconds=order.grace_seconds,
    )


def _context(order: Order, run_id: str) -> RunContext:
    """Which run is meant, before anything is opened.

    Raises:
        InvalidId: its scope or identity is none.
    """
    scope = order.scope
    scope.key  # noqa: B018 - asked for what it raises
    return RunContext(
        correlation_id=run_id, scope=scope, identity=order.identity, autonomy=order.autonomy
    )


def _prints_aside() -> AbstractContextManager[object]:
    """What an agent's module and tools print is not the answer, so it goes to standard error."""
    return redirect_stdout(sys.stderr)


def parse_answers(answers: Sequence[str]) -> dict[str, Decision]:
    """`q7=skip`, `q7=done:{"id": 1}`, `q7=failed:no such order`, `q7=edit:{"cents": 1}`: decisions.

    What follows the colon is JSON where it parses as JSON, else a text; after `reject:` it is the
    reason.

    Raises:
        InvalidDecision: an answer has no `=` or lacks its value, a question is answered twice, or
            see `read_value`.
    """
    decisions: dict[str, Decision] = {}
    for text in answers:
        question, equals, answer = text.partition("=")
        if not equals or not question or not answer or question in decisions:
            message = f"--answer {text!r} must look like q7=skip, each question once"
            raise InvalidDecision(message)
        word, colon, value = answer.partition(":")
        word = word.strip().lower().replace("-", "_")
        if word in NEED_VALUE and not value:
            what = _WHAT[word]
            raise InvalidDecision(f"--answer {text!r} must say {what}: {question}={word}:…")
        reason = value if word == "reject" else ""
        given = read_value(value) if colon and not reason else None
        decisions[question] = Decision(word, given, "command line", reason)
    return decisions


_WHAT = {
    "done": "what the tool returned",
    "failed": "why",
    "edit": "all arguments as JSON",
    "answer": "it",
}


def read_value(text: str) -> JSON:
    """JSON where it parses as JSON, else the text itself.

    Raises:
        InvalidDecision: it parses, but not to one value: a member is named twice, or it holds NaN,
            an infinity or a number beyond the range of a float.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    wrapped = parse_arguments(f'{{"value":{text}}}')
    if wrapped is None:
        message = (
            f"{text[:80]!r} is not the JSON of one value: a member is named twice, it is nested"
        )
        raise InvalidDecision(
            f"{message} too deep, or holds NaN, an infinity or a number too large"
        )
    return wrapped["value"]


async def _has_begun(store: JournalPort, run_id: str) -> bool:
    head = await store.head(run_id)
    return head is not None and head.seq > 0


async def _recorded(store: JournalPort, run_id: str) -> Agent:
    state = await load_known(store, run_id)
    return load_recorded(state.reference, run_id=run_id)


def chosen_invoker(model: str | None) -> Invoker | None:
    """The model that `--model` names; `None` where it names none."""
    if model is None:
        return None
    from agentkit.models.providers.frontiers import from_string

    return Invoker(_Chosen(from_string(model)))


class _Chosen:
    """The model that `--model` names, whichever the run was started with. Implements `LLMPort`."""

    def __init__(self, llm: LLMPort) -> None:
        self._llm = llm

    @property
    def origin(self) -> str:
        return self._llm.origin

    def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        return self._llm.attempt(msgspec.structs.replace(request, model=""))


async def _follow(
    agent: Agent,
    order: Order,
    context: RunContext,
    decisions: dict[str, Decision],
    *,
    quiet: bool,
) -> AgentResult:
    if order.task is None:
        stream = agent.resume_stream(
            context.correlation_id, decisions, context, wait_seconds=order.wait_seconds
        )
    else:
        stream = agent.stream(
            order.task, context, after=order.after, wait_seconds=order.wait_seconds
        )
    result: AgentResult | None = None
    begun = False  # its id is told once the run is durable
    try:
        async for event in stream:
            if not quiet:
                if not begun:
                    say(f"run {context.correlation_id}", error=True)
                _tell(event)
            begun = True
            result = event.result or result
    finally:
        await stream.aclose()
    if result is None:
        message = f"run {context.correlation_id!r} ended without a result"
        raise AssertionError(message)
    return result


def _tell(event: AgentEvent) -> None:
    name = shorten(event.call.name, 64) if event.call is not None else ""
    if event.type == "tool_call" and event.call is not None:
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        arguments = msgspec.json.encode(event.call.arguments).decode()
        say(f"  → {name} {shorten(arguments)}{again}", error=True)
    elif event.type == "tool_result":
        mark = "✗" if event.is_error else "←"
        say(f"  {mark} {name}: {shorten(event.text)}", error=True)
    elif event.type == "progress":
        say(f"    {name}: {shorten(event.text)}", error=True)
    elif event.type in ("step", "repair"):
        say(f"  · {event.text}", error=True)


def _resume(order: Order, run_id: str, store_url: str | None) -> str:
    """The command that carries this run on; it finds the run's own agent in the current folder."""
    named = order.reference or ""
    agent = "" if order.task is not None and is_here(named) else named
    model = order.model or ""
    return resume_command(run_id, store_url=store_url, scope=order.scope, agent=agent, model=model)


def _report(result: AgentResult, resume: str, *, as_json: bool) -> int:
    if as_json:
        emit_json(as_dict(result))
    else:
        _report_to_a_person(result, resume)
    if result.stop_reason in ("suspended", "parked", "max_iterations"):
        return NEEDS_SOMEONE
    return FAILED if result.stop_reason in ("failed", "cancelled") else OK


def _report_to_a_person(result: AgentResult, resume: str) -> None:
    if result.output:
        say(result.output)
    if result.suspended is not None:
        for question in result.suspended.questions:
            say("\n" + "\n".join(asked_lines(question, title=question.id)), error=True)
        for wait in result.suspended.waits:
            say(_waits_for(wait), error=True)
        first = [f" --answer {one.id}=…" for one in result.suspended.questions[:1]]
        say(f"suspended: {resume}{''.join(first)}", error=True)
    elif result.message:
        say(f"{result.stop_reason}: {one_line(result.message)}", error=True)
    if result.stop_reason in ("parked", "max_iterations"):
        say(f"once that is mended: {resume}", error=True)
    usage = result.usage
    lost = f", {usage.unknown} more may be paid and lost" if usage.unknown else ""
    say(
        f"{result.stop_reason} · {usage.requests} answers · {usage.input_tokens} tokens in, "
        f"{usage.output_tokens} out{lost}",
        error=True,
    )


def _waits_for(wait: Wait) -> str:
    until = f" until {at_time(wait.until)}" if wait.until else ""
    what = f"event {one_line(wait.event)}" if wait.event else "time"
    return f"{one_line(wait.tool)} waits for {what}{until}"
