"""Processes that cancel a run die at every border of it; the run ends cancelled, and once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSONObject
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.journal import load
from agentkit.testing.crash import ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import Evidence, check, read_rows, report
from tests.crash import workers
from tests.crash.workers import RUN, TOOLS

TURNS = ((("read", "a"), ("plain", "b"), ("keyed", "c")),)
CALLS = len(TURNS[0])


@pytest.fixture(scope="module")
def jobs() -> Iterator[ForkServer]:
    """Forks workers that do a `workers.Job`."""
    with ForkServer("tests.crash.workers:work") as server:
        yield server


@pytest.fixture(scope="module")
def cancels() -> Iterator[ForkServer]:
    """Forks processes that cancel the run."""
    with ForkServer("tests.crash.cancels:work") as server:
        yield server


@pytest.mark.parametrize("ender", ["another cancel", "a worker"])
def test_f069_a_kill_at_every_border_of_a_cancel_leaves_a_run_that_ends_cancelled_or_goes_on(
    jobs: ForkServer, cancels: ForkServer, tmp_path: Path, ender: str
) -> None:
    """F069: a worker was killed in the middle of three calls, and so is who cancels. Once the note
    is durable nothing but the end follows, whoever records it; before that nothing has changed.
    """
    border, ends = 1, []
    while True:
        path = tmp_path / f"{border}"
        path.mkdir()
        folder = Folder(path)
        job = workers.Job(str(path), TURNS, hang=frozenset("abc"), at="effect:after#1")
        assert "killed" == jobs.run(_plain(job)).how
        killed = cancels.run({"folder": str(path), "at": border})
        asked = e.CancelAsked in asyncio.run(_kinds(folder))
        effects = len(folder.effects.read())
        if ender == "another cancel":
            assert "completed" == cancels.run({"folder": str(path)}).how
        elif asked:
            assert "completed" == jobs.run(_plain(workers.Job(str(path), TURNS))).how
        ends.append(asked)
        if ender == "another cancel" or asked:
            asyncio.run(_assert_cancelled(folder))
            assert effects == len(folder.effects.read())
        if killed.how != "killed":
            break
        border += 1

    assert "completed" == killed.how, killed.detail
    assert border > 6
    assert [False, True] == sorted(set(ends))


def _plain(job: workers.Job) -> JSONObject:
    plain: JSONObject = msgspec.to_builtins(job)
    return plain


async def _kinds(folder: Folder) -> list[type]:
    store = folder.store()
    rows = await read_rows(store, RUN)
    await store.aclose()
    decoded = decode_rows(rows, after=0, before=b"", run_id=RUN)
    return [type(entry.body) for entry, _ in decoded]


async def _assert_cancelled(folder: Folder) -> None:
    store: JournalPort = folder.store()
    state, head = await load(store, RUN), await store.head(RUN)
    rows = await read_rows(store, RUN)
    await store.aclose()
    outcomes = [call.outcome.outcome for call in state.main.turn.calls if call.outcome]  # type: ignore[union-attr]

    assert e.Cancelled("ann", "no more") == state.end
    assert head is not None
    assert "" == head.owner
    assert CALLS == len(outcomes)
    assert {"cancelled", "in_doubt"} >= set(outcomes)
    effects = tuple(folder.effects.read())
    found = check(Evidence(run=RUN, rows=rows, head=head, effects=effects, tools=TOOLS, scope=""))
    assert not found, report(found)
