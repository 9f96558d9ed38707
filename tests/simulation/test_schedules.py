"""Schedules of the real runtime: nothing is violated, every fault fires, doubles are seen."""

from collections import Counter

import pytest

from agentkit.testing.simulation import Outcome, Tally, simulate
from agentkit.testing.simulation._weather import KINDS

SEEDS = range(1, 201)
UNTIL_SEEN = 1_000


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """A few hundred schedules."""
    return [simulate(seed) for seed in SEEDS]


def test_nothing_is_violated_whatever_happens(outcomes: list[Outcome]) -> None:
    """Safety and liveness hold, and every run came to its end."""
    violations = {one.seed: one.violations for one in outcomes if one.violations}

    assert {} == violations
    assert len(SEEDS) == sum(one.completed for one in outcomes)


def test_every_kind_of_fault_fires(outcomes: list[Outcome]) -> None:
    """A fault that never happens proves nothing; nor does one that never has consequences."""
    fired = Counter[str]()
    for one in outcomes:
        fired.update(one.faults)

    assert set(KINDS) == {kind for kind in KINDS if fired[kind]}
    assert 0 < sum(one.takeovers for one in outcomes)
    assert 0 < sum(one.questions for one in outcomes)


def test_shipped_policies_double_nothing(outcomes: list[Outcome]) -> None:
    """A key, a token or a question keeps what a paused worker does from happening twice."""
    tally = Tally()
    for one in outcomes:
        tally.add(one)

    assert {} == {name: times for name, times in tally.doubled.items() if name != "look" and times}
    assert all(tally.calls[policy] for policy in ("read", "ask", "key", "token", "look"))


def test_looking_and_running_again_is_seen_to_double() -> None:
    """The policy that is unsafe on purpose doubles effects, so the simulation would see others."""
    doubled = (simulate(seed, policies=["look"]).doubled["look"] for seed in range(UNTIL_SEEN))

    assert any(doubled)


def test_an_unknown_policy_is_refused() -> None:
    """A misspelt policy does not mean all of them."""
    with pytest.raises(ValueError, match="known are"):
        simulate(1, policies=["keys"])


async def test_a_running_loop_is_refused() -> None:
    """A world is its own time; it cannot stand inside of another loop's."""
    with pytest.raises(RuntimeError, match="inside a running event loop"):
        simulate(1)
