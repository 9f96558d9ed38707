"""SIGKILL at every border of a worker whose model is an official SDK over real HTTP."""

import sys
from pathlib import Path

import pytest

from agentkit.testing.crash import BORDERS, ForkServer
from agentkit.testing.invariants import report
from tests.http.campaign import HttpCampaign
from tests.http.kit import APIS, Api

NOTES = {"note:before", "note:after"}
"""Passed only by a worker that brings the answer to a question."""

QUICK = {("anthropic", True), ("openai", False)}
"""Of each API one kind of answer that is not left to the slow tests."""

every_kind_of_answer = pytest.mark.parametrize(
    ("api", "stream"), [(api, stream) for api in APIS for stream in (True, False)]
)


def _known(stream: bool) -> set[str]:
    """The borders that such a worker has: no text comes in pieces where answers come whole."""
    return set(BORDERS) if stream else set(BORDERS) - {"model:delta"}


@pytest.mark.parametrize(
    ("api", "stream"),
    [
        pytest.param(api, stream, marks=[] if (api, stream) in QUICK else [pytest.mark.slow])
        for api in APIS
        for stream in (True, False)
    ],
)
def test_a_run_over_http_survives_a_kill_at_each_kind_of_border(
    server: ForkServer, tmp_path: Path, api: Api, stream: bool
) -> None:
    """A run is killed at a border of each kind, another at both borders of a decision; each is
    carried on, and the provider never sees a request that it refuses.
    """
    campaign = HttpCampaign(server, tmp_path, api=api, stream=stream)
    killed = campaign.one_of_each_border(seed=1)
    for border in sorted(NOTES):
        campaign.run(["effect:after#2", None, border])
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert _known(stream) - NOTES == killed
    assert _known(stream) == set(campaign.killed_at)
    assert campaign.bought > 4 * campaign.runs


@every_kind_of_answer
def test_a_run_over_http_survives_kills_at_random_instants(
    server: ForkServer, tmp_path: Path, api: Api, stream: bool
) -> None:
    """Up to three workers of a run are killed from outside, whatever they have on the wire."""
    campaign = HttpCampaign(server, tmp_path, api=api, stream=stream)
    for seed in range(1, 5):
        campaign.at_random(seed)

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert campaign.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@every_kind_of_answer
def test_a_run_over_http_survives_a_kill_at_every_border(
    server: ForkServer, tmp_path: Path, api: Api, stream: bool
) -> None:
    """For n = 1, 2, 3 … until a run completes: the n-th border kills, fresh processes finish.

    Two borders may change places from run to run, so a kind that occurs once may be left out: it is
    killed at by name.
    """
    campaign = HttpCampaign(server, tmp_path, api=api, stream=stream)
    borders = campaign.every_border()
    for border in sorted(_known(stream) - NOTES - set(campaign.killed_at)):
        campaign.run([border])
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert _known(stream) == set(campaign.hits)
    assert _known(stream) - NOTES == set(campaign.killed_at)
    assert borders > 45
