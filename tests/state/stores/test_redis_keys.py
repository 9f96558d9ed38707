"""Redis: what the keys say, where they are, and how long they stay."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest
import redis

from agentkit.agents.stopping import cancel
from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew, RunExpired, StoreMisused
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_hints import DOUBT_SECONDS
from agentkit.state.checkpoints.adapters.redis import store_of_url
from agentkit.testing.servers.processes import wait_until
from tests.state.stores.helpers import TTL_SECONDS, listed, rows, started, summary
from tests.state.stores.moving import interrupted

pytestmark = pytest.mark.redis

HEAD, LOG, EPOCH = run_keys("agent", "", "r")
DAY = 86_400


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RedisCheckpointStore]:
    """A new, empty store, whose leases go by the server's own clock."""
    store = RedisCheckpointStore(redis_url)
    yield store
    await store.aclose()


@pytest.fixture
def clock() -> FakeClock:
    """What leases and doubts are judged by in `timed`."""
    return FakeClock()


@pytest.fixture
async def timed(redis_url: str, clock: FakeClock) -> AsyncIterator[RedisCheckpointStore]:
    """The same store, by the clock of the test."""
    store = RedisCheckpointStore(redis_url, clock=clock)
    yield store
    await store.aclose()


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    """Somebody else's client."""
    return redis.Redis.from_url(redis_url, decode_responses=True)


async def ended(store: RedisCheckpointStore, run: str = "r") -> None:
    """Give `run` two entries and an end."""
    lease = await started(store, run)
    await store.append(run, rows(2), after=1, lease=lease, summary=summary("done"), release=True)


async def test_the_head_is_readable(store: RedisCheckpointStore, client: redis.Redis) -> None:
    """`redis-cli HGETALL` shows a person where the run is."""
    made = summary(
        "suspended",
        agent="clerk",
        started_at=1_700_000_000_000,
        detail=json.dumps(
            {"task": "Book a flight", "pending": ["pay", "mail"], "completed": 3}
        ).encode(),
    )
    made = msgspec.structs.replace(made, iteration=2, updated_at=1_700_000_060_000)
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    await store.append("r", rows(1), after=0, lease=lease, summary=made)

    shown = cast("dict[str, str]", client.hgetall("agent:checkpoint:{r}"))

    expected = {
        "task": "Book a flight",
        "status": "suspended",
        "step": "2",
        "pending": "pay, mail",
        "completed": "3",
        "agent": "clerk",
        "created": "2023-11-14T22:13:20.000+00:00",
        "updated": "2023-11-14T22:14:20.000+00:00",
        "owner": "worker",
        "seq": "1",
    }
    assert expected == {name: shown[name] for name in expected}


async def test_the_log_is_one_element_an_entry(store: RedisCheckpointStore, redis_url: str) -> None:
    """An element is the checksum and then the bytes, at the place that its number says."""
    await started(store, "r", 3)
    raw = redis.Redis.from_url(redis_url)

    assert [row.check + row.body for row in rows(1, 3)] == raw.lrange("agent:log:{r}", 0, -1)


@pytest.mark.parametrize("run", ["{a}b", "}{", "a:b", "%7B", "a{}", "}", "{", "é{ü}", "x" * 512])
@pytest.mark.parametrize("scope", ["", "t/u", "{t}", "t:u"])
def test_f108_the_keys_of_a_run_are_in_one_slot(scope: str, run: str) -> None:
    """Whatever braces its id and its scope hold."""
    slots = {redis.crc.key_slot(key.encode()) for key in run_keys("agent", scope, run)}

    assert 1 == len(slots)


def test_no_two_runs_have_the_same_keys() -> None:
    """Names are escaped where they could be taken for the borders between them."""
    names = [("", "a:b"), ("a", "b"), ("", "a%3Ab"), ("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c")]

    assert len(names) == len({run_keys("agent", *name) for name in names})


