"""SIGKILL while the provider is in the middle of an answer: half an answer is none."""

import sys
from pathlib import Path

import pytest

from agentkit.testing.crash import ForkServer
from agentkit.testing.invariants import report
from agentkit.testing.provider import Fault
from tests.http.campaign import HttpCampaign, HttpOrdeal
from tests.http.kit import APIS, Api

both = pytest.mark.parametrize("api", APIS)

ALL_BUT_THE_LAST = 10_000
"""So many events are never in one answer: the provider then holds the last one back."""


def _killed_and_carried_on(ordeal: HttpOrdeal, fault: Fault, *, turn: int) -> None:
    """Nothing of the half answer is recorded, it is asked for again, and counts as unknown."""
    unknown = ordeal.state().usage.unknown
    held = ordeal.kill_while_held(fault)

    assert (turn, turn) == (held.turn, ordeal.recorded)
    ordeal.finish()
    ordeal.judge()
    asked = [call for call in ordeal.calls if call.turn == turn]
    assert [held.digest, held.digest] == [call.digest for call in asked]
    assert [False, True] == [call.answered for call in asked]
    assert ordeal.state().usage.unknown >= unknown + 1


@both
@pytest.mark.parametrize("turn", [0, 2, 3])
def test_a_stream_that_its_reader_did_not_survive_is_asked_for_again(
    server: ForkServer, tmp_path: Path, api: Api, turn: int
) -> None:
    """The worker dies when the provider has sent k of an answer's events: before the first, in its
    thinking, in its text, in the arguments of a call, and before the very last.
    """
    campaign = HttpCampaign(server, tmp_path, api=api)
    for after in (0, 4, 8, 16, ALL_BUT_THE_LAST):
        with campaign.ordeal() as ordeal:
            _killed_and_carried_on(ordeal, Fault.stall_stream(after=after, turn=turn), turn=turn)
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert 5 == campaign.kills


@both
def test_a_whole_answer_that_nobody_received_is_asked_for_again(
    server: ForkServer, tmp_path: Path, api: Api
) -> None:
    """Without streaming the worker dies while the answer, already paid, is still to come."""
    campaign = HttpCampaign(server, tmp_path, api=api, stream=False)
    for turn in range(4):
        with campaign.ordeal() as ordeal:
            _killed_and_carried_on(ordeal, Fault.stall(turn=turn), turn=turn)

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals


@both
def test_text_that_was_shown_and_lost_stands_nowhere(
    server: ForkServer, tmp_path: Path, api: Api
) -> None:
    """A watcher saw the first half of the text; the journal has none of it, and the next worker
    tells the text from its beginning.
    """
    campaign = HttpCampaign(server, tmp_path, api=api)
    with campaign.ordeal() as ordeal:
        ordeal.kill_while_held(Fault.stall_stream(after=14, turn=3), shown="all done: value")
        rows = ordeal.read()
        ordeal.finish()
        ordeal.judge()
        told = ordeal.folder.promises.read()

    assert not campaign.violations, report(campaign.violations)
    assert b"all done" not in b"".join(row.body for row in rows)
    texts = [str(line["text"]) for line in told if line["event"] == "message_delta"]
    assert "".join(texts).endswith(campaign.expected)
    assert 2 == "".join(texts).count("all done: value")
