"""Suspend, decide, execute, go on: processes die at every border of it, and many decide at once."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentkit.core.contracts.entries import Decided
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import open_store
from agentkit.testing.crash import ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.testing.lines import JsonLines
from tests.agents.kit import TASK, bodies_of, call, calls, context, then
from tests.crash.deciders import payer
from tests.crash.waiters import EXPECTED, RUN, TOOLS


@pytest.fixture(scope="module")
def workers() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.waiters:work") as server:
        yield server


def _evidence(folder: Folder, *, output: str | None) -> Evidence:
    async def read(store: JournalPort) -> Evidence:
        evidence = Evidence(
            run=RUN,
            rows=await read_rows(store, RUN),
            head=await store.head(RUN),
            effects=tuple(folder.effects.read()),
            answers=tuple(folder.answers.read()),
            tools=TOOLS,
            output=output,
        )
        await store.aclose()
        return evidence

    return asyncio.run(read(folder.store()))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cancels", [False, True])
def test_f027_f038_f069_a_worker_is_killed_at_every_border_of_waiting(
    workers: ForkServer, tmp_path: Path, cancels: bool
) -> None:
    """Pause, approval, answer, event, time and what the model asks a person count once each,
    whoever died where: one payment with the edited amount, one order, and the answer of an
    undisturbed run. Where somebody cancels it while it waits, it ends so, and nothing is ordered.
    """
    killed: Counter[str] = Counter()
    for border in range(1, 300):
        path = tmp_path / str(border)
        path.mkdir()
        first = workers.run({"folder": str(path), "at": border, "cancel": cancels})
        last = workers.run({"folder": str(path), "cancel": cancels})
        folder = Folder(path)
        evidence = _evidence(folder, output=None if cancels else EXPECTED)
        found = check(evidence)
        kinds = Counter(msgspec.json.decode(row.body)[5]["type"] for row in evidence.rows)

        assert "completed" == last.how, last.detail
        assert not found, f"border {border} ({folder.borders.kills()}): {report(found)}"
        effects = Counter(one.tool for one in folder.effects.effects())
        assert Counter(pay=1) + Counter(order=0 if cancels else 1) == effects
        assert (1, int(cancels)) == (kinds["pause_asked"], kinds["cancelled"])
        assert (1 - int(cancels),) * 3 == (
            kinds["event_received"],
            kinds["wait_ended"],
            kinds["finished"],
        )
        killed.update(folder.borders.kills())
        if first.how == "completed":
            break

    assert killed.total() > (40 if cancels else 70)
    assert {"note:before", "note:after", "release:after", "effect:after"} <= set(killed)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["approve", "reject"] * 10, id="two words"),
        pytest.param(["edit"] * 20, id="each another", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.slow, pytest.mark.postgres]),
        pytest.param("redis", marks=[pytest.mark.slow, pytest.mark.redis]),
    ],
)
@pytest.mark.timeout(180)
def test_f042_of_twenty_processes_that_decide_at_once_one_wins(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, words: list[str]
) -> None:
    """All have read the run before any of them appends. One decision is recorded; those who said
    the same are told that it was, the others who was faster; the call is made as the winner said.
    """
    url = _url(request, tmp_path, place)
    question = asyncio.run(_suspended(url))

    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.deciders", url, question, " ".join(words)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]

    winners = [one for one in told if one["told"] == "recorded"]
    assert (len(words), 1) == (len(told), len(winners)), done.stderr
    [winner] = winners
    decided, paid = asyncio.run(_resumed(url))
    assert (decided.actor, decided.answer) == (winner["actor"], winner["word"])
    for one in told:
        if one["told"] == "too late":
            assert f"by {winner['actor']})" in one["text"]
        else:
            assert winner["word"] == one["word"]
    expected = {"approve": [900], "reject": [], "edit": [int(winner["actor"].split()[1])]}
    assert expected[winner["word"]] == paid


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_f042_of_twenty_processes_that_resume_at_once_one_makes_the_call(tmp_path: Path) -> None:
    """They bring the same decision and are let go together: all are given the result, and the call
    was made once, by whoever had the lease.
    """
    url, payments = f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "payments.jsonl"
    question = asyncio.run(_suspended(url))

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.crash.deciders", url, question),
            *(" ".join(["approve"] * 20), str(payments)),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]

    assert [("completed", "done")] * 20 == [(one["told"], one["text"]) for one in told], done.stderr
    assert [{"cents": 900}] == JsonLines(payments).read()


def _url(request: pytest.FixtureRequest, folder: Path, place: str) -> str:
    if place == "sqlite":
        return f"sqlite:///{folder / 'runs.db'}"
    return str(request.getfixturevalue("postgres_dsn" if place == "postgres" else "redis_url"))


async def _suspended(url: str) -> str:
    store = open_store(url)
    ctx = context(then(calls(call("pay", cents=900))), store, run_id=RUN)
    result = await payer(list[int]().append).run(TASK, ctx)
    await store.aclose()
    assert result.suspended is not None
    return result.suspended.questions[0].id


async def _resumed(url: str) -> tuple[Decided, list[int]]:
    store, paid = open_store(url), list[int]()
    ctx = context(then(calls(call("pay", cents=900))), store, run_id=RUN)
    assert "done" == (await payer(paid.append).resume(RUN, {}, ctx)).output
    [decided] = await bodies_of(store, Decided, RUN)
    await store.aclose()
    return decided, paid
