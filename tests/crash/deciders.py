"""Processes that decide one question at once: `python -m tests.crash.deciders URL QUESTION WORDS`.

Each has read the run and decided what to append before any of them appends. They print what they
were told, a JSON line each. With a file for payments as a fourth argument they resume the run, too.
"""

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

from agentkit.agents import Agent
from agentkit.agents.deciding import record_decisions
from agentkit.core.contracts.errors import AlreadyDecided
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Decision
from agentkit.state.checkpoints.adapters import StoreWrapper, open_store
from agentkit.testing.lines import JsonLines
from agentkit.tools import tool
from tests.agents.kit import agent_of, call, calls, context, then

RUN = "r1"
SECONDS = 60.0


class Together(StoreWrapper):
    """The first append waits until all others are about to send theirs."""

    def __init__(self, inner: JournalPort, barrier: Barrier) -> None:
        super().__init__(inner)
        self._barrier: Barrier | None = barrier

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """Wait, once, and forward."""
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            barrier.wait(SECONDS)
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


def payer(pay: Callable[[int], object]) -> Agent:
    """An agent whose payments need approval."""

    @tool(name="pay", side_effecting=True, requires_approval=True)
    async def made(cents: int) -> str:
        pay(cents)
        return "paid"

    return agent_of(made)


def main(url: str, question: str, words: Sequence[str], payments: str = "") -> None:
    """One process for each word; its number is its name."""
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(len(words))
    lock = forking.Lock()

    def decide(number: int) -> None:
        store, word = Together(open_store(url), barrier), words[number]
        told = asyncio.run(
            _resumed(store, question, word, Path(payments))
            if payments
            else _told(store, question, word, number)
        )
        with lock:
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()

    children = [forking.Process(target=decide, args=(at,)) for at in range(len(words))]
    for child in children:
        child.start()
    for child in children:
        child.join(SECONDS)


async def _told(store: JournalPort, question: str, word: str, number: int) -> dict[str, JSON]:
    value: JSON = {"cents": number} if word == "edit" else None
    try:
        done = await record_decisions(
            store, RUN, {question: Decision(word, value, actor=f"person {number}")}
        )
        told, text = "repeated" if done.repeated else "recorded", ""
    except AlreadyDecided as error:
        told, text = "too late", str(error)
    await store.aclose()
    return {"actor": f"person {number}", "word": word, "told": told, "text": text}


async def _resumed(store: JournalPort, question: str, word: str, payments: Path) -> dict[str, JSON]:
    lines = JsonLines(payments)
    agent = payer(lambda cents: lines.write({"cents": cents}))
    ctx = context(then(calls(call("pay", cents=900))), store, run_id=RUN)
    result = await agent.resume(RUN, {question: word}, ctx, wait_seconds=SECONDS)
    await store.aclose()
    return {"word": word, "told": result.stop_reason, "text": result.output}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(), *sys.argv[4:])
