"""Redis: the list of due runs while clients get in each other's way between two round trips."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest
import redis

from agentkit.core.contracts.errors import HeadMoved
from agentkit.core.contracts.heads import Head, Lease, Summary
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters._redis_hints import DOUBT_SECONDS
from agentkit.state.checkpoints.adapters._redis_journal import Appending
from agentkit.state.checkpoints.adapters._redis_links import Reply
from agentkit.state.checkpoints.adapters._redis_plans import Steps
from tests.state.stores.helpers import TTL_SECONDS, child, listed, rows, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore
WEEK_MS = 7 * 86_400_000
DUE, HELD = "agent:due", "agent:held:{agent:due}"
NEVER = msgspec.structs.replace(summary("suspended"), due_at=None)
AT_ONCE = msgspec.structs.replace(summary(), due_at=0)
ENDED = msgspec.structs.replace(summary("done"), due_at=None)


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """A new, empty store."""
    store = Store(redis_url)
    yield store
    await store.aclose()


@pytest.fixture
async def other(redis_url: str) -> AsyncIterator[Store]:
    """The same store as another process has it."""
    store = Store(redis_url)
    yield store
    await store.aclose()


@pytest.fixture
def clock() -> FakeClock:
    """What leases and doubts are judged by in `timed`."""
    return FakeClock()


@pytest.fixture
async def timed(redis_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    """The same store, by the clock of the test."""
    store = Store(redis_url, clock=clock)
    yield store
    await store.aclose()


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    """Somebody else's client."""
    return redis.Redis.from_url(redis_url, decode_responses=True)


def appending(store: Store, number: int, new: Summary, lease: Lease | None) -> Steps[Head]:
    """Append entry `number` to run `r`, and let go of the lease."""
    what = Appending(rows(number), number - 1, lease, new, release=lease is not None)
    return store._engine.journal.append("", "r", what)


async def advanced(store: Store, steps: Steps[Any], replies: Sequence[Reply]) -> None:
    """Take one more step of an operation, and no other."""

    def one() -> Steps[None]:
        yield steps.send(replies)

    await store._engine.write(one)


async def halted(store: Store, steps: Steps[Any], behind: str) -> Sequence[Reply]:
    """Take the steps of an operation up to the one named; returns its replies."""

    def some() -> Steps[Sequence[Reply]]:
        calls = next(steps)
        while True:
            replies = yield calls
            if any(call.name == behind for call in calls):
                return replies
            calls = steps.send(replies)

    return await store._engine.write(some)


async def go_on(store: Store, steps: Steps[Any], replies: Sequence[Reply]) -> None:
    """Take the steps that are left."""

    def others() -> Steps[None]:
        with contextlib.suppress(StopIteration):
            calls = steps.send(replies)
            while True:
                calls = steps.send((yield calls))

    await store._engine.write(others)


async def due(store: Store) -> list[str]:
    """Runs that want a worker."""
    return [one.run for one in await store.claimable()]


