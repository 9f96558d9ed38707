"""Redis: the list of due runs while clients get in each other's way between two round trips."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest
import redis

from agentkit.core.contracts.heads import Head, Lease, Summary
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters._redis_journal import Appending
from agentkit.state.checkpoints.adapters._redis_links import Reply
from agentkit.state.checkpoints.adapters._redis_plans import Steps
from tests.state.stores.helpers import TTL_SECONDS, rows, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore
WEEK_MS = 7 * 86_400_000
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


def appending(store: Store, number: int, new: Summary, lease: Lease | None) -> Steps[Head]:
    """Append entry `number` to run `r`, and let go of the lease."""
    what = Appending(rows(number), number - 1, lease, new, release=lease is not None)
    return store._engine.journal.append("", "r", what)


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
    deleting = store._engine.journal.delete("", "r")
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


async def test_a_run_that_is_entered_too_early_is_moved(store: Store, redis_url: str) -> None:
    """A process died before it moved the entry: whoever asks next moves it."""
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    seconds = cast("tuple[int, int]", client.time())[0]
    later = msgspec.structs.replace(NEVER, due_at=(seconds + 1000) * 1000)
    await halted(store, appending(store, 2, later, await begun(store)), "append")

    assert [] == await due(store)
    assert [("\0r", (seconds + 1000) * 1000.0)] == client.zrange(
        "agent:due", 0, -1, withscores=True
    )


async def test_a_damaged_run_keeps_no_worker_from_the_others(store: Store, redis_url: str) -> None:
    """It is left out, and the log tells of it."""
    await begun(store)
    await store.append("s", rows(1), after=0, lease=None, summary=AT_ONCE)
    redis.Redis.from_url(redis_url).hset("agent:checkpoint:{r}", "usage", "garbage")

    assert ["s"] == await due(store)
