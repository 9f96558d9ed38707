"""Redis: lists that lost members are made anew from the heads; they are never silently short."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest
import redis

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters import _redis_rebuild as rebuilding
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_hints import BUILDING_SECONDS
from agentkit.testing.servers import RedisCluster, RedisServer
from tests.state.stores.helpers import TTL_SECONDS, listed, rows, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore
DUE, SCOPES, RUNS, ACME = "agent:due", "agent:scopes", "agent:runs:", "agent:runs:acme"
LISTS = (DUE, SCOPES, RUNS, ACME)
AT_ONCE = msgspec.structs.replace(summary(), due_at=0)
ENDED = msgspec.structs.replace(summary("done"), due_at=None)


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """A new, empty store, whose lists are whole."""
    store = Store(redis_url)
    await store.claimable()
    yield store
    await store.aclose()


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    """Somebody else's client."""
    return redis.Redis.from_url(redis_url, decode_responses=True)


async def filled(store: Store, *names: str) -> None:
    """Give each scope these runs, which are due, and one that has ended."""
    for scope in (Scope(), Scope("acme")):
        one = store.scoped(scope)
        for run in names:
            await one.append(run, rows(1), after=0, lease=None, summary=AT_ONCE)
        await one.append("z", rows(1), after=0, lease=None, summary=ENDED)


async def seen(store: Store) -> dict[str, list[str]]:
    """What the lists show."""
    acme = store.scoped(Scope("acme"))
    return {
        DUE: sorted(f"{one.scope}/{one.run}" for one in await store.claimable()),
        SCOPES: await store.scopes(),
        RUNS: [one.run for one in (await store.list_runs())[0]],
        ACME: [one.run for one in (await acme.list_runs())[0]],
    }


EVERYTHING = {
    DUE: ["/s", "/{q}:r%", "acme/s", "acme/{q}:r%"],
    SCOPES: ["", "acme"],
    RUNS: ["s", "z", "{q}:r%"],
    ACME: ["s", "z", "{q}:r%"],
}
NAMES = ("s", "{q}:r%")