async def begun(store: Store) -> Lease:
    """Run `r` has one entry and is held."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    await store.append("r", rows(1), after=0, lease=lease, summary=AT_ONCE)
    return lease


@pytest.mark.parametrize("until", [None, WEEK_MS], ids=["a person", "a time"])
async def test_an_answer_is_not_lost_to_the_worker_that_asked(
    store: Store, other: Store, redis_url: str, until: int | None
) -> None:
    """A run is answered while its worker takes it from the list, or moves it to a later time."""
    seconds = cast("tuple[int, int]", redis.Redis.from_url(redis_url).time())[0]
    waits = (
        NEVER if until is None else msgspec.structs.replace(NEVER, due_at=seconds * 1000 + until)
    )
    suspending = appending(store, 2, waits, await begun(store))
    replies = await halted(store, suspending, "append")
    await other.append("r", rows(3), after=2, lease=None, summary=AT_ONCE)

    await go_on(store, suspending, replies)

    assert ["r"] == await due(other)


async def test_a_run_that_is_begun_anew_is_not_lost_to_its_deletion(
    store: Store, other: Store
) -> None:
    """A run id is used again while the old run is taken from the list."""
    lease = await begun(store)
    await store.append("r", rows(2), after=1, lease=lease, summary=ENDED, release=True)
    deleting = store._engine.journal.delete("", "r", token="token")
    replies = await halted(store, deleting, "delete")
    await begun(other)

    await go_on(store, deleting, replies)

    assert ["r"] == await due(other)


async def test_what_was_entered_under_another_lease_is_entered_again(
    store: Store, other: Store
) -> None:
    """A process dies between head and list; another one had taken the run from the list."""
    lease = await begun(store)
    await store.append("r", rows(2), after=1, lease=lease, summary=AT_ONCE, release=True)
    lease = await other.acquire("r", "other", TTL_SECONDS)
    await other.append("r", rows(3), after=2, lease=lease, summary=NEVER, release=True)

    await halted(store, appending(store, 4, AT_ONCE, None), "append")

    assert ["r"] == await due(other)


async def test_a_run_that_is_entered_too_early_is_moved(
    redis_url: str, client: redis.Redis, clock: FakeClock, timed: Store
) -> None:
    """A process died before it moved the entry: whoever asks a minute later moves it."""
    later = msgspec.structs.replace(NEVER, due_at=WEEK_MS + round(clock.now() * 1000))
    await halted(timed, appending(timed, 2, later, await begun(timed)), "append")

    assert [] == await due(timed)
    assert {"\0r": 0.0} == listed(client, DUE)
    clock.advance(DOUBT_SECONDS)
    assert [] == await due(timed)
    assert {"\0r": later.due_at} == listed(client, DUE)


@pytest.mark.parametrize("ago", [None, 10 * DOUBT_SECONDS], ids=["now", "doubted long ago"])
async def test_a_run_is_not_lost_to_who_looks_while_it_is_written(
    clock: FakeClock, timed: Store, ago: float | None
) -> None:
    """Its writer has entered it, somebody finds no head and doubts it, and the writer dies with the
    head written and nothing after it.
    """
    if ago is not None:
        await halted(timed, appending(timed, 1, AT_ONCE, None), "ZADD")
        await due(timed)
        await timed.list_runs()
        clock.advance(ago)
    writing = appending(timed, 1, AT_ONCE, None)
    replies = await halted(timed, writing, "ZADD")
    for _ in range(2):
        assert [] == await due(timed)
        assert ([], "") == await timed.list_runs()
        assert [] == await timed.scopes()
        clock.advance(DOUBT_SECONDS * 0.4)
    await advanced(timed, writing, replies)

    assert ["r"] == await due(timed)
    assert ["r"] == [one.run for one in (await timed.list_runs())[0]]
    assert [""] == await timed.scopes()


async def test_what_is_entered_and_never_written_goes(
    client: redis.Redis, clock: FakeClock, timed: Store
) -> None:
    """Its writer died: a minute after somebody noticed, it is in no list any more."""
    await halted(timed, appending(timed, 1, AT_ONCE, None), "ZADD")
    keys = (DUE, "agent:runs:", "agent:scopes")
    entered = [len(listed(client, key)) for key in keys]
    for _ in range(3):
        await due(timed)
        await timed.list_runs()
        await timed.scopes()
        clock.advance(DOUBT_SECONDS)

    assert [1, 1, 1] == entered
    assert [{}, {}, {}] == [listed(client, key) for key in keys]


async def test_an_answer_that_is_being_written_is_not_lost_to_the_suspension(
    client: redis.Redis, clock: FakeClock, timed: Store
) -> None:
    """A worker suspends a run, dawdles, and takes it from the list while an answer is under way
    that has read what it wrote, and whose writer dies.
    """
    suspending = appending(timed, 2, NEVER, await begun(timed))
    replies = await halted(timed, suspending, "append")
    answering = appending(timed, 3, AT_ONCE, None)
    answers = await halted(timed, answering, "ZADD")
    clock.advance(1)
    assert [] == await due(timed)

    await go_on(timed, suspending, replies)
    await advanced(timed, answering, answers)

    assert ["r"] == await due(timed)


async def test_what_others_changed_is_entered_again_by_the_holder(
    store: Store, other: Store
) -> None:
    """A note made the run wait while its holder, who had entered it, was at work; the holder makes
    it due again, and dies.
    """
    lease = await begun(store)
    await store.append("r", rows(2), after=1, lease=lease, summary=AT_ONCE)
    await other.append("r", rows(3), after=2, lease=None, summary=NEVER)
    with pytest.raises(HeadMoved):
        await store.append("r", rows(3, text="x"), after=2, lease=lease, summary=AT_ONCE)
    new = Appending(rows(4), 3, lease, AT_ONCE, release=True)

    await halted(store, store._engine.journal.append("", "r", new), "append")

    assert ["r"] == await due(other)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["redis_url", "redis_cluster_url"])
def test_a_worker_that_is_killed_between_list_and_head_loses_no_run(
    where: str, request: pytest.FixtureRequest
) -> None:
    """SIGKILL right behind the head's script, while another process looks at all lists."""
    url: str = request.getfixturevalue(where)
    workers = [child(DIES, url, f"r{at}") for at in range(KILLS)]
    for worker in workers:
        said = worker.communicate(timeout=60)
        assert -signal.SIGKILL == worker.returncode, said

    found = asyncio.run(lists(url))

    runs = sorted(f"r{at}" for at in range(KILLS))
    assert (runs, runs, [""]) == found


