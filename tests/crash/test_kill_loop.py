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
    assert borders > 50
    assert campaign.kills > 50


@pytest.mark.parametrize("border", [border for border in BORDERS if border not in NOTES])
def test_a_run_survives_a_kill_at_each_kind_of_border(campaign: Campaign, border: str) -> None:
    """No known border is one that no worker ever dies at."""
    assert campaign.run([border])
    assert {border: 1} == campaign.killed_at
    assert not campaign.violations, report(campaign.violations)


def test_the_worker_that_was_told_of_a_decision_is_killed_at_every_border(
    campaign: Campaign,
) -> None:
    """A plain tool's effect is done and its outcome is not recorded; a second worker suspends the
    run; the third, who brings the answer, is killed at each of its borders.
    """
    campaign.steps = 1
    borders = campaign.every_border(["effect:after#2", None])
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert set(campaign.killed_at) >= {*NOTES, "effect:after"}
    assert borders > 10


@pytest.mark.parametrize("seed", range(1, 41, 8))
def test_a_run_survives_kills_at_random_instants(campaign: Campaign, seed: int) -> None:
    """Up to three workers of a run are killed from outside, whatever they are doing."""
    for number in range(seed, seed + 8):
        campaign.at_random(number)

    assert not campaign.violations, report(campaign.violations)
    assert campaign.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("part", [0, 1])
def test_a_run_survives_a_second_kill_at_every_border_after_every_first(
    campaign: Campaign, part: int
) -> None:
    """For every n and every m: the first worker dies at its n-th border, the second at its m-th.
    Odd and even n apart, so that two processes share the work.
    """
    for first in range(1 + part, campaign.every_border() + 1, 2):
        campaign.every_border([first])
        assert not campaign.violations, report(campaign.violations)
    sys.stdout.write(campaign.summary())

    assert set() == campaign.unhit
    assert campaign.kills > 600
