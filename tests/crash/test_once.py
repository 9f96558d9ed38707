"""A worker is killed around an effect inside `once`: no other run doubles it within the time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.testing.crash import ForkServer
from agentkit.testing.lines import JsonLines

BORDERS = 8
"""tool, claim, effect and settle, each before and after."""


@pytest.fixture(scope="module")
def workers() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.onces:work") as server:
        yield server


async def _end_of(path: Path, run: str) -> str:
    store = SqliteCheckpointStore(path / "runs.db")
    state = await load(store, run)
    await store.aclose()
    return state.status


@pytest.mark.parametrize("border", range(1, BORDERS + 1))
def test_a_kill_around_the_effect_never_doubles_it(
    workers: ForkServer, tmp_path: Path, border: int
) -> None:
    """Another run under the same key does it where no claim was left, gets the value where there
    is one, and waits for a person in between.
    """
    killed = workers.run({"folder": str(tmp_path), "run": "r1", "at": border})
    after = len(JsonLines(tmp_path / "sent.jsonl").read())
    other = workers.run({"folder": str(tmp_path), "run": "r2"})
    sent = len(JsonLines(tmp_path / "sent.jsonl").read())

    expected = {1: "done", 2: "done", 7: "done", 8: "done"}.get(border, "suspended")
    assert "killed" == killed.how, killed.detail
    assert "completed" == other.how, other.detail
    assert (1 if border >= 5 else 0) == after
    assert (0 if border in {3, 4} else 1) == sent
    assert expected == asyncio.run(_end_of(tmp_path, "r2"))
