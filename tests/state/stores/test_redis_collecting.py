"""Redis: a collection of old runs that is killed anywhere is finished by the next one."""

import asyncio
import signal
from pathlib import Path

import pytest

from agentkit.core.contracts.heads import Lease
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.upkeep import Policy, collect
from tests.state.stores.helpers import child, rows, started, summary
from tests.state.stores.moving import finished

pytestmark = [pytest.mark.redis, pytest.mark.slow]

Store = RedisCheckpointStore
ENDED = ("a", "b", "c", "d")
ALL = Policy(0.0, 0.0)
LATER = 100_000 * 86_400.0

DIES = """
import asyncio, os, signal, sys
from agentkit.state.checkpoints.adapters._redis_links import Link
from tests.state.stores.test_redis_collecting import collected

left = int(sys.argv[2])
receive = Link.receive

def receiving(link):
    global left
    answers = receive(link)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers

Link.receive = receiving
asyncio.run(collected(sys.argv[1]))
"""


async def collected(url: str) -> dict[str, str]:
    """Remove all that has ended; the verdict on each run."""
    store = Store(url)
    found = collect(store, ALL, clock=FakeClock(now=LATER))
    verdicts: dict[str, str] = {one.run: one.verdict async for one in found}
    await store.aclose()
    return verdicts


async def filled(url: str) -> Lease:
    """Runs that have ended, one that waits for a person, and one that somebody is at work on."""
    store = Store(url)
    for run in ENDED:
        await finished(store, run)
    waits = summary("suspended")
    await store.append("waits", rows(1), after=0, lease=None, summary=waits)
    lease = await started(store, "works")
    await store.aclose()
    return lease


async def seen(url: str) -> tuple[list[str], dict[str, bool]]:
    """What is left: runs that are not gone, and whether each is whole; that lists agree with it."""
    store = Store(url)
    listed, _ = await store.list_runs()
    whole = {}
    for run in (*ENDED, "waits", "works"):
        head = await store.head(run)
        if head is not None:
            whole[run] = not head.tombstone
            assert head.seq == len(await store.read(run)) or head.tombstone
    await store.aclose()
    return sorted(one.run for one in listed), whole


@pytest.mark.parametrize("where", ["redis_url", "redis_cluster_url"])
def test_a_collection_that_is_killed_is_finished_by_the_next(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """SIGKILL behind any round trip: each run is whole, a tombstone or gone, lists tell the same,
    and nothing that has not ended is touched.
    """
    url: str = request.getfixturevalue(where)
    lease = asyncio.run(filled(url))
    left = []
    for trips in (4, 9, 13, 13, 13):
        process = child(DIES, url, trips)
        assert -signal.SIGKILL == process.wait(60), process.communicate()
        process.communicate()
        listed, whole = asyncio.run(seen(url))
        assert sorted(whole) == listed
        left.append(sum(whole.values()) + len(whole))

    asyncio.run(collected(url))
    asyncio.run(collected(url))
    listed, whole = asyncio.run(seen(url))

    assert left == sorted(left, reverse=True)
    assert 12 >= left[0] > left[-1] > 4
    assert {"waits": True, "works": True} == whole
    assert ["waits", "works"] == listed
    store = Store(url)
    assert not store.renew({"works": lease})["works"].lost
    asyncio.run(store.aclose())
