"""SIGKILL of workers with several runs in flight: the next one finishes them all."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentkit.core.runtime.context import MAX_RECOVERIES
from agentkit.testing.crash import ForkServer
from tests.dispatch.fleet import HERE, POISON, SLOW, Fleet

RUNS = ("a", "b", "c")
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
REDIS = pytest.param("redis", marks=pytest.mark.redis)
LONG = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Forks workers."""
    with ForkServer(HERE) as server:
        yield server


def _kill_at(fleet: Fleet, number: int) -> bool:
    """A worker that dies at that border, then others until all is done; whether it died."""
    with fleet:
        died = fleet.worker(number).how == "killed"
        fleet.finish()
        fleet.judge()
    return died


@pytest.mark.parametrize("first", range(2, 75, 18))
def test_runs_survive_a_kill_of_their_worker(
    server: ForkServer, tmp_path: Path, first: int
) -> None:
    """At some of the borders; all runs in flight end as undisturbed ones."""
    assert _kill_at(Fleet(tmp_path / "fleet", server), first)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_survive_a_kill_of_their_worker_at_every_border(
    server: ForkServer, tmp_path: Path
) -> None:
    """For n = 1, 2, 3 … until a worker gets through, three runs of two steps at a time."""
    number = missed = 0
    while missed < 2:
        number += 1
        died = _kill_at(Fleet(tmp_path / f"{number}", server, steps=2), number)
        missed = 0 if died else missed + 1

    assert number > 100


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_survive_that_worker_after_worker_is_killed(
    server: ForkServer, tmp_path: Path
) -> None:
    """The second worker, too, dies with the same runs in flight."""
    kills = 0
    for first in range(3, 90, 11):
        for second in range(2, 70, 17):
            fleet = Fleet(tmp_path / f"{first}-{second}", server)
            fleet.worker(first)
            fleet.decide()
            kills += _kill_at(fleet, second)

    assert kills > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", POSTGRES, REDIS])
def test_runs_survive_that_workers_beside_each_other_are_killed_at_random(
    tmp_path: Path, url: str
) -> None:
    """Two at a time, each killed at an instant of its own, again and again; decisions come from
    outside meanwhile.
    """
    dice, kills = random.Random(7), 0  # seeded: it can be repeated
    with ExitStack() as stack:
        servers = [stack.enter_context(ForkServer(HERE, setup={"store": url})) for _ in range(2)]
        for number in range(20):
            runs = [f"{number}-{run}" for run in range(5)]
            with Fleet(tmp_path / f"{number}", servers[0], url=url, runs=runs, steps=2) as fleet:
                for _ in range(2):
                    for one in servers:
                        seconds = dice.uniform(0.02, 0.2)
                        one.start(fleet.job(concurrency=3), kill_after_seconds=seconds)
                    for one in servers:
                        ended = one.wait()
                        fleet.note(ended)
                        kills += ended.how == "killed"
                    fleet.decide()
                fleet.kills = {run: [] for run in runs}  # nobody was there at once after each
                fleet.finish()
                fleet.judge()

    assert kills > 10


@pytest.fixture
def url(request: pytest.FixtureRequest, store: str) -> str:
    """Of an empty store; empty for a SQLite file."""
    if store == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return str(request.getfixturevalue("redis_url")) if store == "redis" else ""


@pytest.mark.parametrize("store", ["sqlite", POSTGRES, REDIS])
@pytest.mark.parametrize("workers", [pytest.param(2, marks=LONG), 3])
def test_workers_share_a_store(tmp_path: Path, url: str, workers: int) -> None:
    """Each of twelve runs is driven by one of them at a time; no effect is doubled or lost."""
    runs = [f"r{number}" for number in range(12)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ForkServer(HERE, setup={"store": url})) for _ in range(workers)
        ]
        fleet = stack.enter_context(
            Fleet(tmp_path / "fleet", servers[0], url=url, runs=runs, steps=2)
        )
        for one in servers:
            one.start(fleet.job(concurrency=3))
        for one in servers:
            fleet.note(one.wait())

        assert {"done"} == set(fleet.statuses().values())
        fleet.judge()
    assert sorted(runs) == sorted(run for _, run in fleet.events("ended"))
    assert [] == fleet.events("failed")


@pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.postgres, LONG]),
        pytest.param("redis", marks=[pytest.mark.redis, LONG]),
    ],
)
def test_a_worker_takes_over_what_a_killed_one_had_while_it_works(tmp_path: Path, url: str) -> None:
    """Two share a store; one is killed in the middle of a tool, and the other needs no restart."""
    runs = [f"r{number}" for number in range(6)]
    with ExitStack() as stack:
        servers = [stack.enter_context(ForkServer(HERE, setup={"store": url})) for _ in range(2)]
        fleet = stack.enter_context(Fleet(tmp_path / "fleet", servers[1], url=url, runs=runs))
        servers[0].start(fleet.job("effect:after", concurrency=2))
        fleet.until_told("claimed")
        pid = servers[1].start(fleet.job(concurrency=2, until="signal"))
        fleet.note(servers[0].wait())
        fleet.until_ended()
        os.kill(pid, signal.SIGTERM)
        fleet.note(servers[1].wait())

        assert any(fleet.kills.values())
        fleet.judge()


def test_f066_a_worker_that_is_told_to_stop_leaves_its_runs_to_the_next_one(
    server: ForkServer, tmp_path: Path
) -> None:
    """SIGTERM in the middle of it all: it ends by itself, holds nothing any more, and neither an
    attempt nor a recovery is counted.
    """
    with Fleet(tmp_path / "fleet", server, steps=3) as fleet:
        pid = server.start(fleet.job(until="signal"))
        fleet.until_told("claimed")
        os.kill(pid, signal.SIGTERM)
        ended = server.wait()
        fleet.note(ended)
        held = [fleet.head(run).owner for run in RUNS]
        fleet.finish()

        assert "completed" == ended.how
        assert ["", "", ""] == held
        fleet.judge()
        assert [0, 0, 0] == [fleet.state(run).takeovers for run in RUNS]


def test_f068_a_run_that_kills_its_workers_is_parked_and_stops_no_other(
    server: ForkServer, tmp_path: Path
) -> None:
    """A supervisor starts the next worker at once. After so many deaths the run is parked, which is
    told once; the runs beside it end, though none of them gets any further in the time that it
    takes to die, and later workers let it be.
    """
    runs = [f"{SLOW}-a", f"{SLOW}-b", f"{SLOW}-c"]
    with Fleet(tmp_path / "fleet", server, runs=[POISON, *runs]) as fleet:
        ends = []
        for _ in range(4 * MAX_RECOVERIES):
            ends.append(fleet.worker().how)
            fleet.decide()
        statuses = fleet.statuses()
        fleet.runs = runs

        assert 1 + MAX_RECOVERIES == ends.count("killed")
        assert {POISON: "parked"} | dict.fromkeys(runs, "done") == statuses
        assert [("parked", POISON)] == fleet.events("parked")
        fleet.judge()
