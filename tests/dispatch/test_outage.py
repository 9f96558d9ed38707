"""A server that is killed under a worker and comes back."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agentkit.agents import submit
from agentkit.state.checkpoints.adapters import open_store
from agentkit.state.journal.journal import load
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.testing.servers import PostgresServer, RedisServer
from agentkit.tools import tool
from tests.agents.kit import TASK, agent_of, call, calls, then
from tests.dispatch.kit import Told, worker_of, working

RUNS = [f"r{number}" for number in range(3)]
Server = PostgresServer | RedisServer


@contextmanager
def _server(kind: str) -> Iterator[tuple[Server, str]]:
    if kind == "postgres":
        with PostgresServer() as postgres:
            yield postgres, postgres.dsn(postgres.new_database())
    else:
        with RedisServer(appendonly=True, appendfsync="always") as redis:
            yield redis, redis.url


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
async def test_a_worker_outlives_its_store(kind: str) -> None:
    """The server is killed while tools run; it says so once, finds the store again by itself, and
    every run ends with each effect done once, or asked about.
    """
    effects: list[str] = []
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    @tool(side_effecting=False)
    async def look() -> str:
        """Look, for as long as the server is away."""
        effects.append("look")
        begun.release()
        await go_on.wait()
        return "seen"

    told, llm = Told(), then([calls(call("look")), calls(call("look"))])
    with _server(kind) as (server, url):
        store = open_store(url)
        for run in RUNS:
            await submit(store, run, TASK, agent="worker")
        worker = worker_of([agent_of(look)], store, told, llm=llm, concurrency=4)
        async with working(worker):
            for _ in range(3):
                await begun.acquire()
            await _off(server.kill)
            await _waited(told, "outage")
            go_on.set()
            await _off(server.start)
            await _waited(told, "back")
            await _waited(told, "ended", len(RUNS))
        statuses = {run: (await load(store, run)).status for run in RUNS}
        for run in RUNS:
            rows = await read_rows(store, run)
            found = check(Evidence(run=run, rows=rows, head=await store.head(run), output="done"))
            assert not found, report(found)
        await store.aclose()

    assert dict.fromkeys(RUNS, "done") == statuses
    assert 1 == len(told.texts("outage")) == len(told.texts("back"))


async def _off(call: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call)


async def _waited(told: Told, kind: str, count: int = 1) -> None:
    for _ in range(4):  # a server that is away is only given up after a while
        try:
            await told.until(kind, count)
        except TimeoutError:
            continue
        return
    await told.until(kind, count)