@pytest.mark.parametrize("lost", [*LISTS, "all"])
async def test_a_list_that_was_thrown_out_is_made_anew(
    store: Store, client: redis.Redis, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    """Whichever it was: everybody finds all runs, of all scopes, and it is logged."""
    await filled(store, *NAMES)
    await seen(store)
    client.delete(*(LISTS if lost == "all" else [lost]))

    with caplog.at_level(logging.WARNING, "agentkit.state"):
        found = await seen(store)

    assert EVERYTHING == found
    assert ["a list of runs may lack some: all are made anew from the heads"] == [
        record.message for record in caplog.records
    ]


@pytest.mark.parametrize("lost", LISTS)
async def test_a_list_that_somebody_entered_again_is_not_taken_for_whole(
    store: Store, client: redis.Redis, lost: str
) -> None:
    """What began after a list was thrown out is in it, and what was there before is not."""
    await filled(store, NAMES[0])
    client.delete(lost)
    for scope in (Scope(), Scope("acme")):
        one = store.scoped(scope)
        await one.append(NAMES[1], rows(1), after=0, lease=None, summary=AT_ONCE)

    assert EVERYTHING == await seen(store)


async def test_a_list_of_another_life_of_the_server_is_made_anew() -> None:
    """A server that was started on what it had written before: of its lists nothing is believed."""
    with RedisServer(appendonly=True, appendfsync="always") as server:
        store = Store(server.url, timeout_seconds=1.0)
        await filled(store, NAMES[0])
        await seen(store)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            kept = {key: listed(client, key) for key in LISTS}
            await filled(store, NAMES[1])
            for key, members in kept.items():
                for member in set(listed(client, key)) - set(members):
                    client.zrem(key, member)
        short = await store.list_runs()
        server.kill()
        server.start()

        assert NAMES[1] not in [one.run for one in short[0]]
        assert EVERYTHING == await seen(store)
        await store.aclose()


async def test_the_first_look_at_a_store_warns_of_nothing(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lists were never seen whole, which is no news."""
    store = Store(redis_url)
    await filled(store, *NAMES)

    with caplog.at_level(logging.WARNING, "agentkit.state"):
        found = await seen(store)

    assert EVERYTHING == found
    assert [] == caplog.records
    await store.aclose()


async def test_new_scopes_and_unknown_ones_cost_no_search(
    store: Store, client: redis.Redis
) -> None:
    """Where the scopes are known, one that is not among them has no runs, and its first run begins
    a list that is whole.
    """
    await filled(store, *NAMES)
    client.config_resetstat()
    found = await seen(store)
    unknown = await store.scoped(Scope("nobody")).list_runs()

    assert EVERYTHING == found
    assert ([], "") == unknown
    assert not client.exists("agent:runs:nobody")
    assert "cmdstat_scan" not in cast("dict[str, object]", client.info("commandstats"))


async def test_many_who_find_a_list_gone_make_it_anew_once(
    store: Store, redis_url: str, client: redis.Redis
) -> None:
    """One does it, the others wait for it."""
    await filled(store, *NAMES)
    client.delete(DUE)
    client.config_resetstat()
    others = [Store(redis_url) for _ in range(6)]

    found = await asyncio.gather(*(one.claimable() for one in others))

    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    assert [4] * 6 == [len(one) for one in found]
    assert 1 == stats["cmdstat_scan"]["calls"]
    for one in others:
        await one.aclose()


async def test_whoever_died_while_making_lists_is_replaced(
    redis_url: str, client: redis.Redis
) -> None:
    """After a while without a sign; until then nobody is told less than there is."""
    clock = FakeClock()
    store = Store(redis_url, clock=clock)
    await filled(store, *NAMES)
    index, due = store._engine.index, store._engine.due
    dead = rebuilding._Attempt(store._engine, index, due, stem="agent:checkpoint:{")
    await store._engine.read(dead._begin)
    clock.advance(BUILDING_SECONDS)

    assert EVERYTHING == await seen(store)
    await store.aclose()


async def test_lists_that_are_not_made_in_time_are_refused(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is at it and does not come to an end: an error, not an empty list."""
    store = Store(redis_url)
    await filled(store, *NAMES)
    index, due = store._engine.index, store._engine.due
    busy = rebuilding._Attempt(store._engine, index, due, stem="agent:checkpoint:{")
    await store._engine.read(busy._begin)
    monkeypatch.setattr(rebuilding, "BUILDING_SECONDS", 0.1)

    with pytest.raises(StoreUnreachable, match=r"may lack some.*another process is at it"):
        await store.claimable()
    await store.aclose()


@pytest.mark.parametrize("times", [1, 100])
async def test_a_list_that_goes_while_it_is_made_is_begun_again(
    store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """What had been entered went with it. Where that does not end, it is an error."""
    await filled(store, *NAMES)
    client.delete(RUNS)
    enter_all = rebuilding._Attempt._enter_all
    thrown: list[object] = []

    async def thrown_out(attempt: rebuilding._Attempt, place: None) -> bool:
        done = await enter_all(attempt, place)
        if len(thrown) < times:
            thrown.append(client.delete(RUNS))
        return done

    monkeypatch.setattr(rebuilding._Attempt, "_enter_all", thrown_out)
    if times == 1:
        assert EVERYTHING == await seen(store)
    else:
        with pytest.raises(StoreUnreachable, match="maxmemory-policy"):
            await store.list_runs()


async def test_many_heads_are_gone_through_in_pages(
    store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than fit in one, beside keys of others."""
    monkeypatch.setattr(rebuilding, "_KEYS", 20)
    names = [f"r{number:03}" for number in range(130)]
    for number in range(300):
        client.set(f"theirs:{number}", "x")
    for scope in ("", *(f"t{number:02}" for number in range(30))):
        one = store.scoped(Scope(scope))
        for run in names if not scope else names[:1]:
            await one.append(run, rows(1), after=0, lease=None, summary=AT_ONCE)
    client.delete(DUE, RUNS, SCOPES, "agent:runs:t07")

    assert 160 == await store.rebuild_lists()
    assert names == [one.run for one in (await store.list_runs(limit=1000))[0]]
    assert 160 == len(await store.claimable(limit=1000))
    assert 31 == len(await store.scopes())
    assert 1 == len((await store.scoped(Scope("t07")).list_runs())[0])


async def test_a_run_that_begins_while_lists_are_made_is_in_them(
    store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a scope that nobody knew before."""
    await filled(store, *NAMES)
    client.delete(*LISTS)
    enter_all = rebuilding._Attempt._enter_all

    async def begun(attempt: rebuilding._Attempt, place: None) -> bool:
        done = await enter_all(attempt, place)
        await store.append("new", rows(1), after=0, lease=None, summary=AT_ONCE)
        new = store.scoped(Scope("new"))
        await new.append("new", rows(1), after=0, lease=None, summary=AT_ONCE)
        return done

    monkeypatch.setattr(rebuilding._Attempt, "_enter_all", begun)
    found = await seen(store)
    monkeypatch.undo()
    new = await store.scoped(Scope("new")).list_runs()

    assert ["new", *EVERYTHING[RUNS]] == sorted(found[RUNS])
    assert ["", "acme", "new"] == found[SCOPES]
    assert 6 == len(found[DUE])
    assert ["new"] == [one.run for one in new[0]]


@pytest.mark.slow
async def test_a_node_of_a_cluster_that_comes_back_empty_takes_no_run_from_the_lists() -> None:
    """A kill -9 of the node that has a list, with the default settings: the runs of the other
    nodes are whole, and are listed, counted and given to workers.
    """
    with RedisCluster() as cluster:
        store = Store(cluster.url)
        names = [f"r{number}" for number in range(30)]
        for run in names:
            lease = await store.acquire(run, "w", TTL_SECONDS)
            await store.append(run, rows(1), after=0, lease=lease, summary=AT_ONCE, release=True)
        assert 30 == len(await store.claimable())
        for key in (DUE, RUNS):
            node = cluster.node_of(key)
            heads = {run: run_keys("agent", "", run).head for run in names}
            names = [run for run in names if cluster.node_of(heads[run]) is not node]
            node.kill()
            node.start()
            cluster.wait_until_ok()

            assert 0 < len(names) < 30
            assert sorted(names) == sorted(one.run for one in await store.claimable())
            assert sorted(names) == sorted(one.run for one in (await store.list_runs())[0])
            assert [""] == await store.scopes()
        await store.aclose()
