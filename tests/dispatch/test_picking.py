"""Which runs a worker takes next, and how long one rests: pure rules."""

import pytest

from agentkit.core.contracts.heads import Claimable
from agentkit.dispatch.picking import (
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    Rests,
    key_of,
    next_rest,
    pick,
)

DUE = [Claimable("", f"r{number}", "a", 0) for number in range(10)]


def _picked(due: list[Claimable], *, free: int = 2, spread: float = 0.0) -> list[str]:
    chosen = pick(due, beside=(), free=free, spread=spread, is_dead=lambda owner: owner == "dead")
    return [one.run for one in chosen]


def test_the_longest_due_come_first() -> None:
    """As many as there is room for."""
    assert ["r0", "r1"] == _picked(DUE)
    assert ["r0"] == _picked(DUE[:1])
    assert [] == _picked([])


def test_workers_begin_at_different_places() -> None:
    """Among the first ones, so that two of them seldom want the same run; at the end it goes
    round.
    """
    assert ["r4", "r5"] == _picked(DUE, spread=0.5)
    assert ["r7", "r0"] == _picked(DUE, spread=0.999)


def test_what_is_worked_on_here_or_rests_is_left_out() -> None:
    """And makes room for what comes behind it."""
    beside = {key_of(DUE[0]), key_of(DUE[1])}

    chosen = pick(DUE, beside=beside, free=1, spread=0.0, is_dead=lambda _: False)

    assert ["r2"] == [one.run for one in chosen]


def test_what_somebody_holds_is_taken_from_the_dead_alone() -> None:
    """Whoever cannot be proved dead keeps it until the lease lapses."""
    held = [
        Claimable("", "alive", "a", 0, "alive", held=True),
        Claimable("", "dead", "a", 0, "dead", held=True),
        Claimable("", "lapsed", "a", 0, "alive"),
    ]

    assert ["dead", "lapsed"] == _picked(held, free=9)


@pytest.mark.parametrize(
    ("before", "after"), [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (200.0, 300.0), (300.0, 300.0)]
)
def test_a_rest_doubles_up_to_the_longest(before: float, after: float) -> None:
    """So a run that always fails costs next to nothing."""
    assert after == next_rest(before)
    assert FIRST_REST_SECONDS <= after <= LONGEST_REST_SECONDS


def test_a_run_rests_longer_after_each_failure_until_it_goes_well() -> None:
    """A failure that lies far behind does not count any more."""
    now = [0.0]
    rests, key = Rests(lambda: now[0]), ("", "r")

    first, second = rests.after_failure(key), rests.after_failure(key)
    resting = rests.resting()
    now[0] = 2.0
    over = rests.resting()
    third = rests.after_failure(key)
    rests.end(key)
    anew = rests.after_failure(key)
    now[0] = 2.0 + anew + LONGEST_REST_SECONDS + 1
    far = (rests.resting(), rests.failing, len(rests))

    assert (1.0, 2.0, 4.0, 1.0) == (first, second, third, anew)
    assert ({key}, set()) == (resting, over)
    assert (set(), 0, 0) == far


def test_a_run_for_which_there_was_nothing_to_do_rests_for_a_moment() -> None:
    """However often, and it does not count as failing."""
    now = [0.0]
    rests, key = Rests(lambda: now[0]), ("", "r")

    rests.after_nothing(key)
    rests.after_nothing(key)
    seen = (rests.resting(), rests.failing)
    now[0] = 1.001

    assert ({key}, 0) == seen
    assert (set(), 0) == (rests.resting(), len(rests))