KILLS = 3
DIES = """
import asyncio, os, signal, sys
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters._redis_hints import DOUBT_SECONDS
from agentkit.state.checkpoints.adapters._redis_journal import Appending
from tests.state.stores.test_redis_due import AT_ONCE, lists
from tests.state.stores.helpers import rows

async def main():
    store = RedisCheckpointStore(sys.argv[1])
    steps = store._engine.journal.append(
        "", sys.argv[2], Appending(rows(1), 0, None, AT_ONCE, release=False)
    )

    def some():
        calls = next(steps)
        while True:
            replies = yield calls
            if any(call.name == "append" for call in calls):
                os.kill(os.getpid(), signal.SIGKILL)
            looking = asyncio.run_coroutine_threadsafe(lists(sys.argv[1]), loop)
            looking.result()
            calls = steps.send(replies)

    loop = asyncio.get_running_loop()
    await store._engine.write(some)

asyncio.run(main())
"""


async def lists(url: str) -> tuple[list[str], list[str], list[str]]:
    """What another process finds to do, and in the lists."""
    store = Store(url)
    found = await due(store)
    listed = [one.run for one in (await store.list_runs())[0]]
    scopes = await store.scopes()
    await store.aclose()
    return sorted(found), sorted(listed), scopes


@pytest.mark.parametrize("agents", [None, ["agent"]])
async def test_runs_that_are_worked_on_cost_a_poll_nothing(
    store: Store, client: redis.Redis, agents: list[str] | None
) -> None:
    """Heads are read of runs that somebody may take, and of as many others as the page has room
    for: not of all that are under way.
    """
    leases = {f"held{at:03}": await store.acquire(f"held{at:03}", "w", 3600) for at in range(300)}
    for run, lease in leases.items():
        await store.append(run, rows(1), after=0, lease=lease, summary=AT_ONCE)
    for run in ("a", "b"):
        await store.append(run, rows(1), after=0, lease=None, summary=AT_ONCE)
    await store.claimable()
    client.config_resetstat()

    found = await store.claimable(agents=agents, limit=10)

    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    assert [("a", False), ("b", False), *((f"held{at:03}", True) for at in range(8))] == [
        (one.run, one.held) for one in found
    ]
    assert stats["cmdstat_evalsha"]["calls"] <= 2 + 2 + 10


async def test_who_holds_a_run_is_noted_anew_with_each_renewal(
    clock: FakeClock, timed: Store, client: redis.Redis
) -> None:
    """What is noted is never past what the head says, and lapsed leases are forgotten."""
    lost = await timed.acquire("lost", "w", 1)
    await timed.append("lost", rows(1), after=0, lease=lost, summary=AT_ONCE)
    lease = await begun(timed)
    clock.advance(TTL_SECONDS / 2)

    timed.renew({"r": lease})

    until_ms = (clock.elapsed() + TTL_SECONDS) * 1000
    assert [("\0r", until_ms)] == client.zrange(HELD, 0, -1, withscores=True)
    assert [("lost", False), ("r", True)] == [
        (one.run, one.held) for one in await timed.claimable()
    ]
    await timed.append("r", rows(2), after=1, lease=lease, summary=AT_ONCE, release=True)
    assert [False, False] == [one.held for one in await timed.claimable()]
    assert [("\0r", 0.0)] == client.zrange(HELD, 0, -1, withscores=True)


async def test_a_damaged_run_keeps_no_worker_from_the_others(store: Store, redis_url: str) -> None:
    """It is left out, and the log tells of it."""
    await begun(store)
    await store.append("s", rows(1), after=0, lease=None, summary=AT_ONCE)
    redis.Redis.from_url(redis_url).hset("agent:checkpoint:{r}", "usage", "garbage")

    assert ["s"] == await due(store)
