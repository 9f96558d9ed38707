"""The command that plays campaigns and shows single schedules."""

import subprocess
import sys

import pytest

from agentkit.testing.invariants import Violation
from agentkit.testing.simulation import Outcome, Tally, simulate
from agentkit.testing.simulation import __main__ as command

COMMAND = [sys.executable, "-m", "agentkit.testing.simulation"]


def test_a_campaign_prints_what_it_did() -> None:
    """Rate, runs, faults, questions, doubles by policy and the verdict, from all its processes."""
    done = subprocess.run(
        [*COMMAND, "--schedules", "30", "--seed", "7", "--jobs", "2"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("", 0) == (done.stderr, done.returncode)
    for word in ("30 schedules", "schedules/s", "runs completed", "questions", "pause", "key"):
        assert word in done.stdout
    assert "no invariant is violated" in done.stdout


def test_a_campaign_ends_in_time() -> None:
    """`--seconds` ends it with the sums so far."""
    done = subprocess.run(
        [*COMMAND, "--schedules", "1000000", "--seconds", "0.5", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode
    assert "no invariant is violated" in done.stdout


def test_a_schedule_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`--trace` tells who did what at which virtual second."""
    code = command.main(["--seed", "9", "--schedules", "1", "--trace"])

    shown = capsys.readouterr().out
    assert 0 == code
    assert "--- seed 9" in shown
    assert "run_started" in shown
    assert all(line in shown for line in simulate(9, traced=True).trace)


def test_a_violation_is_told_with_the_command_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the seed, and a line to copy."""
    wrong = (Violation("I2", "r1", "it happened twice"),)
    monkeypatch.setattr(command, "simulate", lambda seed, **_: _outcome(seed, wrong))

    code = command.main(["--seed", "4711", "--schedules", "1", "--trace"])

    shown = capsys.readouterr().out
    assert 1 == code
    assert "I2  it happened twice" in shown
    assert "python -m agentkit.testing.simulation --seed 4711 --schedules 1 --trace" in shown


def test_a_double_of_a_safe_policy_is_no_success() -> None:
    """Also where no invariant speaks of it; a double of the unsafe one is."""
    safe, unsafe = Tally(doubled={"key": 1}), Tally(doubled={"look": 1, "guess": 1})

    assert (False, True) == (safe.sound, unsafe.sound)


def _outcome(seed: int, violations: tuple[Violation, ...]) -> Outcome:
    return Outcome(
        seed=seed,
        violations=violations,
        steps=1,
        virtual_seconds=1.0,
        completed=True,
        faults={},
        takeovers=0,
        seen={},
        calls={},
        doubled={},
        asked_for=0,
    )
