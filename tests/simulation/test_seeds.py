"""Schedules that once were called violations, by rules of the simulation that were too narrow."""

import pytest

from agentkit.testing.simulation import simulate


@pytest.mark.parametrize("seed", [9409, 14145, 15943])
def test_a_sound_schedule_is_called_sound(seed: int) -> None:
    """A run that is paused while it is parked asks no model, so a takeover then has lost none; and
    a person who was not wanted for long may look up late.
    """
    assert () == simulate(seed).violations
