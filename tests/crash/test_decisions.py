"""Suspend, decide, execute, go on: processes die at every border of it, and many decide at once."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentkit.core.contracts.entries import Decided
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSONObject
from agentkit.testing.crash import ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.testing.lines import JsonLines
from tests.agents.kit import entries_of
from tests.crash.waiters import EXPECTED, RUN, TOOLS

LANES = 4
DECIDERS = 20


@pytest.fixture(scope="module")
def workers() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.waiters:work") as server:
        yield server


def _evidence(folder: Folder) -> Evidence:
    async def read(store: JournalPort) -> Evidence:
        evidence = Evidence(
            run=RUN,
            rows=await read_rows(store, RUN),
            head=await store.head(RUN),
            effects=tuple(folder.effects.read()),
            answers=tuple(folder.answers.read()),
            tools=TOOLS,
            output=EXPECTED,
        )
        await store.aclose()
        return evidence

    return asyncio.run(read(folder.store()))


@pytest.mark.slow
def test_f027_f038_a_worker_is_killed_at_every_border_of_waiting(
    workers: ForkServer, tmp_path: Path
) -> None:
    """Approval, answer and event are each applied once, whoever died where: one payment with the
    edited amount, one order, and the answer of an undisturbed run.
    """
    killed: Counter[str] = Counter()
    for border in range(1, 200):
        path = tmp_path / str(border)
        path.mkdir()
        first = workers.run({"folder": str(path), "at": border})
        last = workers.run({"folder": str(path)})
        folder = Folder(path)
        found = check(_evidence(folder))

        assert "completed" == last.how, last.detail
        assert not found, f"border {border} ({folder.borders.kills()}): {report(found)}"
        assert Counter(pay=1, order=1) == Counter(one.tool for one in folder.effects.effects())
        killed.update(folder.borders.kills())
        if first.how == "completed":
            break

    assert killed.total() > 40
    assert {"note:before", "note:after", "release:after", "effect:after"} <= set(killed)


def test_f042_of_twenty_processes_that_decide_at_once_one_wins(
    workers: ForkServer, tmp_path: Path
) -> None:
    """On one file, half for and half against: one decision is recorded, those who said the same
    are told that it was, the others that they were too late.
    """
    folder = Folder(tmp_path)
    border = _suspended_at(workers, tmp_path / "try")
    assert "killed" == workers.run({"folder": str(tmp_path), "at": border}).how
    orders: list[JSONObject] = [
        {"folder": str(tmp_path), "action": "decide", "answer": answer} for answer in _answers()
    ]

    def decide(some: list[JSONObject]) -> None:
        with ForkServer("tests.crash.waiters:work") as server:
            for order in some:
                ended = server.run(order)
                assert "completed" == ended.how, ended.detail

    with ThreadPoolExecutor(LANES) as pool:
        list(pool.map(decide, [orders[lane::LANES] for lane in range(LANES)]))

    store = folder.store()
    entries = asyncio.run(entries_of(store, RUN))
    asyncio.run(store.aclose())
    [decided] = [one.body for one in entries if isinstance(one.body, Decided)]
    told = Counter(
        (line["answer"] == decided.answer, line["told"])
        for line in JsonLines(tmp_path / "told.jsonl").read()
    )
    assert 1 == told[True, "recorded"]
    assert DECIDERS == told.total()
    assert {(True, "recorded"), (True, "repeated"), (False, "too late")} == set(told)


def _answers() -> list[str]:
    return ["approve", "reject"] * (DECIDERS // 2)


def _suspended_at(workers: ForkServer, path: Path) -> int:
    """The border at which a worker has just suspended the run."""
    path.mkdir()
    workers.run({"folder": str(path)})
    return Folder(path).borders.hits().index("release:after") + 1
