from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import floor, workload
from benchmarks.iterations import Beside
from benchmarks.run import main
from tests.agents.kit import Borders

TINY = ["--sizes", "4", "12", "--runs", "1", "3", "--total", "12", "--pairs", "2"]


LOCAL = ["iterations", "bytes", "flat", "reading", "concurrency", "imports"]


@pytest.mark.parametrize(
    "sections",
    [
        LOCAL,
        pytest.param(
            ["servers"], marks=(pytest.mark.postgres, pytest.mark.redis, pytest.mark.slow)
        ),
    ],
    ids=["local", "servers"],
)
def test_every_section_prints_a_table(
    sections: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each table has a rule and rows of equal width; no section is left out here."""
    main([*sections, *TINY, "--folder", str(tmp_path)])

    tables = capsys.readouterr().out.split("## ")[1:]
    assert len(sections) == len(tables)
    for table in tables:
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len(lines) >= 3
        assert {lines[0].count("|")} == {line.count("|") for line in lines}
        assert {len(lines[0])} == {len(line) for line in lines}


async def test_the_floor_writes_what_the_run_wrote(tmp_path: Path) -> None:
    """Every block of the run is measured, each iteration in two commits, on the same bytes."""
    beside = Beside(tmp_path, "same", iterations=6, block=3)

    await beside.measure()

    assert 2 == len(beside.ours) == len(beside.floors) == len(beside.bares)
    assert len(floor.bodies_in(tmp_path / "same-floor.db")) == 6 * 4


async def test_other_bytes_stop_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A floor that wrote something else proves nothing."""
    commit = floor.commit

    def shorter(db: object, groups: object) -> None:
        commit(db, [[body[1:] for body in group] for group in groups])  # type: ignore[arg-type,attr-defined]

    monkeypatch.setattr(floor, "commit", shorter)

    with pytest.raises(AssertionError, match="other bytes"):
        await Beside(tmp_path, "other", iterations=3, block=3).measure()


async def test_groups_are_the_runs_own_commits() -> None:
    """The groups that the floor commits are those in which the run appended."""
    store = Borders(workload.memory_store())

    await workload.run(store, workload.Model(3))

    rows = await workload.rows_of(store)
    bodies = [row.body for row in rows]
    appended = [bodies[begin:end] for begin, end in pairwise([0, *store.confirmed])]
    assert appended[1:-1] == workload.groups_of(rows)
