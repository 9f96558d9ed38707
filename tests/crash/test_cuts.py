"""Answers to appends are lost on the way, and nothing is lost or doubled for it."""

from pathlib import Path

import pytest

from agentkit.testing.crash import cuts
from agentkit.testing.invariants import report

CUTS = 12


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
def test_an_append_whose_answer_is_lost_is_there_once(store: str, tmp_path: Path) -> None:
    """The worker cannot know whether it happened, asks again, and the store compares."""
    figures = cuts.run_campaign(tmp_path, store=store, cuts=CUTS)

    assert not figures.violations, report(figures.violations)
    assert CUTS == figures.cuts
    assert figures.runs


def test_the_command_tells_what_it_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line is the verdict; a campaign in which nobody got on fails."""
    told = cuts.Figures(7, 3, {"StoreUnreachable": 2}, [], 1.0)
    monkeypatch.setattr(cuts, "run_campaign", lambda *_, **__: told)

    assert 0 == cuts.main(["--store", "redis", "--cuts", "7"])
    assert [
        "redis: 7 answers lost, 3 runs, 1 s",
        "raised to a worker: StoreUnreachable 2",
        "no invariant is violated",
    ] == capsys.readouterr().out.splitlines()
    assert 1 == cuts.main(["--store", "redis", "--cuts", "8"])
