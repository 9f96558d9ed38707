"""`crashtest`: put a user's own agent through every death, and tell what became of its tools."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from contextlib import redirect_stdout
from types import FrameType
from typing import NoReturn, TypedDict

from agentkit.cli.exits import FAILED, OK
from agentkit.cli.output import as_dict, emit_json, one_line, print_table, say, say_styled
from agentkit.cli.session import (
    DEFAULT_STORE,
    STORE_VARIABLE,
    check_there,
    leave_interrupted,
    leave_with,
)
from agentkit.core.contracts.errors import AgentkitError, InvalidSpec, RunNotFound
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import open_store
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.crashtest import CrashReport, Finding, crash_test
from agentkit.testing.crashtest.api import ANSWERS, DEFAULT_TASK, Model
from agentkit.testing.crashtest.campaign import DEFAULT_TIMEOUT_SECONDS
from agentkit.testing.crashtest.report import told
from agentkit.testing.crashtest.script import ScriptTurn, recorded
from agentkit.testing.invariants import read_rows

__all__ = ["CrashOrder", "crash"]

_PLACES = 3
"""Of one finding's siblings: where they were killed."""


class CrashOrder(TypedDict):
    """What a command line asks for. The names are those of `crash_test`, but for where the model's
    answers come from: `script`, a file, or `record`, a run of `scope` in `store`.
    """

    reference: str
    task: str | None
    script: str | None
    record: str | None
    store: str | None
    scope: Scope
    reset: str | None
    answer: str
    tool: str
    borders: tuple[str, ...]
    kills_per_border: int
    max_kills: int
    seed: int
    jobs: int
    pairs: bool
    at: str
    timeout_seconds: float
    keep: str
    varies: tuple[str, ...]


def crash(order: CrashOrder, *, as_json: bool) -> NoReturn:
    """Carry the order out and leave with 0 if the agent is safe, 1 if it is not."""
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        task, model = _model(order)
        with redirect_stdout(sys.stderr):  # what the agent's module prints is not the answer
            report = crash_test(
                order["reference"],
                task=task,
                model=model,
                reset=order["reset"],
                answer=order["answer"],
                tool=order["tool"],
                borders=order["borders"],
                kills_per_border=order["kills_per_border"],
                max_kills=order["max_kills"],
                seed=order["seed"],
                jobs=order["jobs"],
                pairs=order["pairs"],
                at=order["at"],
                timeout_seconds=order["timeout_seconds"],
                keep=order["keep"],
                varies=order["varies"],
                replay=_replay(order),
                progress=_progress if sys.stderr.isatty() and not as_json else lambda *_: None,
            )
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    except KeyboardInterrupt:
        leave_interrupted(as_json=as_json)
    if as_json:
        emit_json({**as_dict(report), "safe": report.safe})
    else:
        _tell(report)
    sys.exit(OK if report.safe else FAILED)


def _model(order: CrashOrder) -> tuple[str, Model]:
    """The task, and where the model's answers come from."""
    if order["script"] is not None and order["record"] is not None:
        raise InvalidSpec("--model and --record both give the model's answers: choose one")
    if order["record"] is not None:
        task, turns = asyncio.run(_recorded(order, order["record"]))
        return order["task"] or task, turns
    return order["task"] or DEFAULT_TASK, order["script"]


async def _recorded(order: CrashOrder, run_id: str) -> tuple[str, tuple[ScriptTurn, ...]]:
    store = open_store(order["store"] or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
    try:
        await check_there(store)
        port = store.scoped(order["scope"])
        rows = await read_rows(port, run_id)
        if not rows:
            raise RunNotFound(f"run {run_id!r} does not exist in this store", run_id=run_id)
        entries = [entry for entry, _ in decode_rows(rows, after=0, before=b"", run_id=run_id)]
        task = getattr(entries[0].body, "task", DEFAULT_TASK)
        return task, recorded(entries, run_id=run_id)
    finally:
        await store.aclose()


def _replay(order: CrashOrder) -> str:
    """The command that repeats one kill of this crash test."""
    parts = ["agentkit", "crashtest", order["reference"]]
    parts += [order["task"]] if order["task"] else []
    seconds = order["timeout_seconds"]
    given = (
        ("--model", order["script"]),
        ("--record", order["record"]),
        ("--store", order["store"]),
        ("--tenant", order["scope"].tenant),
        ("--user", order["scope"].user),
        ("--reset", order["reset"]),
        ("--answer", order["answer"] if order["answer"] != ANSWERS[0] else ""),
        *(("--varies", name) for name in order["varies"]),
        ("--timeout", f"{seconds:g}" if seconds != DEFAULT_TIMEOUT_SECONDS else ""),
    )
    for option, value in given:
        parts += [option, value] if value else []
    return f"{shlex.join(parts)} --at {{at}}"


def _progress(done: int, of: int) -> None:
    end = "\n" if done == of else ""
    sys.stderr.write(f"\rkilling: {done} of {of}{end}")
    sys.stderr.flush()


def _tell(report: CrashReport) -> None:
    print_table(
        ("tool", "policy", "kills in flight", "effects a call", "repeats", "in doubt", "verdict"),
        [
            (
                tool.name,
                tool.policy,
                str(tool.kills),
                tool.effects,
                str(tool.repeats),
                str(tool.in_doubt),
                tool.verdict,
            )
            for tool in report.tools
        ],
    )
    say("")
    for tool in report.tools:
        say(f"{tool.name}: {tool.advice}")
    for finding, more in _grouped(report.findings):
        say("")
        first, *rest = told(finding)
        say_styled(first, "bold red")
        for line in rest:
            say(line)
        if more:
            say(f"    and {len(more)} more like it: {_places(more)}")
    for note in report.notes:
        say(f"note: {one_line(note)}")
    if report.kept:
        say(f"kept: {report.kept}")
    say("")
    say_styled(report.headline(), "bold green" if report.safe else "bold red")


def _grouped(findings: tuple[Finding, ...]) -> list[tuple[Finding, list[Finding]]]:
    """The first finding of each verdict of each tool, with the others of its kind."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.tool, finding.verdict), []).append(finding)
    return [(first, rest) for first, *rest in groups.values()]


def _places(findings: list[Finding]) -> str:
    shown = [",".join(finding.kills) for finding in findings[:_PLACES]]
    return ", ".join(shown) + (" …" if len(findings) > _PLACES else "")


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
