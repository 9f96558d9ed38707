"""Redis: servers that are busy, full, loading, or have forgotten our scripts."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from hashlib import sha1

import msgspec
import pytest
import redis

from agentkit.core.contracts.errors import StoreError, StoreUnreachable
from agentkit.core.contracts.heads import Lease, Row
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters import _redis_links as links
from agentkit.state.checkpoints.adapters._redis_links import Link
from agentkit.state.checkpoints.adapters._redis_options import Lifetimes
from agentkit.testing.servers import RedisServer, ServerFailed
from agentkit.testing.servers.processes import wait_until
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """A new, empty store."""
    store = Store(redis_url)
    yield store
    await store.aclose()


async def grow(store: Store, lease: Lease, first: int, count: int) -> None:
    """Append one entry after the other to run `r`."""
    for seq in range(first, first + count):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())


async def test_a_script_flush_harms_nothing(store: Store, redis_server: RedisServer) -> None:
    """A server that has forgotten the scripts is given them again, in the middle of anything."""
    lease = await started(store, "r")
    for seq in range(2, 12):
        redis_server.ask("SCRIPT", "FLUSH")
        await grow(store, lease, seq, 1)
        assert not store.renew({"r": lease})["r"].lost
        redis_server.ask("SCRIPT", "FLUSH")
        assert seq == len(await store.read("r"))


async def test_a_script_flush_behind_the_reload_harms_nothing(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts that are lost again before they are called are sent whole."""
    store = Store(redis_url, patience_seconds=0.0)
    lease = await started(store, "r")
    load = Link._load
    flushes: list[str] = []

    def forgotten(link: Link) -> None:
        load(link)
        flushes.append(str(redis_server.ask("SCRIPT", "FLUSH")))

    monkeypatch.setattr(Link, "_load", forgotten)
    redis_server.ask("SCRIPT", "FLUSH")

    await grow(store, lease, 2, 1)

    assert ["OK"] == flushes
    assert rows(1, 2) == await store.read("r")
    await store.aclose()


async def test_somebody_elses_endless_script_is_waited_for_and_told(
    redis_server: RedisServer, redis_url: str
) -> None:
    """The server is BUSY: an error in bounded time, nothing half; when it is free, it goes on."""
    store = Store(redis_url, timeout_seconds=1.0, patience_seconds=0.1)
    lease = await started(store, "r")
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "10")
    endless = threading.Thread(target=run_endless_script, args=(redis_url,))
    endless.start()
    wait_until(lambda: is_busy(redis_server), what="the server is busy")

    with pytest.raises(StoreUnreachable, match="somebody's script that does not end"):
        await grow(store, lease, 2, 1)
    redis_server.ask("SCRIPT", "KILL")
    endless.join()
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "5000")
    await grow(store, lease, 2, 1)

    assert rows(1, 2) == await store.read("r")
    await store.aclose()


