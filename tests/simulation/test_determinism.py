"""A seed is a schedule: the same one, whenever and wherever it is played."""

import os
import subprocess
import sys

from agentkit.testing.simulation import simulate

SEEDS = (3, 5, 8, 13)

PROGRAM = """
import sys
from hashlib import sha256
from agentkit.testing.simulation import simulate
for seed in map(int, sys.argv[1:]):
    print(sha256("\\n".join(simulate(seed, traced=True).trace).encode()).hexdigest())
"""


def test_a_seed_gives_the_same_trace_again() -> None:
    """Nothing of what the process did before has a part in it."""
    first = [simulate(seed, traced=True) for seed in SEEDS]
    again = [simulate(seed, traced=True) for seed in reversed(SEEDS)]

    assert first == again[::-1]
    assert all(one.trace for one in first)


def test_tracing_changes_nothing() -> None:
    """A schedule that failed in a campaign fails in the same way when it is shown."""
    traced = simulate(SEEDS[0], traced=True)
    plain = simulate(SEEDS[0])

    assert (traced.steps, traced.virtual_seconds) == (plain.steps, plain.virtual_seconds)
    assert traced.faults == plain.faults


def test_other_seeds_give_other_schedules() -> None:
    """The seed is heard."""
    assert len(SEEDS) == len({simulate(seed).virtual_seconds for seed in SEEDS})


def test_processes_with_other_hash_seeds_agree() -> None:
    """Neither the order of sets nor the addresses of objects have a part in it."""
    told = {_told_by(hash_seed) for hash_seed in ("0", "1", "77")}

    assert 1 == len(told)
    assert len(SEEDS) == len(told.pop().split())


def _told_by(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
