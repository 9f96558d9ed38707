"""Two workers on one run: one acts, the other learns of it before it does anything."""

import fcntl
import os
import signal
import time
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from agentkit.core.contracts.types import JSONObject
from agentkit.testing.crash import SCENARIO, Campaign, ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import report

LEASES_SECONDS = (0.6, 2.5, 10.0)
"""Tried in turn, until the worker comes to the border within its lease."""
TRIES = 25
"""How often a worker may happen to stop where one of its threads holds the file's lock."""
BOUND_SECONDS = 20.0


def _stop_and_overtake(campaign: Campaign, successor: ForkServer, border: int | str) -> str | None:
    """Stop a worker at a border past its lease, let another finish the run, continue the first.

    Returns how the first one ended; `None` where it passed no such border.
    """
    leases = list(LEASES_SECONDS)
    for _ in range(TRIES):
        with campaign.ordeal() as ordeal:
            order = ordeal.order(border, how=signal.SIGSTOP)
            order = msgspec.structs.replace(order, lease_seconds=leases[0])
            pid = campaign.server.start(msgspec.to_builtins(order))
            if not _stops(pid):
                ended = campaign.server.wait()
                if ended.how == "completed":
                    return None
                assert "LeaseLost" in ended.detail, ended.detail
                leases = leases[1:] or leases  # too short for a machine as busy as this
                continue
            if _holds_a_lock(ordeal.folder):
                os.kill(pid, signal.SIGCONT)
                campaign.server.wait()
                continue
            while ordeal.state().end is None:
                order = msgspec.structs.replace(ordeal.order(), wait_seconds=BOUND_SECONDS)
                ended = successor.run(msgspec.to_builtins(order))
                assert "completed" == ended.how, ended.detail
            finished, folder = ordeal.read(), ordeal.folder
            asked, entered = _asked(folder), _entered(folder, pid)
            os.kill(pid, signal.SIGCONT)
            first = campaign.server.wait()

            assert finished == ordeal.read(), "the one that was replaced appended something"
            assert asked == _asked(folder), "it asked the model after it had lost the run"
            # One of its threads may have stood between the last check and the tool.
            entering = int(folder.borders.kills()[0].startswith("tool:"))
            assert _entered(folder, pid) - entered <= entering, "it began a tool after its loss"
            ordeal.judge()
        assert not campaign.violations, report(campaign.violations)
        return first.detail if first.how == "failed" else first.how
    raise AssertionError(f"the worker never stood still at {border}, holding nothing")


def _asked(folder: Folder) -> int:
    """How many requests were made to the model, by whichever worker."""
    return sum(line["kind"] == "asked" for line in folder.answers.read())


def _entered(folder: Folder, pid: int) -> int:
    """How many tools with effects the process has entered."""
    lines = [line for line in folder.effects.read() if line.pid == pid and line.kind == "run"]
    return sum(line.tool != "lookup" for line in lines)


@pytest.mark.parametrize(
    "border",
    [
        "append:before",
        "model:before",
        "model:delta",
        "append:before#2",
        "append:after#2",
        "tool:before",
        "effect:before",
        "effect:after",
        "tool:after#3",
        "model:after#2",
        "release:before",
    ],
)
def test_f057_a_worker_that_stood_still_past_its_lease_appends_nothing(
    campaign: Campaign, successor: ForkServer, border: str
) -> None:
    """F057: SIGSTOP past the lease, takeover, SIGCONT: the old one can neither append, extend nor
    release, and stops.
    """
    ending = _stop_and_overtake(campaign, successor, border)

    assert "LeaseLost" in (ending or "no such border")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
