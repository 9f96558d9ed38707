"""Several runs of one store, driven by workers that are processes of their own, and their verdict.

The model answers from the transcript, and a kill is SIGKILL of the worker's process, with all runs
that it has in flight.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Literal, Self

import msgspec

from agentkit.agents import Agent, record_decisions, submit
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import Decision, JSONObject, ToolCall
from agentkit.core.runtime import Invoker, Services, SystemClock
from agentkit.core.testing import FakeLLM, Turn
from agentkit.dispatch import Worker, WorkerEvent
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan, ForkServer
from agentkit.testing.crash.processes import Ended
from agentkit.testing.crash.scenario import STEPS, Folder, answer, make_tools
from agentkit.testing.crash.scenario import warm_up as _warm_up
from agentkit.testing.invariants import Evidence, Kill, ToolKind, check, read_rows, report
from agentkit.testing.lines import JsonLines
from agentkit.tools import tool

HERE = "tests.dispatch.fleet:work"
POISON = "poison"
SLOW = "slow"
"""Runs whose ids begin so kill their worker, or need longer for an answer than that takes."""
_TOOLS: dict[str, ToolKind] = {"lookup": "read", "upsert": "idempotent", "notify": "plain"}
_WORDS = {"lookup": "value of", "upsert": "stored", "notify": "sent"}
_MOST_WORKERS = 12
_SECONDS = 30.0


class Job(msgspec.Struct, frozen=True):
    """What one worker process does.

    Args:
        folder: where the runs' facts are.
        store: URL of the store; a SQLite file in the folder if empty.
        at: the border at which to die.
        steps: how many turns of tools a run has.
        concurrency: of the worker.
        until: when it leaves: `idle`, or with SIGTERM (`signal`).
    """

    folder: str
    store: str = ""
    at: int | str | None = None
    steps: int = 1
    concurrency: int = 4
    until: Literal["idle", "signal"] = "idle"


def warm_up(setup: JSONObject | None = None) -> None:
    """Load what workers need before any is forked."""
    _warm_up(setup)


def work(argument: JSONObject) -> None:
    """A worker's life."""
    asyncio.run(_work(msgspec.convert(argument, Job)))


