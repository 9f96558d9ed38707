"""What the page on Redis says of losses is so: how much, and who is told."""

import pytest

from agentkit.testing.redis_honesty import SCENES, Found, main, measure, table

pytestmark = pytest.mark.redis

RUNS, ENTRIES = 6, 10

LOSES_NOTHING = {
    "no append-only file (the default), SIGTERM": "stopped",
    "appendfsync everysec, kill -9": "stopped",
    "appendfsync always, kill -9": "whole",
    "memory full, noeviction": "whole",
    "SCRIPT FLUSH before each append": "whole",
    "the lists of runs alone are evicted": "whole",
}
EMPTIED = "cluster, no append-only file, kill -9 of the nodes with the lists"
LOSES_ITS_END = (
    "no append-only file (the default), kill -9",
    "appendfsync everysec, power lost before the write to disk",
    "a stale replica is promoted",
)


@pytest.mark.parametrize(("scene", "fate"), LOSES_NOTHING.items())
async def test_what_loses_nothing(scene: str, fate: str) -> None:
    """All that was acknowledged is there; a run goes on where the store can tell so."""
    found = await measure(scene, runs=RUNS, entries=ENTRIES)

    assert (0, {fate: RUNS}) == (found.lost, found.fates)
    assert found.acknowledged >= RUNS


@pytest.mark.parametrize("scene", LOSES_ITS_END)
async def test_what_loses_the_newest_entries(scene: str) -> None:
    """Half of them here; every run is stopped, none goes on as if they had not been."""
    found = await measure(scene, runs=RUNS, entries=ENTRIES)

    assert Found(scene, RUNS * ENTRIES, RUNS * ENTRIES // 2, {"stopped": RUNS}) == found


async def test_what_evicts_runs() -> None:
    """Entries, heads or both go; whoever held the run is told in each case."""
    found = await measure("memory full, allkeys-lru", runs=RUNS, entries=ENTRIES)

    assert 0 == found.silent
    assert found.lost > 0
    assert found.fates.get("expired", 0) + found.fates.get("gone", 0) > 0
    assert "0 keys evicted" not in found.note.split(", ")


@pytest.mark.slow
async def test_what_a_node_with_the_lists_takes_with_it() -> None:
    """Its own runs, whose holders are told; those of other nodes are whole, and all are listed."""
    found = await measure(EMPTIED, runs=40, entries=2)

    left = found.fates["whole"]
    assert 0 < left < 40
    assert {"whole": left, "gone": 40 - left} == found.fates
    assert f"{left} of {left} runs that are left are listed" == found.note


def test_the_scenes_are_those_of_the_page() -> None:
    """None is left out here."""
    assert {*LOSES_NOTHING, *LOSES_ITS_END, EMPTIED, "memory full, allkeys-lru"} == set(SCENES)


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """And fails where a loss was silent."""
    code = main(["--runs", "2", "--entries", "2", "--only", "SCRIPT"])

    shown = capsys.readouterr().out
    assert 0 == code
    assert "| SCRIPT FLUSH before each append | 4 | 0 | 2 | 0 | 0 | 0 | 0 |  |" in shown
    assert "| x | 1 | 1 | 0 | 0 | 0 | 0 | 1 | so |" in table(
        [Found("x", 1, 1, {"silent": 1}, "so")]
    )
