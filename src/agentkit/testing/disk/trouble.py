"""Single operations that fail, once or for ever, below a run of a real agent."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a trial can be repeated
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import apsw

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision
from agentkit.core.runtime import Invoker, RunContext, Services, SystemClock
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.testing.crash import CrashingLLM, CrashPlan
from agentkit.testing.crash.scenario import STEPS, TASK, Folder, answer, make_tools, promise
from agentkit.testing.disk.power import memory
from agentkit.testing.disk.recorder import Operation, Recorder
from agentkit.testing.disk.tape import TellingStore
from agentkit.testing.disk.traffic import Still
from agentkit.testing.invariants import Evidence, ToolKind, check, read_rows

__all__ = [
    "CHANGES",
    "EXPECTED",
    "READS",
    "Kind",
    "Run",
    "Trial",
    "Trouble",
    "carried_on",
    "surfaced",
    "trials",
    "tried",
]

CHANGES: tuple[Operation, ...] = ("write", "sync", "truncate", "open", "delete")
"""Operations that change a disk, or open what will."""

READS: tuple[Operation, ...] = ("read", "size")
"""Operations that only look."""

Kind: TypeAlias = Literal["error", "full"]
"""`error`: the device fails. `full`: there is no space."""

_RUN = "run-0"
_STEPS = 2
_TOOLS: dict[str, ToolKind] = {"lookup": "read", "upsert": "idempotent", "notify": "plain"}
_WORDS = {"lookup": "value of", "upsert": "stored", "notify": "sent"}
_CALLS = [call for step in STEPS[:_STEPS] for call in step]
EXPECTED = "all done: " + ", ".join(f"{_WORDS[name]} {item}" for name, item in _CALLS)
"""What an undisturbed run answers."""

_SECONDS = 60.0
_POWER_LOSSES = 4
_WORKERS = 4


class Trial(NamedTuple):
    """One run with one trouble.

    Args:
        number: of the operation that failed first, from 1 on.
        operation: what it was, or empty where the run had ended before it.
        surfaced: the error that came out of the run; empty where it went on.
        wrong: what must not be.
    """

    number: int
    operation: str
    surfaced: str
    wrong: tuple[str, ...]


class Trouble:
    """A `Fault`: from operation `number` of these kinds on.

    Args:
        number: counted from 1 on.
        operations: which are counted and fail.
        kind: of error.
        lasting: whether all later ones fail too, until `over`.

    Attributes:
        hit: what failed first; empty where nothing has.
        over: whether the disk is well again.
        number: as given.
    """

    def __init__(
        self, number: int, operations: Sequence[Operation], *, kind: Kind, lasting: bool
    ) -> None:
        self.hit = ""
        self.over = False
        self.number = number
        self._left = number
        self._operations = operations
        self._kind = kind
        self._lasting = lasting

    def __call__(self, operation: Operation, name: str) -> Exception | None:
        """The error for this operation, or none."""
        if self.over or operation not in self._operations:
            return None
        self._left -= 1
        if self._left > 0 or (self._left < 0 and not self._lasting):
            return None
        self.hit = self.hit or f"{operation} {name}"
        if operation == "open":
            return apsw.CantOpenError("injected")
        if self._kind == "full" and operation == "write":
            return apsw.FullError("injected")
        return apsw.IOError("injected")


class Run:
    """A run of the crash harness's agent on a SQLite store, and all that is known of it.

    Args:
        path: an empty folder, for what is known.
        database: where the store is.
        recorder: told what the run's caller is told, where there is one.
    """

    def __init__(self, path: Path, database: Path, recorder: Recorder | None = None) -> None:
        self.folder = Folder(path)
        self._database = database
        self._recorder = recorder

    def store(self) -> JournalPort:
        """The store, opened anew."""
        store = SqliteCheckpointStore(self._database, busy_seconds=1.0)
        return TellingStore(store, self._recorder) if self._recorder else store

    async def work(self, store: JournalPort) -> None:
        """A worker on `store`, from wherever the last one stopped."""
        state = await load(store, _RUN)
        agent, context = self._worker(store)
        if state.status != "suspended":
            async for event in agent.stream(TASK, context):
                self.folder.promises.write(promise(_RUN, event))
            return
        done = {effect.digest: effect.result for effect in self.folder.effects.effects()}
        decisions = {
            question.id: Decision("done", done[question.digest])
            if question.digest in done
            else Decision("run_again")
            for question in state.questions
        }
        await agent.resume(_RUN, decisions, context)

    async def judged(self, store: JournalPort) -> list[str]:
        """What is wrong with a run that should have ended."""
        rows = await read_rows(store, _RUN)
        evidence = Evidence(
            run=_RUN,
            rows=rows,
            effects=tuple(self.folder.effects.read()),
            promises=tuple(self.folder.promises.read()),
            answers=tuple(self.folder.answers.read()),
            tools=_TOOLS,
            output=EXPECTED,
        )
        return [f"{found.invariant}: {found.what}" for found in check(evidence)]

    def _worker(self, store: JournalPort) -> tuple[Agent, RunContext]:
        plan = CrashPlan()
        model = FakeLLM(lambda messages: answer(messages, _STEPS))
        services = Services(
            invoker=Invoker(CrashingLLM(model, plan, self.folder.answers, run=_RUN)),
            checkpointer=Checkpointer(port=store),
            clock=_Impatient(),
            heartbeat=Still(_Impatient()),
        )
        cognition = ReActCognition(make_tools(plan, self.folder.effects))
        agent = Agent("worker", prompt="Work.", cognition=cognition)
        return agent, RunContext(correlation_id=_RUN, services=services)


def trials(
    *,
    operations: Sequence[Operation] = CHANGES,
    kind: Kind = "error",
    lasting: bool = False,
    stride: int = 1,
    first: int = 1,
) -> Iterator[Trial]:
    """Let operation 1, 2, 3 … fail, until a run ends before it."""
    number = first
    while True:
        trial = tried(number, operations=operations, kind=kind, lasting=lasting)
        yield trial
        if not trial.operation:
            return
        number += stride


def tried(
    number: int, *, operations: Sequence[Operation] = CHANGES, kind: Kind, lasting: bool
) -> Trial:
    """One run whose operation `number` fails; then the disk is well again, and the run goes on."""
    trouble = Trouble(number, operations, kind=kind, lasting=lasting)
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        path = Path(name)
        with Recorder(path, fault=trouble) as recorder:
            surfaced, wrong = asyncio.run(
                _troubled(Run(path, path / "runs.db", recorder), trouble, recorder)
            )
    return Trial(number, trouble.hit, surfaced, tuple(wrong))


async def surfaced(run: Run, store: JournalPort, wrong: list[str]) -> str:
    """Work; the error that came out of it, which can only be one."""
    try:
        await run.work(store)
    except StoreUnreachable as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is the finding
        wrong.append(f"{type(error).__name__} instead of StoreUnreachable: {error}")
        return str(error)
    return ""


async def carried_on(run: Run, store: JournalPort) -> list[str]:
    """The next workers, on a disk that is well; what is wrong with what they come to."""
    try:
        for _ in range(_WORKERS):
            if (await load(store, _RUN)).end is None:
                await run.work(store)
        return await run.judged(store)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return [f"the run does not go on: {type(error).__name__}: {error}"]


async def _troubled(run: Run, trouble: Trouble, recorder: Recorder) -> tuple[str, list[str]]:
    wrong: list[str] = []
    async with asyncio.timeout(_SECONDS):
        store = run.store()
        error = await surfaced(run, store, wrong)
        wrong += await _undurable(recorder)
        if trouble.number % 2:  # every second trial goes on with the store that had the trouble
            await store.aclose()
            store = run.store()
        trouble.over = True
        wrong += await carried_on(run, store)
        wrong += await _undurable(recorder)
        await store.aclose()
    return error, wrong


async def _undurable(recorder: Recorder) -> list[str]:
    """What was told so far and would be gone if the power failed now."""
    wrong = []
    for seed in range(_POWER_LOSSES):
        files = recorder.disk.after_power_loss(random.Random(seed))  # noqa: S311 - no secret
        with tempfile.TemporaryDirectory(dir=memory()) as name:
            for file, content in files.items():
                (Path(name) / file).write_bytes(content)
            store = SqliteCheckpointStore(Path(name) / "runs.db")
            for told in recorder.disk.told.values():
                rows = await store.read(told.run)
                if len(rows) < told.seq or rows[told.seq - 1].check != told.check:
                    wrong.append(f"entry {told.seq} was acknowledged and is not durable")
            await store.aclose()
    return wrong


class _Impatient(SystemClock):
    """Waits between attempts take no time."""

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 (the port's signature)
        """Give way once."""
        await super().sleep(0)
