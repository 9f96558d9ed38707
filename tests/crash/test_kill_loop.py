"""SIGKILL at every border and at random instants: the next process carries on unharmed."""

import sys

import pytest

from agentkit.testing.crash import BORDERS, Campaign
from agentkit.testing.invariants import report

# The one who goes on after a question that was answered passes these and only these besides.
NOTES = {"note:before", "note:after"}


def test_a_run_survives_a_kill_at_every_border(campaign: Campaign) -> None:
    """For n = 1, 2, 3 … until a run completes: the n-th border kills, a fresh process finishes."""
    borders = campaign.every_border()
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert set() == campaign.unhit
    assert set(BORDERS) - NOTES == set(campaign.killed_at)
    assert borders == campaign.kills
    assert borders > 50


def test_the_worker_that_was_told_of_a_decision_is_killed_at_every_border(
    campaign: Campaign,
) -> None:
    """A plain tool's effect is done and its outcome is not recorded; a second worker suspends the
    run; the third, who brings the answer, is killed at each of its borders.
    """
    effect = _border_of(campaign, "effect:after", 2)

    borders = campaign.every_border([effect, None])
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert set(campaign.killed_at) >= NOTES
    assert borders > 30


@pytest.mark.parametrize("seed", range(1, 41, 8))
def test_a_run_survives_kills_at_random_instants(campaign: Campaign, seed: int) -> None:
    """Up to three workers of a run are killed from outside, whatever they are doing."""
    for number in range(seed, seed + 8):
        campaign.at_random(number)

    assert not campaign.violations, report(campaign.violations)
    assert campaign.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_a_run_survives_a_second_kill_at_every_border_after_every_first(campaign: Campaign) -> None:
    """For every n and every m: the first worker dies at its n-th border, the second at its m-th."""
    for first in range(1, campaign.every_border() + 1):
        campaign.every_border([first])
        assert not campaign.violations, report(campaign.violations)
    sys.stdout.write(campaign.summary())

    assert set() == campaign.unhit
    assert set(BORDERS) - NOTES == set(campaign.killed_at)


def _border_of(campaign: Campaign, name: str, occurrence: int) -> int:
    """The number of a border in a run that nobody disturbs."""
    with campaign.ordeal() as ordeal:
        ordeal.finish()
        hits = ordeal.folder.borders.hits()
    return [number for number, hit in enumerate(hits, 1) if hit == name][occurrence - 1]
