"""A server that fails under load harms no run."""

from pathlib import Path

import pytest

from agentkit.testing.crash.outages import STORES, run_campaign

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "store", [pytest.param(store, marks=getattr(pytest.mark, store)) for store in STORES]
)
def test_each_outage_once_and_every_run_is_sound(tmp_path: Path, store: str) -> None:
    """Sessions end, the server restarts and is killed, whole or in part, each while runs get on;
    all of them finish, and keep every invariant.
    """
    figures = run_campaign(tmp_path, store=store, outages=5, seed=1)

    assert [] == figures.violations
    assert all(figures.outages.values())
    assert figures.runs > 0
