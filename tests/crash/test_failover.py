"""A replica takes over under load: runs stop, a person lets them go on, and none takes harm."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import AgentkitError
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.testing.crash.load import Load
from agentkit.testing.lines import JsonLines
from agentkit.testing.servers import RedisSentinel, RedisServer
from agentkit.testing.servers.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(300)]

JOBS = 2


def test_a_failover_under_load_stops_runs_and_doubles_nothing(tmp_path: Path) -> None:
    """Runs that the old master had are stopped wherever they were met; once accepted they finish
    from what the replica has, and runs that begin afterwards are not stopped at all.
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
                accepted = wait_for_all(servers.url, loads, before)
            finally:
                over.set()
            for job in jobs:
                job.result()

    assert [] == [violation for load in loads for violation in load.violations]
    assert accepted > 0
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


def wait_for_all(url: str, loads: list[Load], before: int) -> int:
    """Let stopped runs go on until all workers have finished some; returns how many there were."""
    accepted: set[str] = set()

    def done() -> bool:
        accepted.update(asyncio.run(accept(url)))
        return sum(load.judged for load in loads) > before + 2 * JOBS or any(
            load.violations for load in loads
        )

    wait_until(done, what="all go on", seconds=120)
    return len(accepted)


async def accept(url: str) -> list[str]:
    """Let all runs go on that have not ended, as `agentkit accept-failover --all` does."""
    store = RedisCheckpointStore(url)
    page, _ = await store.list_runs(limit=1000)
    names = [one.run for one in page if one.summary.status not in {"done", "failed", "cancelled"}]
    try:
        return [run for run in names if await store.accept_failover(run)]
    except AgentkitError:
        return []
    finally:
        await store.aclose()


def troubles(base: Path) -> str:
    """What the store has raised to workers up to now."""
    files = base.glob("*/*/troubles.jsonl")
    return " ".join(str(line["error"]) for file in files for line in JsonLines(file).read())