def test_f057_fifty_that_stood_still_on_a_server(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """F057 on stores that workers of many machines share, at each border that there is."""
    url: str = request.getfixturevalue({"postgres": "postgres_dsn", "redis": "redis_url"}[kind])
    setup: JSONObject = {"store": url}
    with ForkServer(SCENARIO, setup=setup) as server, ForkServer(SCENARIO, setup=setup) as other:
        campaign = Campaign(server, tmp_path, store=url)
        endings = [_stop_and_overtake(campaign, other, border) or "" for border in range(3, 53)]

    assert sum("LeaseLost" in ending for ending in endings) > 40


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_f057_at_every_border(campaign: Campaign, successor: ForkServer) -> None:
    """F057 wherever a worker on a small run stood still, and at every other border of a longer one;
    at the very end it has nothing left to lose.
    """
    campaign.steps = 1
    border, endings = 1, list[str]()
    while (ending := _stop_and_overtake(campaign, successor, border)) is not None:
        endings.append(ending)
        border += 1
    assert border > 20
    assert sum("LeaseLost" in ending for ending in endings) > 14

    campaign.steps = 3
    endings = [_stop_and_overtake(campaign, successor, border) or "" for border in range(3, 56, 2)]
    assert sum("LeaseLost" in ending for ending in endings) > 20


def test_f055_f059_the_second_worker_is_refused_before_it_does_anything(
    campaign: Campaign, successor: ForkServer
) -> None:
    """F055, F059: while one worker lives, wherever it stands, another gets `RunInUse`, or once all
    is done the stored result: no model call, no tool, no entry; and the first one finishes
    undisturbed.
    """
    campaign.steps = 1
    second: list[str] = []
    while (ending := _beside(campaign, successor, len(second) + 2)) is not None:
        second.append(ending)

    assert not campaign.violations, report(campaign.violations)
    assert len(second) > 18
    assert {"RunInUse", "completed", "not tried"} >= set(second)
    assert second.count("RunInUse") > 14


def _beside(campaign: Campaign, successor: ForkServer, border: int) -> str | None:
    """What a second worker gets while the first one stands at a border; `None` without a border."""
    with campaign.ordeal() as ordeal:
        pid = campaign.server.start(msgspec.to_builtins(ordeal.order(border, how=signal.SIGSTOP)))
        if not _stops(pid):
            assert "completed" == campaign.server.wait().how
            return None
        ending = "not tried"
        if not _holds_a_lock(ordeal.folder):
            before = (ordeal.read(), ordeal.folder.effects.read(), ordeal.folder.answers.read())
            second = successor.run(msgspec.to_builtins(ordeal.order()))
            after = (ordeal.read(), ordeal.folder.effects.read(), ordeal.folder.answers.read())
            assert before == after
            ending = "RunInUse" if "RunInUse" in second.detail else second.how
        os.kill(pid, signal.SIGCONT)
        first = campaign.server.wait()
        ordeal.judge()
    assert "completed" == first.how, first.detail
    return ending


def test_f055_of_two_workers_that_start_at_once_exactly_one_makes_progress(
    campaign: Campaign, successor: ForkServer
) -> None:
    """F055: whoever loses the race for the lease has done nothing, ten times over."""
    refused = 0
    for _ in range(10):
        with campaign.ordeal() as ordeal:
            order = msgspec.to_builtins(ordeal.order())
            pids = {campaign.server.start(order), successor.start(order)}
            ends = [campaign.server.wait(), successor.wait()]
            ordeal.judge()
            acted = {effect.pid for effect in ordeal.folder.effects.read()}

        lost = [end for end in ends if end.how == "failed"]
        assert all("RunInUse" in end.detail for end in lost), lost
        assert 1 == len(acted & pids)
        assert not {end.pid for end in lost} & acted
        refused += len(lost)
    assert not campaign.violations, report(campaign.violations)
    assert refused > 0


def _holds_a_lock(folder: Folder) -> bool:
    """Whether the process was stopped in the middle of a commit of another of its threads, or in
    the sink: then nobody can go on beside it, however the leases stand.
    """
    try:
        if not folder.url:
            _write_nothing(folder.path / "runs.db")
        with (folder.path / "effects.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (apsw.BusyError, BlockingIOError):
        return True
    return False


def _write_nothing(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")


def _stops(pid: int) -> bool:
    """Wait until the process stands still; false where it ended instead."""
    until = time.monotonic() + BOUND_SECONDS
    while (state := _state(pid)) not in {"T", "Z", ""}:
        assert time.monotonic() < until, "the worker neither stopped nor ended"
        os.sched_yield()
    return state == "T"


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text[text.rindex(")") + 2]
