"""A replica takes over under load: runs stop, a person lets them go on, and none takes harm."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.testing.crash.load import Load
from agentkit.testing.lines import JsonLines
from agentkit.testing.servers import RedisSentinel, RedisServer
from agentkit.testing.servers.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(300)]

JOBS = 2


def test_a_failover_under_load_stops_runs_and_doubles_nothing(tmp_path: Path) -> None:
    """Runs that the old master had are stopped wherever they were met; once accepted they finish
    from what the replica has.
    """
    with RedisSentinel(appendonly=True, appendfsync="always", down_after_ms=500) as servers:
        over = threading.Event()
        loads = [Load(tmp_path / f"job{at}", servers.url) for at in range(JOBS)]
        with ThreadPoolExecutor(JOBS) as pool:
            jobs = [pool.submit(load.run, over) for load in loads]
            try:
                wait_until(lambda: all(load.judged for load in loads), what="the first runs end")
                before = sum(load.judged for load in loads)
                wait_until(lambda: under_way(servers.master), what="runs get on")
                servers.lose_master()
                servers.wait_for_failover()
                wait_until(lambda: "StoreFailedOver" in troubles(tmp_path), what="runs are stopped")
            finally:
                over.set()
                accepted: set[str] = set()
                wait_until(
                    lambda: have_ended(jobs, servers.url, tmp_path, accepted), what="all runs end"
                )

    assert [] == [violation for load in loads for violation in load.violations]
    assert accepted
    assert sum(load.judged for load in loads) > before


def under_way(server: RedisServer) -> bool:
    """Whether some runs have begun and not ended."""
    return server.ask("EVAL", COUNT_RUNNING, "0") in {3, 4, 5, 6}


COUNT_RUNNING = """
local running = 0
for _, key in ipairs(redis.call('KEYS', 'agent:checkpoint:*')) do
  if redis.call('HGET', key, 'status') == 'running' then running = running + 1 end
end
return running
"""


def have_ended(jobs: list[Future[None]], url: str, base: Path, accepted: set[str]) -> bool:
    """Whether all workers have; runs that are stopped are let go on."""
    if all(job.done() for job in jobs):
        return True
    runs = [f"{path.parent.name}-{path.name}" for path in base.glob("job*/run*")]
    accepted.update(asyncio.run(accept(url, runs)))
    return False


async def accept(url: str, runs: list[str]) -> list[str]:
    """Let the runs that are under way go on, by their ids: where the replica lacks the first entry
    of a run that had been claimed, it is in no list.
    """
    store = RedisCheckpointStore(url)
    found = [run for run in runs if await store.accept_failover(run)]
    await store.aclose()
    return found


def troubles(base: Path) -> str:
    """What the store has raised to workers up to now."""
    files = base.glob("*/*/troubles.jsonl")
    return " ".join(str(line["error"]) for file in files for line in JsonLines(file).read())
