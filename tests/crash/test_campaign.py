"""Campaigns of kills by seed: what they do, what they say, and how they fail."""

from collections import Counter
from itertools import chain, count
from pathlib import Path

import pytest

from agentkit.testing.crash import BORDERS, Campaign
from agentkit.testing.crash.__main__ import main
from agentkit.testing.crash.seeds import by_name, fate, run_seeds
from agentkit.testing.invariants import report


@pytest.mark.slow
def test_a_campaign_kills_at_every_known_border_and_asks_and_breaks_nothing(tmp_path: Path) -> None:
    """Each border by its name, then seeds, in two jobs: all borders have killed, a human was asked,
    takeovers were timed, and what sound runs left behind is gone.
    """
    figures = run_seeds(chain(by_name(), count(1)), tmp_path, jobs=2, kills=60)

    assert [] == figures.violations, report(figures.violations)
    assert [] == figures.unkilled
    assert 60 <= figures.kills
    assert sum(campaign.questions for campaign in figures.campaigns) > 5
    assert sum(len(campaign.takeovers_seconds) for campaign in figures.campaigns) > 30
    assert [] == list(tmp_path.glob("job*/run*"))
    assert all(f"\n{border} " in figures.summary() for border in BORDERS)


def test_a_seed_is_one_fate_and_the_seeds_know_all_kinds_of_death() -> None:
    """The same seed kills at the same places; among the seeds are single kills, kills during
    recovery, instants, both, and kills of whoever brings a human's answer.
    """
    fates = [fate(seed) for seed in range(1, 101)]

    assert fates == [fate(seed) for seed in range(1, 101)]
    assert {1, 2, 3} == {one.steps for one in fates}
    kinds = Counter(frozenset(map(type, one.deaths)) for one in fates)
    assert {
        frozenset({int}),
        frozenset({float}),
        frozenset({int, float}),
        frozenset({str, type(None), int}),
    } == set(kinds)
    assert 4 == max(len(one.deaths) for one in fates)
    assert list(BORDERS) == [fate(seed).deaths[-1] for seed in by_name()]


def test_a_seed_that_breaks_something_is_named_and_its_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign stops there."""
    monkeypatch.setattr(Campaign, "expected", "what no run answers")

    figures = run_seeds(count(5), tmp_path)

    assert [5] == [one.seed for one in figures.failed]
    assert ["L1"] == [violation.invariant for violation in figures.violations]
    assert (tmp_path / "job1" / "run1" / "runs.db").exists()


def test_the_command_replays_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """`campaign --seed=N --runs 1` is that run alone."""
    code = main(["campaign", "--seed=-1", "--runs", "1"])

    out = capsys.readouterr().out
    assert 0 == code
    assert "1 kills, 1 of them at borders" in out
    assert "1 runs, 0 questions asked, 0 violations" in out


def test_the_command_fails_where_nobody_died_at_a_known_border(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too few kills to have been everywhere are no success."""
    code = main(["campaign", "--kills", "1"])

    assert 1 == code
    assert "nobody died at the border tool:after\n" in capsys.readouterr().out


def test_the_command_tells_how_to_run_a_failed_seed_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that ends by an error is a failure too."""
    monkeypatch.setattr("agentkit.testing.crash.seeds.SCENARIO", "tests.crash.workers:work")
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / prefix))

    code = main(["campaign", "--seed", "3", "--kills", "5"])

    out = capsys.readouterr().out
    assert 1 == code
    assert "L1  run 'seed 0'" in out
    assert "again: python -m agentkit.testing.crash campaign --seed=0 --runs 1" in out
    assert f"what the failed runs left is in {tmp_path}" in out
