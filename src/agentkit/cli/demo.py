"""`demo`: an agent whose workers are killed in the middle of everything, and what is left of it."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import msgspec

from agentkit.cli.demo_agent import TASK, TOOLS
from agentkit.cli.demo_model import DemoModel, demo_model
from agentkit.cli.demo_report import Account, Narrator, Stage
from agentkit.cli.demo_worker import RUN, Crew, Ended, decide, versions
from agentkit.cli.exits import FAILED, NEEDS_SOMEONE, OK
from agentkit.cli.output import emit_json
from agentkit.cli.session import leave_with, run_command
from agentkit.core.contracts.entries import Entry, ModelAnswered
from agentkit.core.contracts.errors import AgentkitError, InvalidSpec
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Usage
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.journal import load_known
from agentkit.testing.invariants import Evidence, Violation, check, read_rows

__all__ = ["DemoFailed", "FolderTaken", "run_demo"]

_MAX_WORKERS = 16
_FAKE_LIMIT_SECONDS = 60.0
_REAL_LIMIT_SECONDS = 300.0


class FolderTaken(InvalidSpec):
    """The folder for `--keep` cannot be used."""


class DemoFailed(AgentkitError):
    """A worker ended in a way that no kill explains."""


def run_demo(model_name: str | None, *, keep: str | None, as_json: bool) -> NoReturn:
    """Play it, judge it, and leave with 1 where an invariant is broken.

    Args:
        model_name: a real model; by default the fake provider.
        keep: a folder that keeps the run's files; by default they go.
        as_json: print one JSON document instead of the story.
    """
    with ExitStack() as stack:
        try:
            model = stack.enter_context(demo_model(model_name))
            folder = _folder(stack, keep)
        except AgentkitError as error:
            leave_with(error, as_json=as_json)
        narrator = Narrator(quiet=as_json)

        async def work(store: JournalPort) -> int:
            account = await _play(Crew(folder, store, model, _limit(model)), narrator)
            if as_json:
                emit_json(account.as_json())
            else:
                narrator.close(account, kept=folder if keep else None)
            return OK if account.sound else FAILED

        run_command(f"sqlite:///{folder}/runs.db", work, as_json=as_json, creates=True)


async def _play(crew: Crew, narrator: Narrator) -> Account:
    """Workers until the run has ended; then the verdict."""
    account = Account(model=crew.model.shown)
    narrator.open(account, TASK)
    reads: list[tuple[Row, ...]] = []
    answers: list[str] = []
    result: dict[str, JSON] = {}
    while not result:
        if len(account.stages) == _MAX_WORKERS:
            raise DemoFailed(f"the run did not end in {_MAX_WORKERS} workers")
        number = len(account.stages) + 1
        try:
            ended = await crew.work(answers)
        except TimeoutError as exc:
            raise DemoFailed(f"worker {number} did not end in time") from exc
        rows = await read_rows(crew.store, RUN)
        reads.append(rows)
        stage = _stage(crew, ended, rows, number=number)
        account.stages.append(stage)
        narrator.worker(stage)
        answers = []
        if ended.killed_in:
            continue
        told = _result(ended)
        if ended.code == NEEDS_SOMEONE and told.get("suspended"):
            state = await load_known(crew.store, RUN)
            for question, answer in decide(state.questions, crew.effects):
                account.questions.append((question, answer))
                narrator.question(question, answer)
                answers.append(f"{question.id}={answer}")
        elif ended.code == OK:
            result = told
        else:
            last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
            raise DemoFailed(f"worker {number} left with code {ended.code}: {' '.join(last)}")
    await _judge(crew, account, reads, result)
    return account


async def _judge(
    crew: Crew, account: Account, reads: list[tuple[Row, ...]], result: dict[str, JSON]
) -> None:
    final: dict[str, JSON] = {
        "event": "final",
        "id": None,
        "text": "",
        "stop_reason": result["stop_reason"],
        "output": result["output"],
        "usage": msgspec.to_builtins(_usage(result)),
    }
    evidence = Evidence(
        run=RUN,
        rows=reads[-1],
        effects=tuple(crew.effects.read(RUN)),
        promises=(final,),
        answers=tuple(crew.model.bought),
        tools=TOOLS,
        earlier=tuple(reads),
    )
    account.violations += check(evidence)
    account.violations += [Violation("I7", RUN, what) for what in crew.model.refused]
    account.missed += crew.left
    account.scripted = crew.model.provider is not None
    account.effects += crew.effects.read(RUN)
    account.entries += _entries(reads[-1])
    account.state = await load_known(crew.store, RUN)


def _stage(crew: Crew, ended: Ended, rows: tuple[Row, ...], *, number: int) -> Stage:
    entries = _entries(rows)
    effects = crew.effects.read(RUN)
    recorded = sum(isinstance(entry.body, ModelAnswered) for entry in entries)
    bought = len(crew.model.bought) if crew.model.provider is not None else None
    return Stage(
        number=number,
        pid=ended.pid,
        command=ended.command,
        code=ended.code,
        killed_in=ended.killed_in,
        answers_bought=bought,
        answers_recorded=recorded,
        tool_runs=sum(one.kind == "run" for one in effects),
        effects=sum(one.kind == "effect" for one in effects),
        versions=versions(entries),
    )


def _entries(rows: tuple[Row, ...]) -> list[Entry]:
    return [entry for entry, _ in decode_rows(rows, after=0, before=b"", run_id=RUN)]


def _result(ended: Ended) -> dict[str, JSON]:
    try:
        return msgspec.convert(json.loads(ended.stdout), dict[str, JSON])
    except ValueError:
        return {}


def _usage(result: dict[str, JSON]) -> Usage:
    told = msgspec.convert(result["usage"], dict[str, int])
    return Usage(**told)


def _limit(model: DemoModel) -> float:
    return _REAL_LIMIT_SECONDS if model.provider is None else _FAKE_LIMIT_SECONDS


def _folder(stack: ExitStack, keep: str | None) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentkit-demo-")))
    folder = Path(keep).absolute()
    try:
        folder.mkdir(parents=True)
    except FileExistsError as exc:
        raise FolderTaken(f"{folder} exists already; name a new folder for --keep") from exc
    except OSError as exc:
        raise FolderTaken(f"{folder} cannot be made: {exc.strerror}") from exc
    return folder
