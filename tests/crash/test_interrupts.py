"""SIGINT and a dropped stream, in a real process and on a real file: in order, and resumable."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from agentkit.testing.crash import Campaign, CrashPlan
from agentkit.testing.crash.scenario import TASK, Folder, make_agent
from agentkit.testing.invariants import report

FIRST, LAST = "acquire:before", "release:after"


def _interrupt_at(campaign: Campaign, border: int) -> bool:
    """One run whose first worker gets SIGINT at a border; whether there was such a border."""
    with campaign.ordeal() as ordeal:
        order = msgspec.to_builtins(ordeal.order(border, how=signal.SIGINT))
        ended = campaign.server.run(order)
        reached = ordeal.folder.borders.kills()
        head = ordeal.head()
        ordeal.finish()
        ordeal.judge()
        takeovers = [row for row in ordeal.read() if b'"takeover"' in row.body]
    if reached:
        # The last border's interrupt may come when everything is done.
        assert "KeyboardInterrupt" in ended.detail or reached == [LAST], ended
        assert head is None or "" == head.owner, f"the lease was kept at {reached}"
        assert [] == takeovers, f"the lease was taken over after {reached}"
    return bool(reached)


def test_f066_sigint_at_every_border_leaves_the_run_resumable_and_released(
    campaign: Campaign,
) -> None:
    """F066: Ctrl-C wherever the worker is: the lease goes back in order, the next worker takes
    nothing over and ends the run as if nothing had happened, and no invariant breaks.
    """
    campaign.steps = 2
    border = 1
    while _interrupt_at(campaign, border):
        border += 1
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert border > 35


def test_f066_breaking_out_of_the_stream_at_any_event_releases_the_lease(tmp_path: Path) -> None:
    """F066: `break` after the n-th event of a run on SQLite, for every n; then the program ends."""
    number = 1
    while _break_after(tmp_path / f"{number}", number):
        number += 1

    assert number > 20


def _break_after(path: Path, number: int) -> bool:
    path.mkdir()
    folder = Folder(path)

    async def leave() -> bool:
        agent, context = make_agent(folder.store(), CrashPlan(), folder, run="r1")
        count = 0
        async for _ in agent.stream(TASK, context):
            count += 1
            if count == number:
                break
        return count == number

    async def look() -> str:
        head = await folder.store().head("r1")
        assert head is not None
        return head.owner

    left = asyncio.run(leave())
    assert "" == asyncio.run(look())
    return left


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_f066_a_signal_that_nobody_handles_is_as_a_crash(campaign: Campaign, name: str) -> None:
    """F066: the library installs no handler; a worker that SIGTERM ends is proved dead at once."""
    with campaign.ordeal() as ordeal:
        order = ordeal.order(20, how=signal.Signals[name])
        ended = campaign.server.run(msgspec.to_builtins(order))
        ordeal.finish()
        ordeal.judge()

    assert "failed" == ended.how
    assert not _alive(ended.pid)
    assert not campaign.violations, report(campaign.violations)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
