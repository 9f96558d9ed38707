"""Schedules of the real runtime: nothing is violated, every fault fires, doubles are seen."""

from collections import Counter

import pytest

from agentkit.testing.simulation import Outcome, Tally, schedule, simulate
from agentkit.testing.simulation._policies import POLICIES, UNSAFE
from agentkit.testing.simulation._weather import KINDS
from agentkit.testing.simulation.schedule import SIGHTS

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
    assert len(SEEDS) == sum(one.completed + one.cancelled for one in outcomes)


def test_every_kind_of_fault_fires(outcomes: list[Outcome]) -> None:
    """A fault that never happens proves nothing; nor does one that never has consequences."""
    fired = Counter[str]()
    for one in outcomes:
        fired.update(one.faults)

    assert set(KINDS) == {kind for kind in KINDS if fired[kind]}
    assert 0 < sum(one.takeovers for one in outcomes)


def test_everything_that_may_become_of_a_call_becomes_of_some(outcomes: list[Outcome]) -> None:
    """Doubts end by asking, by finding out, by telling the model, by a late outcome and by an
    operator; runs that kill their workers are parked and let go on; calls are approved, refused and
    changed, wait for answers, times and events; and whoever decides is told each of the four things
    that may have become of it.
    """
    seen = Counter[str]()
    for one in outcomes:
        seen.update(one.seen)

    assert set(SIGHTS) == {what for what in SIGHTS if seen[what]}


def test_shipped_policies_double_nothing(outcomes: list[Outcome]) -> None:
    """Whatever a tool relies on keeps what a paused worker does from happening twice."""
    tally = Tally()
    for one in outcomes:
        tally.add(one)

    shipped = {*POLICIES.values()} - UNSAFE
    assert {} == {name: times for name, times in tally.doubled.items() if times and name in shipped}
    assert {*POLICIES.values()} == {name for name, calls in tally.calls.items() if calls}


@pytest.mark.parametrize("policy", sorted(UNSAFE))
def test_an_unsafe_policy_is_seen_to_double(policy: str) -> None:
    """Those that are unsafe on purpose double effects, so the simulation would see others."""
    doubled = (simulate(seed, policies=[policy]).doubled[policy] for seed in range(UNTIL_SEEN))

    assert any(doubled)


def test_a_double_of_a_shipped_policy_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted for the campaign fails its schedule too, so that the seed is told."""
    monkeypatch.setattr(schedule, "UNSAFE", frozenset())
    outcomes = (simulate(seed, policies=["look"]) for seed in range(UNTIL_SEEN))
    first = next(one for one in outcomes if one.doubled["look"])

    assert ["I2"] == [one.invariant for one in first.violations]


def test_an_unknown_policy_is_refused() -> None:
    """A misspelt policy does not mean all of them."""
    with pytest.raises(ValueError, match="known are"):
        simulate(1, policies=["keys"])


async def test_a_running_loop_is_refused() -> None:
    """A world is its own time; it cannot stand inside of another loop's."""
    with pytest.raises(RuntimeError, match="inside a running event loop"):
        simulate(1)