async def _work(job: Job) -> None:
    folder = Folder(Path(job.folder), job.store)
    plan = CrashPlan(job.at, log=folder.borders)
    store = CrashingStore(folder.store(), plan)
    events = JsonLines(folder.path / "events.jsonl")

    def tell(event: WorkerEvent) -> None:
        events.write({"kind": event.kind, "run": event.run_id, "text": event.text})

    worker = Worker(
        [_agent(plan, folder), _poisoned()],
        store=store,
        concurrency=job.concurrency,
        poll_seconds=0.02,
        services=Services(invoker=Invoker(_PerRun(plan, folder, job.steps))),
        on_event=tell,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run(until_idle=job.until == "idle")
    await store.aclose()


def _agent(plan: CrashPlan, folder: Folder) -> Agent:
    cognition = ReActCognition(make_tools(plan, folder.effects))
    return Agent("worker", prompt="Work.", cognition=cognition)


def _poisoned() -> Agent:
    @tool(side_effecting=False)
    def die() -> str:
        """End the process, as running out of memory does."""
        signal.raise_signal(signal.SIGKILL)
        return "still here"

    return Agent(POISON, cognition=ReActCognition([die]))


class _PerRun:
    """The model of all runs; each run's requests are logged as its own."""

    origin = "fake"

    def __init__(self, plan: CrashPlan, folder: Folder, steps: int) -> None:
        self._plan = plan
        self._folder = folder
        self._steps = steps

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        run = request.messages[0].content.split()[-1]
        if run.startswith(SLOW):
            await SystemClock().sleep(0.2)
        llm = FakeLLM(lambda messages: answer(messages, self._steps))
        if run.startswith(POISON):
            llm = FakeLLM(lambda _: Turn("", tool_calls=(ToolCall("c", "die", {}),)))
        logged = CrashingLLM(llm, self._plan, self._folder.answers, run=run)
        async for item in logged.attempt(request):
            yield item


class Fleet:
    """Runs that were submitted, and the workers that are set on them; for a `with` statement.

    Args:
        path: an empty folder.
        server: of `HERE`.
        url: of a store; a SQLite file in the folder if empty.
        runs: their ids.
        steps: how many turns of tools each has.

    Attributes:
        kills: when each killed worker was known to be gone.
    """

    def __init__(
        self,
        path: Path,
        server: ForkServer,
        *,
        url: str = "",
        runs: Sequence[str] = ("a", "b", "c"),
        steps: int = 1,
    ) -> None:
        path.mkdir(exist_ok=True)
        self.folder = Folder(path, url)
        self.runs = list(runs)
        self.kills: dict[str, list[Kill]] = {run: [] for run in runs}
        self._server = server
        self._steps = steps
        self._reads: dict[str, list[tuple[Row, ...]]] = {run: [] for run in runs}
        self._store = self.folder.store()
        self._loop = asyncio.Runner()
        for run in runs:
            agent = POISON if run.startswith(POISON) else "worker"
            self._loop.run(submit(self._store, run, f"Do what is said in {run}", agent=agent))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._store.aclose())
        self._loop.close()

    def job(self, at: int | str | None = None, **wanted: object) -> JSONObject:
        """What a worker is told."""
        job = Job(str(self.folder.path), self.folder.url, at, self._steps)
        told: JSONObject = msgspec.to_builtins(msgspec.structs.replace(job, **wanted))
        return told

    def worker(self, at: int | str | None = None, **wanted: object) -> Ended:
        """Run a worker to its end, by SIGKILL where `at` says so."""
        ended = self._server.run(self.job(at, **wanted))
        self.note(ended)
        return ended

    def note(self, ended: Ended) -> None:
        """Remember what the runs were when this worker was gone."""
        assert "failed" != ended.how, ended.detail
        gone_at = SystemClock().now()
        for run in self.runs:
            rows = self._loop.run(read_rows(self._store, run))
            self._reads[run].append(rows)
            if ended.how == "killed":
                self.kills[run].append(Kill(len(rows), gone_at))

    def state(self, run: str) -> RunState:
        """The run as it is in the store now."""
        return self._loop.run(load(self._store, run))

    def head(self, run: str) -> Head:
        """The run's head row."""
        head = self._loop.run(self._store.head(run))
        assert head is not None
        return head

    def statuses(self) -> dict[str, str]:
        """The runs' statuses."""
        return {run: self.state(run).status for run in self.runs}

    def decide(self) -> None:
        """Answer every open question as one who looked outside, without driving any run."""
        done = {(one.run, one.digest): one.result for one in self.folder.effects.effects()}
        for run in self.runs:
            decisions = {
                question.id: Decision("run_again")
                if (run, question.digest) not in done
                else Decision("done", done[run, question.digest])
                for question in self.state(run).questions
            }
            if decisions:
                self._loop.run(record_decisions(self._store, run, decisions))

    def finish(self) -> None:
        """Workers that nobody kills, until no run of the scenario is left."""
        for _ in range(_MOST_WORKERS):
            if all(self.state(run).end is not None for run in self.runs):
                return
            self.decide()
            self.worker()
        raise AssertionError(f"{self.folder.path}: {self.statuses()}")

    def judge(self) -> None:
        """Every run ended as an undisturbed one, and no invariant is broken."""
        calls = [call for step in STEPS[: self._steps] for call in step]
        output = "all done: " + ", ".join(f"{_WORDS[name]} {item}" for name, item in calls)
        for run in self.runs:
            evidence = Evidence(
                run=run,
                rows=self._loop.run(read_rows(self._store, run)),
                head=self._loop.run(self._store.head(run)),
                effects=tuple(self.folder.effects.read(run)),
                answers=tuple(one for one in self.folder.answers.read() if one["run"] == run),
                tools=_TOOLS,
                earlier=tuple(self._reads[run]),
                kills=tuple(self.kills[run]),
                output=output,
                scope="",
            )
            found = check(evidence)
            assert not found, report(found)
            effects = [effect.tool for effect in self.folder.effects.effects(run)]
            plain = [name for name, _ in calls if name in {"upsert", "notify"}]
            assert sorted(plain) == sorted(effects)

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        """Kind and run of what all workers told."""
        lines = JsonLines(self.folder.path / "events.jsonl").read()
        return [(str(one["kind"]), str(one["run"])) for one in lines if one["kind"] in kinds]

    def until_told(self, kind: str) -> None:
        """Wait until a worker has told of this."""
        _until(lambda: bool(self.events(kind)), what=kind)

    def until_ended(self) -> None:
        """Wait until all runs have ended, and answer what they ask meanwhile."""

        def ended() -> bool:
            self.decide()
            return all(self.state(run).end is not None for run in self.runs)

        _until(ended, what="the end of all runs")


def _until(reached: Callable[[], bool], *, what: str) -> None:
    pause, clock = threading.Event(), SystemClock()
    until = clock.elapsed() + _SECONDS
    while not reached():
        assert clock.elapsed() < until, what
        pause.wait(0.01)