async def test_a_script_of_ours_that_is_killed_has_done_nothing(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCRIPT KILL ends it before its first write, never after, and says so."""
    store = Store(redis_url, patience_seconds=0.1)
    lease = await started(store, "r")
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "10")
    _, text = links.scripts()["append"]
    slow = text.replace(b"local head = load()\n", b"local head = load()\nwhile true do end\n")
    plain = links.scripts()
    digest = sha1(slow, usedforsecurity=False).hexdigest()
    monkeypatch.setattr(links, "scripts", lambda: plain | {"append": (digest, slow)})
    killer = threading.Thread(target=kill_script, args=(redis_server,))
    killer.start()

    with pytest.raises(StoreUnreachable, match=r"ended our script.*Nothing was written"):
        await grow(store, lease, 2, 1)
    killer.join()
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "5000")
    monkeypatch.undo()

    assert rows(1) == await store.read("r")
    await grow(store, lease, 2, 1)
    await store.aclose()


@pytest.mark.parametrize("seconds", [1e17, -1.0])
async def test_lifetimes_that_redis_does_not_take_are_refused_before_anything_is_written(
    store: Store, redis_url: str, seconds: float
) -> None:
    """Whatever the client lets through: PEXPIRE fails behind the first writes of a script."""
    lease = await started(store, "r")
    broken = Store(redis_url)
    broken._engine.journal._lifetimes = Lifetimes(seconds, seconds, seconds)
    client = redis.Redis.from_url(redis_url)
    head = client.hgetall("agent:checkpoint:{r}")

    refusals = [
        broken.acquire("r", "other", TTL_SECONDS, supersede=lease.epoch),
        broken.append("r", rows(2), after=1, lease=lease, summary=summary("done")),
        broken.delete_run("r"),
    ]
    for refusal in refusals:
        with pytest.raises(StoreError, match="no lifetime, nothing was written"):
            await refusal
    with pytest.raises(StoreError, match="no lifetime, nothing was written"):
        broken.renew({"r": lease})
    claiming = broken._engine.values.claim("", "k", token="t", ttl_seconds=seconds)
    with pytest.raises(StoreError, match="no lifetime, nothing was written"):
        await broken._engine.write(lambda: claiming)

    assert head == client.hgetall("agent:checkpoint:{r}")
    assert 1 == client.llen("agent:log:{r}")
    assert not client.exists("agent:value:{k}")
    await broken.aclose()


def run_endless_script(url: str) -> None:
    """Returns when somebody kills it."""
    with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url) as client:
        client.eval("while true do end", 0)


def is_busy(server: RedisServer) -> bool:
    """Whether a script keeps the server from answering."""
    try:
        server.ask("GET", "x")
    except ServerFailed as error:
        return "BUSY" in str(error)
    return False


def kill_script(server: RedisServer) -> None:
    """End the script that runs, once there is one."""
    wait_until(lambda: is_busy(server), what="our script runs")
    server.ask("SCRIPT", "KILL")


async def test_a_server_that_loads_its_data_is_waited_for() -> None:
    """LOADING is no answer: what is asked meanwhile is asked again, or told if it takes long."""
    settings = {"loading-process-events-interval-bytes": "1024", "rdbcompression": "no"}
    with RedisServer(appendonly=True, appendfsync="always", save="", settings=settings) as server:
        store, hasty = Store(server.url), Store(server.url, patience_seconds=0.0)
        lease = await started(store, "r")
        for at in range(30):
            server.ask("SET", f"filler{at}", "x" * 2048)
        server.ask("BGREWRITEAOF")
        wait_until(
            lambda: server.info("persistence")["aof_rewrite_in_progress"] == "0",
            what="the file is written anew",
        )
        server.kill()
        server._settings["key-load-delay"] = "20000"
        starting = threading.Thread(target=server.start)
        starting.start()
        wait_until(lambda: is_loading(server), what="the server loads")

        with pytest.raises(StoreUnreachable, match="still loading"):
            await hasty.head("r")
        await grow(store, lease, 2, 1)

        starting.join()
        assert rows(1, 2) == await store.read("r")
        await store.aclose()
        await hasty.aclose()


def is_loading(server: RedisServer) -> bool:
    """Whether the server is there and has not read its files yet."""
    try:
        server.ask("GET", "x")
    except ServerFailed as error:
        return "LOADING" in str(error)
    return False


async def test_a_server_without_memory_takes_nothing_half(redis_url: str) -> None:
    """Under `noeviction` an append that does not fit is refused whole; then room is made."""
    with RedisServer(save="", policy="noeviction") as server:
        store = Store(server.url, patience_seconds=0.1)
        lease = await started(store, "r")
        await store.append("old", rows(1), after=0, lease=None, summary=summary())
        head = await store.head("r")
        server.ask("CONFIG", "SET", "maxmemory", "1")

        with pytest.raises(StoreError, match="no memory left") as refused:
            await store.append("r", rows(2, 3), after=1, lease=lease, summary=summary("done"))
        with pytest.raises(StoreError, match="no memory left"):
            await store.acquire("new", "worker", TTL_SECONDS)
        with pytest.raises(StoreError):
            await store.claim_value("key", token="t", ttl_seconds=5)

        assert "Nothing was written" in str(refused.value)
        assert rows(1) == await store.read("r")
        now = await store.head("r")
        assert head is not None
        assert now is not None
        assert (head.seq, head.summary) == (now.seq, now.summary)
        assert await store.head("new") is None
        assert await store.delete_run("old")
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await grow(store, lease, 2, 1)
        await store.aclose()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-ttl"])
async def test_a_server_that_fills_up_takes_each_act_whole_or_not_at_all(policy: str) -> None:
    """Whichever command of a script comes to the limit: entries and head agree after each refusal,
    what was refused is not there, and with room it goes on where it was.
    """
    with RedisServer(save="", policy=policy) as server:
        store = Store(server.url, patience_seconds=0.0)
        leases = {f"r{at}": await started(store, f"r{at}") for at in range(4)}
        seqs = dict.fromkeys(leases, 1)
        refused = 0
        for step in range(200):
            used = int(server.info("memory")["used_memory"])
            server.ask("CONFIG", "SET", "maxmemory", str(used - 45_000 + step * 7919 % 60_000))
            for run, lease in leases.items():
                new = [Row(row.seq, b"x" * 900, row.check) for row in rows(seqs[run] + 1, 2)]
                waits = msgspec.structs.replace(summary("suspended"), due_at=step or None)
                try:
                    await store.append(run, new, after=seqs[run], lease=lease, summary=waits)
                    seqs[run] += 2
                except StoreUnreachable:
                    refused += 1
                assert seqs[run] == server.ask("LLEN", f"agent:log:{{{run}}}")
                assert str(seqs[run]) == server.ask("HGET", f"agent:checkpoint:{{{run}}}", "seq")
        server.ask("CONFIG", "SET", "maxmemory", "0")

        assert refused > 20
        assert sum(seqs.values()) > 50
        for run, lease in leases.items():
            await store.append(
                run, rows(seqs[run] + 1), after=seqs[run], lease=lease, summary=summary()
            )
        await store.aclose()


@pytest.mark.slow
async def test_cuts_and_sleep_under_load_harm_nothing(redis_url: str) -> None:
    """All connections are ended again and again, and the server sleeps for longer than an answer
    may take: each append is in once.
    """
    settings = {"enable-debug-command": "local"}
    with RedisServer(save="", settings=settings) as server:
        store = Store(server.url, timeout_seconds=0.3, patience_seconds=30.0)
        runs = [f"r{at}" for at in range(10)]
        leases = [await started(store, run) for run in runs]
        killed = 0
        for seq in range(2, 32):
            appends = [
                asyncio.ensure_future(
                    store.append(run, rows(seq), after=seq - 1, lease=lease, summary=summary())
                )
                for run, lease in zip(runs, leases, strict=True)
            ]
            await asyncio.sleep(0)
            if seq % 10 == 0:
                sleeping = threading.Thread(target=server.ask, args=("DEBUG", "SLEEP", "0.5"))
                sleeping.start()
                await asyncio.gather(*appends)
                sleeping.join()
            killed += int(str(server.ask("CLIENT", "KILL", "TYPE", "normal")))
            await asyncio.gather(*appends)

        assert killed >= 10
        for run in runs:
            assert rows(1, 31) == await store.read(run)
        await store.aclose()