async def test_stores_with_other_prefixes_are_apart(
    store: RedisCheckpointStore, redis_url: str
) -> None:
    """One server serves several of them; deleting in one touches nothing of the other."""
    other = RedisCheckpointStore(redis_url, prefix="other")
    await started(store, "r")

    assert await other.head("r") is None
    assert ([], "") == await other.list_runs()
    assert [] == await other.scopes()
    assert store.location != other.location
    await other.aclose()


@pytest.mark.parametrize("prefix", ["", "a{b}", "a\nb", "agent:runs"])
def test_a_prefix_decides_no_slot_and_is_in_no_other_ones_keys(prefix: str) -> None:
    """One with a brace would put all runs into one slot, and `agent:runs:scopes` would be a list of
    runs to `agent` and one of scopes to `agent:runs`; that is refused.
    """
    with pytest.raises((StoreMisused, ValueError)):
        RedisCheckpointStore("redis://localhost", prefix=prefix)


async def test_f109_an_unfinished_run_stays_for_ever(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """None of its keys has an expiry, however long it waits for a person."""
    lease = await started(store, "r")
    await store.append(
        "r", rows(2), after=1, lease=lease, summary=summary("suspended"), release=True
    )

    assert [-1, -1] == [ttl(client, HEAD), ttl(client, LOG)]


async def test_an_ended_run_loses_its_entries_and_then_its_head(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """By default after one day and after seven."""
    await ended(store)

    assert DAY - 60 < ttl(client, LOG) <= DAY
    assert 7 * DAY - 60 < ttl(client, HEAD) <= 7 * DAY


async def test_the_head_of_an_ended_run_is_its_tombstone(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Once the entries have expired, head and summary still say how it ended."""
    await ended(store)
    client.delete(LOG)

    head = await store.head("r")

    assert head is not None
    assert (True, 2, summary("done")) == (head.tombstone, head.seq, head.summary)
    assert [] == await store.read("r")
    assert ["r"] == [one.run for one in (await store.list_runs())[0]]


async def test_a_run_that_ended_in_doubt_stays_for_ever(
    redis_url: str, client: redis.Redis
) -> None:
    """Its entries alone tell that a call may have taken effect; the head shows of which tool."""
    clock = FakeClock()
    store = RedisCheckpointStore(redis_url, clock=clock)
    await interrupted(store, "r")
    clock.advance(20)

    await cancel(store, "r", clock=clock)

    assert "cancelled" == client.hget(HEAD, "status")
    assert "send" == client.hget(HEAD, "in_doubt")
    assert (-1, -1) == (client.ttl(LOG), client.ttl(HEAD))
    await store.aclose()


async def test_a_lifetime_of_none_in_the_address_is_for_ever(
    redis_url: str, client: redis.Redis
) -> None:
    """As `None` is in Python."""
    ours = "log_ttl_seconds=none&head_ttl_seconds=none&orphan_ttl_seconds=none"
    store = store_of_url(f"{redis_url}?{ours}")

    await ended(store)

    assert (-1, -1) == (client.ttl(LOG), client.ttl(HEAD))
    await store.aclose()


async def test_lifetimes_are_kept_by_the_server(redis_url: str, client: redis.Redis) -> None:
    """An option each; what ends is gone without anybody's doing."""
    store = RedisCheckpointStore(redis_url, log_ttl_seconds=0.05, head_ttl_seconds=0.1)
    await ended(store)

    await gone(client, LOG)
    await gone(client, HEAD)

    assert await store.head("r") is None
    assert ([], "") == await store.list_runs()
    assert [] == await store.scopes()
    await store.aclose()


async def test_f109_an_orphan_is_expired_and_not_started_over(
    redis_url: str, client: redis.Redis
) -> None:
    """With `orphan_ttl_seconds` the entries of a run that nobody works on go; it says so then."""
    store = RedisCheckpointStore(redis_url, orphan_ttl_seconds=0.05)
    lease = await started(store, "r")
    await gone(client, LOG)

    with pytest.raises(RunExpired, match="has expired"):
        await store.read("r")
    with pytest.raises(RunExpired):
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    with pytest.raises(RunExpired):
        await store.append("r", rows(2), after=1, lease=None, summary=summary())
    with pytest.raises(RunExpired):
        await store.acquire("r", "other", TTL_SECONDS, supersede=lease.epoch)
    assert ["r"] == [one.run for one in (await store.list_runs())[0]]
    assert 0 < ttl(client, HEAD) <= 7 * DAY
    await store.aclose()


async def test_f109_a_renewed_run_is_no_orphan(redis_url: str, client: redis.Redis) -> None:
    """A tool that takes longer than `orphan_ttl_seconds` does not lose its run."""
    store = RedisCheckpointStore(redis_url, orphan_ttl_seconds=3600)
    lease = await started(store, "r")
    client.pexpire(LOG, 1000)
    client.pexpire(HEAD, 2000)

    store.renew({"r": lease})

    assert ttl(client, LOG) > 3000
    assert ttl(client, HEAD) > 3600
    await store.aclose()


async def test_a_claim_that_never_began_leaves_nothing_for_ever(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Its head goes by itself; with the first entry it stays."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    claimed = ttl(client, HEAD)
    await store.append("r", rows(1), after=0, lease=lease, summary=summary())

    assert 0 < claimed <= 7 * DAY
    assert -1 == ttl(client, HEAD)


@pytest.mark.parametrize(
    ("log", "head", "orphan"),
    [(0.0, 60.0, None), (60.0, 60.0, None), (1.0, 60.0, 60.0), (None, 60.0, None), (1.0, -1, None)],
)
def test_a_head_outlives_its_entries(
    log: float | None, head: float | None, orphan: float | None
) -> None:
    """Lifetimes under which a run could lose its head first are refused."""
    with pytest.raises(StoreMisused, match="ttl_seconds"):
        RedisCheckpointStore(
            "redis://localhost",
            log_ttl_seconds=log,
            head_ttl_seconds=head,
            orphan_ttl_seconds=orphan,
        )


async def test_entries_without_a_head_are_not_started_over(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """An evicted head is not a run that never was; deleting gives the rest up."""
    await started(store, "r")
    client.delete(HEAD)

    for attempt in (
        store.acquire("r", "other", TTL_SECONDS),
        store.append("r", rows(1), after=0, lease=None, summary=summary()),
        store.read("r"),
        store.head("r"),
    ):
        with pytest.raises(RunExpired, match="head is gone"):
            await attempt
    assert await store.delete_run("r")
    assert 0 == client.exists(HEAD, LOG)


async def test_a_log_that_lost_entries_is_damaged(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Fewer or more elements than the head says are an error with its place, on every way in."""
    lease = await started(store, "r", 3)
    client.ltrim(LOG, 0, 1)

    with pytest.raises(JournalDamaged) as read:
        await store.read("r")
    with pytest.raises(JournalDamaged):
        await store.append("r", rows(4), after=3, lease=lease, summary=summary())

    assert 3 == read.value.seq
    assert {"r": (0, True)} == {
        key: (one.seq, one.lost) for key, one in store.renew({"r": lease}).items()
    }


async def test_i12_a_newer_head_is_refused(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """What a later release wrote is neither read nor written."""
    lease = await started(store, "r")
    client.hset(HEAD, "format", "2")
    before = client.hgetall(HEAD)

    for attempt in (
        store.acquire("r", "other", TTL_SECONDS, supersede=lease.epoch),
        store.append("r", rows(2), after=1, lease=lease, summary=summary()),
        store.read("r"),
        store.head("r"),
        store.delete_run("r"),
        store.list_runs(),
    ):
        with pytest.raises(JournalTooNew, match="Upgrade"):
            await attempt
    assert before == client.hgetall(HEAD)


async def test_a_head_that_is_not_ours_is_damaged(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Fields that no release writes are an error, not a guess."""
    await started(store, "r")
    for field, value in (("status", "sleeping"), ("usage", "[1"), ("started_ms", "soon")):
        before = client.hget(HEAD, field)
        client.hset(HEAD, field, value)
        with pytest.raises(JournalDamaged, match="its head is damaged"):
            await store.head("r")
        client.hset(HEAD, field, str(before))


@pytest.mark.parametrize(
    "harm",
    [{"status": "sleeping"}, {"usage": "[1"}, {"started_ms": "soon"}, {"seq": "x"}, {}],
    ids=["status", "usage", "start", "seq", "another kind"],
)
async def test_a_run_that_cannot_be_read_hides_no_other(
    store: RedisCheckpointStore, client: redis.Redis, harm: dict[str, str]
) -> None:
    """It keeps its place in the list, with nothing that could be taken for true, and is never
    pruned; the scope is listed, and workers are told of the others.
    """
    due = msgspec.structs.replace(summary(), due_at=0)
    for run in ("q", "r", "s"):
        await store.append(run, rows(1), after=0, lease=None, summary=due)
    if harm:
        client.hset(HEAD, mapping=harm)
    else:
        client.delete(HEAD)
        client.set(HEAD, "theirs")

    page, cursor = await store.list_runs(limit=2)
    rest, _ = await store.list_runs(limit=2, cursor=cursor)
    shown = page[1]

    assert ["q", "r", "s"] == [one.run for one in [*page, *rest]]
    assert ("parked", "", b"", 1000) == (
        shown.summary.status,
        shown.summary.agent,
        shown.summary.detail,
        shown.summary.started_at,
    )
    assert [""] == await store.scopes()
    assert ["q", "s"] == [one.run for one in await store.claimable()]
    with pytest.raises((JournalDamaged, StoreMisused)):
        await store.head("r")


async def test_a_damaged_run_alone_keeps_its_scope_listed(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Whoever goes through the scopes comes to it."""
    await store.scoped(Scope("t")).append("r", rows(1), after=0, lease=None, summary=summary())
    client.hset("agent:checkpoint:{t:r}", "usage", "garbage")

    assert ["t"] == await store.scopes()


async def test_a_key_of_another_kind_is_told(
    store: RedisCheckpointStore, client: redis.Redis
) -> None:
    """Somebody else's value under our name is left alone."""
    client.set(HEAD, "theirs")

    with pytest.raises(StoreMisused, match="another prefix"):
        await store.acquire("r", "worker", TTL_SECONDS)

    assert "theirs" == client.get(HEAD)


async def test_epochs_grow_over_a_deletion_though_the_clock_steps_back(redis_url: str) -> None:
    """What is remembered of a deleted run is its epoch, beside its keys and for a while."""
    clock = FakeClock()
    store = RedisCheckpointStore(redis_url, clock=clock)
    first = await store.acquire("r", "worker", 0.001)
    clock.advance(1)
    await store.delete_run("r")
    clock.set_now(0.0)

    second = await store.acquire("r", "worker", TTL_SECONDS)

    assert second.epoch == first.epoch + 1
    client = redis.Redis.from_url(redis_url)
    assert 0 < ttl(client, EPOCH) <= 7 * DAY
    await store.aclose()


async def test_a_list_mends_its_index(
    store: RedisCheckpointStore, client: redis.Redis, clock: FakeClock, timed: RedisCheckpointStore
) -> None:
    """Entries without a run go, wrong starts are set right, and whoever works is entered again."""
    lease = await started(store, "r")
    await started(store, "s")
    await timed.list_runs()
    client.zadd("agent:runs:", {"ghost": -5, "s": -1})
    client.zrem("agent:runs:", "r")
    first = [one.run for one in (await timed.list_runs())[0]]
    await store.acquire("r", "other", TTL_SECONDS, supersede=lease.epoch)
    clock.advance(DOUBT_SECONDS)

    assert ["s"] == first
    assert ["r", "s"] == [one.run for one in (await timed.list_runs())[0]]
    assert {"r": -1000.0, "s": -1000.0} == listed(client, "agent:runs:")


async def test_the_list_of_due_runs_mends_itself(
    store: RedisCheckpointStore, client: redis.Redis, clock: FakeClock, timed: RedisCheckpointStore
) -> None:
    """A run that wants no worker any more goes from it, and so does an entry without a run."""
    due = msgspec.structs.replace(summary(), due_at=0)
    await store.append("r", rows(1), after=0, lease=None, summary=due)
    await store.append("s", rows(1), after=0, lease=None, summary=due)
    client.zadd("agent:due", {"\0ghost": 0})
    entered = client.zrange("agent:due", 0, -1)
    await store.append("r", rows(2), after=1, lease=None, summary=summary("suspended"))
    left = client.zrange("agent:due", 0, -1)

    found = [one.run for one in await timed.claimable()]
    clock.advance(DOUBT_SECONDS)
    again = [one.run for one in await timed.claimable()]

    assert ["\0ghost", "\0r", "\0s"] == entered
    assert ["\0ghost", "\0s"] == left
    assert ["s"] == found == again
    assert ["\0s"] == list(listed(client, "agent:due"))


async def test_one_run_among_many_of_the_same_start_is_not_lost(
    store: RedisCheckpointStore,
) -> None:
    """Pages and filters go through hundreds of runs that began at one time."""
    names = [f"r{number:03}" for number in range(450)]
    await asyncio.gather(
        *(store.append(run, rows(1), after=0, lease=None, summary=summary()) for run in names)
    )
    last = summary(agent="other")
    await store.append("r449", rows(2), after=1, lease=None, summary=last)

    page, cursor = await store.list_runs(limit=300)
    rest, end = await store.list_runs(limit=300, cursor=cursor)
    only, _ = await store.list_runs(agent="other")

    assert names == [one.run for one in [*page, *rest]]
    assert "" == end
    assert ["r449"] == [one.run for one in only]


async def test_a_run_is_moved_whole(store: RedisCheckpointStore) -> None:
    """Ten thousand entries go in one append, and come back in order."""
    head = await store.append("r", rows(1, 10_001), after=0, lease=None, summary=summary())

    assert Head("r", 10_001, rows(10_001)[0].check, summary=summary()) == head
    assert rows(1, 10_001) == await store.read("r", limit=20_000)


async def test_a_checksum_has_its_length(store: RedisCheckpointStore) -> None:
    """Elements are cut at a fixed place, so another length is refused before anything is sent."""
    with pytest.raises(StoreMisused, match="checksum"):
        await store.append("r", [Row(1, b"x", b"short")], after=0, lease=None, summary=summary())

    assert await store.head("r") is None


async def test_scopes_without_runs_are_forgotten(
    client: redis.Redis, clock: FakeClock, timed: RedisCheckpointStore
) -> None:
    """Whoever lists the scopes takes those away that have held none for a while."""
    other = timed.scoped(Scope("t"))
    await other.append("r", rows(1), after=0, lease=None, summary=summary())
    await timed.append("r", rows(1), after=0, lease=None, summary=summary())
    await other.delete_run("r")

    for _ in range(3):
        assert [""] == await timed.scopes()
        clock.advance(DOUBT_SECONDS)
    assert [""] == list(listed(client, "agent:scopes"))


async def test_only_texts_that_can_be_said_are_sent(store: RedisCheckpointStore) -> None:
    """An operation that cannot be encoded fails alone; those beside it do not notice."""
    bad = store.append("bad", rows(1), after=0, lease=None, summary=summary(agent="\ud800"))
    good = [
        store.append(f"r{n}", rows(1), after=0, lease=None, summary=summary()) for n in range(3)
    ]

    outcomes = await asyncio.gather(good[0], bad, *good[1:], return_exceptions=True)

    kinds = [type(outcome) for outcome in outcomes]
    assert [Head, UnicodeEncodeError, Head, Head] == kinds


def ttl(client: redis.Redis, key: str) -> int:
    """Seconds that the key has left; -1 for ever."""
    return cast("int", client.ttl(key))


async def gone(client: redis.Redis, key: str) -> None:
    """Wait until the server has let the key go."""
    wait_until(lambda: not client.exists(key), what=f"{key} is gone")
