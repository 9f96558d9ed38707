"""A transactional tool's worker is killed at any instant: effect and outcome are both there, or
neither is.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.types import JSONObject
from agentkit.core.contracts.values import digest
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.crash import Ended, ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.effects import Effect
from agentkit.testing.invariants import Evidence, check, read_rows, report
from tests.crash.transactions import OUTPUT, RUN


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
        self.folder = Folder(path)
        self.reads: list[tuple[Row, ...]] = []

    def run(self, at: int | str | None = None, *, kill_after_seconds: float | None = None) -> Ended:
        """A worker to its end; then what it left is compared."""
        order: JSONObject = {"folder": str(self.folder.path), "at": at}
        ended = self.workers.run(order, kill_after_seconds=kill_after_seconds)
        assert "failed" != ended.how, ended.detail
        rows = asyncio.run(self._rows())
        self.reads.append(rows)
        finished = [body for body in _bodies(rows) if isinstance(body, e.ToolFinished)]
        recorded = [one.content for one in finished if one.outcome == "ok"]
        assert recorded == [effect.result for effect in self.effects()]
        return ended

    def effects(self) -> list[Effect]:
        """What the tools wrote, both halves of each."""
        if not (self.folder.path / "runs.db").exists():
            return []
        db = apsw.Connection(str(self.folder.path / "runs.db"))
        try:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'booking'").fetchall():
                return []
            found = db.execute("SELECT * FROM booking ORDER BY rowid").fetchall()
        finally:
            db.close()
        assert [row[0] for row in found[::2]] == [row[0] for row in found[1::2]]
        return [
            Effect(
                kind="effect",
                tool="book",
                run=RUN,
                key=str(key),
                digest=digest("book", {"item": item}),
                attempt=int(str(attempt)),
                epoch=int(str(epoch)),
                result=f"booked {item}",
            )
            for item, _, key, attempt, epoch in found[::2]
        ]

    def assert_whole(self) -> None:
        """The run has its undisturbed answer, each item once, nobody was asked, all is sound."""
        evidence = Evidence(
            run=RUN,
            rows=self.reads[-1],
            effects=tuple(self.effects()),
            answers=tuple(self.folder.answers.read()),
            tools={"book": "transactional"},
            earlier=tuple(self.reads),
            output=OUTPUT,
        )
        violations = check(evidence)
        assert not violations, report(violations)
        assert not [one for one in _bodies(evidence.rows) if isinstance(one, e.QuestionAsked)]

    async def _rows(self) -> tuple[Row, ...]:
        store = self.folder.store()
        rows = await read_rows(store, RUN)
        await store.aclose()
        return rows


def _bodies(rows: Sequence[Row]) -> list[e.Body]:
    decoded = decode_rows(rows, after=0, before=b"", run_id=RUN)
    return [entry.body for entry, _ in decoded]


def test_a_kill_at_every_border_leaves_both_or_neither(workers: ForkServer, tmp_path: Path) -> None:
    """For n = 1, 2, 3 … until a worker completes: the n-th border kills, the next one ends it."""
    kills = 0
    for border in range(1, 200):
        case = Case(workers, tmp_path / str(border))
        if case.run(border).how == "completed":
            break
        kills += 1
        assert "completed" == case.run().how
        case.assert_whole()

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
        for _ in range(5):  # one more without progress would park the run
            ended = case.run(kill_after_seconds=chance.uniform(0.005, 0.12))
            kills += ended.how == "killed"
            if ended.how == "completed":
                break
        case.run()
        case.assert_whole()

    assert kills > 0
