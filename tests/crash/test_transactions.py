"""A transactional tool's worker is killed at any instant: effect and outcome are both there, or
neither is.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import JSONObject
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.crash import Ended, ForkServer
from tests.crash.transactions import ITEMS, RUN


@pytest.fixture(scope="module")
def workers() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.transactions:work") as server:
        yield server


class Case:
    """One run and its workers; looked at whenever one has ended."""

    def __init__(self, workers: ForkServer, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.workers = workers
        self.path = path

    def run(self, at: int | str | None = None, *, kill_after_seconds: float | None = None) -> Ended:
        """A worker to its end; then what it left is compared."""
        order: JSONObject = {"folder": str(self.path), "at": at}
        ended = self.workers.run(order, kill_after_seconds=kill_after_seconds)
        assert "failed" != ended.how, ended.detail
        booked = self.booked()
        assert booked == self.recorded()
        return ended

    def booked(self) -> list[str]:
        """What the tools wrote, both halves of each."""
        if not (self.path / "runs.db").exists():
            return []
        db = apsw.Connection(str(self.path / "runs.db"))
        try:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'booking'").fetchall():
                return []
            found = db.execute("SELECT item, half FROM booking ORDER BY rowid").fetchall()
        finally:
            db.close()
        whole = [str(item) for item, half in found if half == 1]
        assert whole == [str(item) for item, half in found if half == 2]
        return whole

    def recorded(self) -> list[str]:
        """The outcomes in the journal, in order."""
        finished = [body for body in self.bodies() if isinstance(body, e.ToolFinished)]
        return [one.content.removeprefix("booked ") for one in finished if one.outcome == "ok"]

    def bodies(self) -> list[e.Body]:
        """The run's journal."""
        return asyncio.run(self._bodies())

    async def _bodies(self) -> list[e.Body]:
        if not (self.path / "runs.db").exists():
            return []
        store = SqliteCheckpointStore(self.path / "runs.db")
        rows = await store.read(RUN)
        await store.aclose()
        decoded = decode_rows(rows, after=0, before=b"", run_id=RUN)
        return [entry.body for entry, _ in decoded]

    def is_whole(self) -> bool:
        """Whether the run has ended with each item booked once, and nobody was asked."""
        bodies = self.bodies()
        asked = [body for body in bodies if isinstance(body, e.QuestionAsked)]
        done = isinstance(bodies[-1], e.Finished)
        return done and not asked and ITEMS == sorted(self.booked())


def test_a_kill_at_every_border_leaves_both_or_neither(workers: ForkServer, tmp_path: Path) -> None:
    """For n = 1, 2, 3 … until a worker completes: the n-th border kills, the next one ends it."""
    kills = 0
    for border in range(1, 200):
        case = Case(workers, tmp_path / str(border))
        if case.run(border).how == "completed":
            break
        kills += 1
        assert "completed" == case.run().how
        assert case.is_whole(), border

    assert kills > 30


@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_instants_leave_both_or_neither(
    workers: ForkServer, tmp_path: Path, seed: int
) -> None:
    """Workers of a run are killed from outside, whatever they are doing, until one completes."""
    chance = random.Random(seed)
    kills = 0
    for number in range(6):
        case = Case(workers, tmp_path / str(number))
        for _ in range(8):
            ended = case.run(kill_after_seconds=chance.uniform(0.005, 0.12))
            kills += ended.how == "killed"
            if ended.how == "completed":
                break
        case.run()
        assert case.is_whole(), (seed, number)

    assert kills > 0
