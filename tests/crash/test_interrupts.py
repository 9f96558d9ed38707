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


def _interrupt_at(
    campaign: Campaign, border: int, how: signal.Signals, *, orderly: bool = False
) -> bool:
    """One run whose first worker gets a signal at a border; whether there was such a border."""
    with campaign.ordeal() as ordeal:
        order = msgspec.structs.replace(ordeal.order(border, how=how), orderly=orderly)
        ended = campaign.server.run(msgspec.to_builtins(order))
        reached = ordeal.folder.borders.kills()
        head = ordeal.head()
        ordeal.finish()
        ordeal.judge()
        takeovers = [row for row in ordeal.read() if b'"takeover"' in row.body]
    if reached:
        # The last border's interrupt may come when everything is done.
        told = "CancelledError" if orderly else "KeyboardInterrupt"
        assert told in ended.detail or reached == [LAST], ended
        assert head is None or "" == head.owner, f"the lease was kept at {reached}"
        assert [] == takeovers, f"the lease was taken over after {reached}"
    return bool(reached)


@pytest.mark.slow
def test_f066_sigint_at_every_border_leaves_the_run_resumable_and_released(
    campaign: Campaign,
) -> None:
    """F066: Ctrl-C wherever the worker is: the lease goes back in order, the next worker takes
    nothing over and ends the run as if nothing had happened, and no invariant breaks.
    """
    campaign.steps = 2
    border = 1
    while _interrupt_at(campaign, border, signal.SIGINT):
        border += 1
    sys.stdout.write(campaign.summary())

    assert not campaign.violations, report(campaign.violations)
    assert border > 35


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_f066_a_worker_that_heeds_signals_releases_its_run_at_every_border(
    campaign: Campaign, name: str
) -> None:
    """F066: a program whose handler cancels its task, as the command's does: wherever the signal
    comes, the lease goes back in order and the next worker waits for nobody.
    """
    campaign.steps = 1
    border = 1
    while _interrupt_at(campaign, border, signal.Signals[name], orderly=True):
        border += 1

    assert not campaign.violations, report(campaign.violations)
    assert border > 20


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_f066_a_signal_that_nobody_handles_is_as_a_crash(campaign: Campaign, name: str) -> None:
    """F066: the library installs no handler; a worker that SIGTERM ends, at whichever border, is
    proved dead at once.
    """
    campaign.steps = 1
    border = 1
    while _end_at(campaign, border, signal.Signals[name]):
        border += 1

    assert not campaign.violations, report(campaign.violations)
    assert border > 20


def _end_at(campaign: Campaign, border: int, how: signal.Signals) -> bool:
    with campaign.ordeal() as ordeal:
        ended = campaign.server.run(msgspec.to_builtins(ordeal.order(border, how=how)))
        reached = ordeal.folder.borders.kills()
        ordeal.finish()
        ordeal.judge()
    if reached:
        assert ("failed", f"exit code {-how}") == (ended.how, ended.detail)
        assert not _alive(ended.pid)
    return bool(reached)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
