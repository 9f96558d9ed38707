"""A run's entries as lines for a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from agentkit.cli.output import ago, at_time, one_line, shorten
from agentkit.cli.questions import asked_lines
from agentkit.cli.statuses import LEFT_OPEN
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import JSON
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.recovery import why_in_doubt

__all__ = ["in_doubt", "is_tombstone", "timeline"]


def timeline(entries: Sequence[e.Entry], state: RunState, *, status: str) -> Iterator[str]:
    """Lines: what the run is, what happened when, and what is open."""
    yield from _heading(state, status)
    yield ""
    first = entries[0].at if entries else 0
    for entry in entries:
        text = _text(entry)
        if text:
            yield f"{entry.seq:>5}  +{ago((entry.at - first) / 1000):>4}  {text}"
    if is_tombstone(state) and state.end is not None:
        yield _run_text(state.end)
        yield ""
    for question in state.questions:
        yield ""
        yield from asked_lines(question, title=f"open {question.id}")
    for wait in state.waits if state.status == "suspended" else ():
        yield ""
        until = f" until {at_time(wait.until)}" if wait.until else ""
        what = f"event {one_line(wait.event)}" if wait.event else "time"
        yield f"waits: {one_line(wait.tool)} for {what}{until}"
    for one in in_doubt(state) if status in LEFT_OPEN else ():
        yield ""
        may = f"{one['tool']} may or may not have taken effect"
        yield f"in doubt {one['call']}: {may}: {one['why']}"
        settle = shlex.join(["agentkit", "tool", "settle", state.run_id, str(one["call"])])
        yield f"  say what became of it with {settle}, or resume the run to do as its tool says"


def _heading(state: RunState, status: str) -> Iterator[str]:
    """Lines: what the run is, and what it has used."""
    started = state.started
    if started is not None:
        yield f"run     {state.run_id}"
        model = f" ({shorten(started.model)})" if started.model else ""
        yield f"agent   {started.agent}{model}"
        yield f"task    {shorten(state.task, 200)}"
    elif state.submitted is not None:
        yield f"run     {state.run_id}"
        yield f"agent   {shorten(state.submitted.agent)}"
        yield f"task    {shorten(state.submitted.task, 200)}"
    elif is_tombstone(state):
        yield f"run     {state.run_id}"
        yield f"agent   {shorten(state.base.agent)}"
        yield f"task    {shorten(state.base_detail.task, 200)}"
    yield f"status  {status}"
    usage = state.usage
    lost = f", {usage.unknown} more may be paid and lost" if usage.unknown else ""
    yield (
        f"usage   {usage.requests} answers, {usage.input_tokens} tokens in, "
        f"{usage.output_tokens} out{lost}"
    )
    if state.forked is not None:
        past, origin = state.inherited, f"after   {shorten(state.forked.parent)}"
        if not state.after:
            parent = shorten(state.forked.parent)
            origin = f"forked  from {parent} at version {state.forked.version}"
        paid = f"{past.requests} answers and {past.total_tokens} tokens had been paid"
        yield f"{origin}, where {paid}"


def in_doubt(state: RunState) -> list[dict[str, JSON]]:
    """Calls with effects of which nobody saw the end, and nobody has asked yet."""
    return [
        {
            "call": f"{lane.turns}.{call.index}",
            "tool": shorten(call.record.name, 64),
            "attempt": call.attempt,
            "why": one_line(why_in_doubt(call, call.outcome)),
        }
        for lane in state.lanes.values()
        if lane.turn is not None and not lane.turn.closed
        for call in lane.turn.calls
        if call.question is None and not call.settled and call.doubtful(call.attempt)
        if call.outcome is None or call.outcome.outcome != "retrying"  # somebody has said so
        if call.started is not None and call.started.key and not call.started.transactional
    ]


def is_tombstone(state: RunState) -> bool:
    """Whether the run has ended and its entries are gone."""
    return state.end is not None and state.started is None and state.submitted is None


def _text(entry: e.Entry) -> str:
    body = entry.body
    if isinstance(body, e.ModelAnswered):
        calls = ", ".join(
            f"{shorten(call.name, 64)} {shorten(call.arguments, 60)}" for call in body.calls
        )
        said = shorten(body.text, 120)
        return (
            f"model   {said}{' → ' if said and calls else ''}{calls or ('' if said else '(empty)')}"
        )
    if isinstance(body, e.ModelFailed):
        if body.kind == "interrupted":
            return f"model   {shorten(body.message)}"
        again = "will be tried again" if body.retry_at is not None else "not tried again"
        return (
            f"model   attempt {body.attempt} failed ({body.kind}), {again}: {shorten(body.message)}"
        )
    if isinstance(
        body,
        e.ToolStarted | e.ToolFinished | e.ValueRecorded | e.QuestionAsked | e.OutcomeReported,
    ):
        return _tool_text(entry, body)
    if isinstance(body, e.WaitStarted | e.WaitEnded):
        return _wait_text(body)
    return _run_text(body)


def _wait_text(body: e.WaitStarted | e.WaitEnded) -> str:
    place = f"{body.turn}.{body.index}"
    if isinstance(body, e.WaitEnded):
        return f"waited  {place} {shorten(body.name, 80)}: its {body.how} has come"
    until = f" until {at_time(body.until)}" if body.until else ""
    return f"waits   {place} {body.kind} {shorten(body.event or body.name, 80)}{until}"


def _tool_text(
    entry: e.Entry,
    body: e.ToolStarted | e.ToolFinished | e.ValueRecorded | e.QuestionAsked | e.OutcomeReported,
) -> str:
    place = f"{body.turn}.{body.index}"
    if isinstance(body, e.ToolStarted):
        again = f", attempt {body.attempt}" if body.attempt > 1 else ""
        by = f" by {shorten(body.by, 40)}" if body.by else ""
        edited = f" with {shorten(body.arguments, 120)}" if body.arguments else ""
        return f"tool    {place} {shorten(body.name, 64)} starts{again}{by}{edited}"
    if isinstance(body, e.ToolFinished):
        by = f" by {shorten(body.by, 40)}" if body.by else ""
        return f"tool    {place} {body.outcome}{by}: {shorten(body.content, 120)}"
    if isinstance(body, e.OutcomeReported):
        by = shorten(body.by, 40) or "a worker without the lease"
        said = shorten(body.content or body.reason, 120)
        told = f"told    {place} attempt {body.attempt} {body.outcome} by {by}"
        return f"{told}: {said}" if said else told
    if isinstance(body, e.ValueRecorded):
        return f"tool    {place} recorded {shorten(body.name, 40)}: {shorten(body.value, 80)}"
    return (
        f"asked   q{entry.seq} {body.kind}: {shorten(body.tool, 64)} {shorten(body.arguments, 80)}"
    )


def _run_text(body: e.Body) -> str:
    match body:
        case e.RunSubmitted():
            return f"submitted for {shorten(body.agent, 80)}: {shorten(body.task, 120)}"
        case e.RunStarted():
            return "start"
        case e.LeaseTaken(why="takeover"):
            return f"CRASH   its worker was gone; taken over ({body.recoveries} without progress)"
        case e.LeaseTaken():
            return "resume" if body.why == "resume" else "worker  began"
        case e.StepCompleted():
            return f"step    version {body.version}, iteration {body.iteration}, {body.status}"
        case e.CheckpointSaved():
            return f"saved   version {body.version}, {body.status}"
        case e.Decided():
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            value = "" if body.value == "null" else f" {shorten(body.value, 120)}"
            why = f" {shorten(body.reason, 60)}" if body.reason else ""
            return f"decided {body.question}: {body.answer}{value}{by}{why}"
        case e.EventReceived():
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            return f"event   {shorten(body.name, 60)}{by} {shorten(body.payload, 120)}"
        case e.MessageAdded():
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            return f"user    {shorten(body.text, 160)}{by}"
        case e.Forked():
            return _fork_text(body)
        case e.Parked():
            return f"parked  {body.reason}: {shorten(body.message, 160)}"
        case e.Unparked():
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            what = "unpaused" if body.pause_only else "unparked"
            return f"{what}{by} {shorten(body.reason, 60)}".rstrip()
        case e.CancelAsked() | e.PauseAsked():
            what = "cancel" if isinstance(body, e.CancelAsked) else "pause"
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            return f"{what:<7} asked for{by} {shorten(body.reason, 60)}".rstrip()
        case e.Finished():
            return f"end     {body.stop_reason}: {shorten(body.output, 160)}"
        case e.Failed():
            return f"end     failed: {shorten(body.message, 160)}"
        case e.Cancelled():
            by = f" by {shorten(body.actor, 40)}" if body.actor else ""
            return f"end     cancelled{by} {shorten(body.reason, 120)}".rstrip()
        case _:
            return type(body).__name__


def _fork_text(body: e.Forked) -> str:
    if body.task:
        return f"after   {shorten(body.parent)} ended: {shorten(body.task, 160)}"
    by = f" by {shorten(body.actor, 40)}" if body.actor else ""
    edits = "".join(
        f"; {one.turn}.{one.index} is now: {shorten(one.content)}" for one in body.edits
    )
    said = f"; the user adds: {shorten(body.message, 120)}" if body.message else ""
    return f"fork    from {shorten(body.parent)} at version {body.version}{by}{edits}{said}"
