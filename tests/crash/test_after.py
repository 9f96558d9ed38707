"""A finished conversation is carried on by workers that are killed with SIGKILL at every border."""

import asyncio
import fcntl
import os
import select
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from agentkit.core.contracts.heads import Head, Row
from agentkit.testing.crash import ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.testing.lines import JsonLines
from tests.agents.kit import kinds_of
from tests.crash.carriers import EXPECTED, FIRST, GATE, READY, SECOND, TOOLS, first_conversation

STARTERS = 4


@pytest.fixture(scope="module")
def workers() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.carriers:work") as server:
        yield server


class _Seen(NamedTuple):
    """What is in the store."""

    first: list[Row]
    second: list[Row]
    kinds: list[str]
    head: Head | None


def _look(folder: Folder) -> _Seen:
    async def read() -> _Seen:
        store = folder.store()
        seen = _Seen(
            list(await read_rows(store, FIRST)),
            list(await read_rows(store, SECOND)),
            await kinds_of(store, SECOND),
            await store.head(SECOND),
        )
        await store.aclose()
        return seen

    return asyncio.run(read())


@pytest.mark.slow
def test_of_four_processes_that_begin_the_same_run_at_once_one_does(
    tmp_path: Path,
) -> None:
    """They start from one barrier and wait for one another's lease: the past is copied once, the
    order is made once, and each of them gets the result.
    """
    folder = Folder(tmp_path)
    asyncio.run(first_conversation(folder))

    def begin(_: int) -> str:
        with ForkServer("tests.crash.carriers:work") as server:
            ended = server.run({"folder": str(tmp_path), "gated": True})
            return ended.how if not ended.detail else ended.detail

    os.mkfifo(tmp_path / READY)
    ready = os.open(tmp_path / READY, os.O_RDWR)
    with (tmp_path / GATE).open("wb") as gate, ThreadPoolExecutor(STARTERS) as pool:
        fcntl.flock(gate, fcntl.LOCK_EX)
        ending = [pool.submit(begin, number) for number in range(STARTERS)]
        there = 0
        while there < STARTERS and select.select([ready], [], [], 30.0)[0]:
            there += len(os.read(ready, STARTERS))
        fcntl.flock(gate, fcntl.LOCK_UN)
        ends = [one.result() for one in ending]
    os.close(ready)

    seen = _look(folder)
    assert STARTERS == there
    assert ["completed"] * STARTERS == ends
    told = [line["output"] for line in JsonLines(tmp_path / "told.jsonl").read()]
    assert [EXPECTED] * STARTERS == told
    assert 1 == len(folder.effects.effects())
    assert 1 == seen.kinds.count("Forked")
    assert seen.first[:-1] == seen.second[: len(seen.first) - 1]


@pytest.mark.slow
def test_whoever_dies_the_new_run_is_there_whole_or_not_at_all(
    workers: ForkServer, tmp_path: Path
) -> None:
    """Behind every border either no entry of it is there, or the old conversation and the new task.
    Then the same start goes on: one order of its own, no answer of the old run bought again, and
    none lost.
    """
    killed: Counter[str] = Counter()
    absent = 0
    for border in range(1, 100):
        path = tmp_path / str(border)
        path.mkdir()
        folder = Folder(path)
        asyncio.run(first_conversation(folder))
        first = workers.run({"folder": str(path), "at": border})
        left = _look(folder)
        last = workers.run({"folder": str(path)})
        seen = _look(folder)
        found = check(
            Evidence(
                run=SECOND,
                rows=tuple(seen.second),
                head=seen.head,
                effects=tuple(folder.effects.read()),
                answers=tuple(folder.answers.read()),
                tools=TOOLS,
                output=EXPECTED,
            )
        )

        where = f"border {border} ({folder.borders.kills()})"
        past = left.first[:-1]
        absent += not left.second
        assert not left.second or past == left.second[: len(past)], where
        assert not left.second or ["Forked", "LeaseTaken"] == left.kinds[len(past) :][:2], where
        assert "completed" == last.how, last.detail
        assert not found, f"{where}: {report(found)}"
        assert 1 == len(folder.effects.effects()), where
        assert left.first == seen.first, where
        killed.update(folder.borders.kills())
        if first.how == "completed":
            break

    assert killed.total() > 8
    assert {"acquire:after", "append:before", "append:after", "effect:after"} <= set(killed)
    assert 0 < absent < killed.total()
