"""A Postgres that fails under load harms no run."""

from pathlib import Path

import pytest

from agentkit.testing.crash.outages import KINDS, run_campaign

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]


def test_each_outage_once_and_every_run_is_sound(tmp_path: Path) -> None:
    """Sessions end, a backend is killed, the server restarts and is killed, each while runs get
    on; all of them finish, and keep every invariant.
    """
    figures = run_campaign(tmp_path, outages=len(KINDS), seed=1)

    assert [] == figures.violations
    assert set(KINDS) == {kind for kind, count in figures.outages.items() if count}
    assert figures.runs > 0
