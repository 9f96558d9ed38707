"""Redis: servers that are slow, full, deaf, forgetful or not the right ones."""

import asyncio
import gc
import os
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest
import redis

from agentkit.core.contracts.errors import (
    MissingExtra,
    StoreError,
    StoreMisused,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Lease, Row
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters import _redis_errors as redis_errors
from agentkit.state.checkpoints.adapters._redis_states import ServerState
from agentkit.testing.servers import (
    HoldAnswer,
    LoseAnswer,
    LoseRequest,
    Proxy,
    RedisServer,
)
from agentkit.testing.servers.processes import wait_until
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """In front of an empty Redis."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[Store]:
    """A store behind the proxy, with little patience."""
    store = Store(f"redis://127.0.0.1:{proxy.port}/0", timeout_seconds=1.0, patience_seconds=5.0)
    yield store
    await store.aclose()


async def grow(store: Store, lease: Lease, first: int, count: int) -> None:
    """Append one entry after the other to run `r`."""
    for seq in range(first, first + count):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())


@pytest.mark.parametrize("fault", [LoseAnswer, LoseRequest])
async def test_an_append_whose_answer_was_cut_is_in_once(
    store: Store, proxy: Proxy, fault: type[LoseAnswer | LoseRequest]
) -> None:
    """Whether the script ran or not: it is sent again, and found there or run then."""
    lease = await started(store, "r")
    for seq in range(2, 22):
        proxy.fail_next(fault(request=b"EVALSHA"))
        head = await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
        assert seq == head.seq

    assert 20 == proxy.struck[fault.__name__]
    assert rows(1, 21) == await store.read("r")


async def test_a_claim_whose_answer_was_cut_is_ours(store: Store, proxy: Proxy) -> None:
    """It is one claim, not a claim and a refusal by ourselves; a stranger's claim stays one."""
    await started(store, "warm")
    proxy.fail_next(LoseAnswer(request=b"EVALSHA"))

    lease = await store.acquire("r", "worker", TTL_SECONDS)

    assert 1 == proxy.struck["LoseAnswer"]
    assert (0, False) == (lease.head.recoveries, lease.took_over)
    await store.append("r", rows(1), after=0, lease=lease, summary=summary())


@pytest.mark.parametrize("fault", [LoseAnswer, LoseRequest])
async def test_a_deletion_whose_answer_was_cut_says_that_it_was_done(
    store: Store, proxy: Proxy, fault: type[LoseAnswer | LoseRequest]
) -> None:
    """Entombing and deleting tell who asked that it was they; who asks again did nothing."""
    lease = await started(store, "r")
    end = summary("done")
    await store.append("r", rows(2), after=1, lease=lease, summary=end, release=True)
    outcomes = []
    for _ in range(2):
        proxy.fail_next(fault(request=b"EVALSHA"))
        outcomes.append(await store.entomb("r", updated_at=end.updated_at))
    for _ in range(2):
        proxy.fail_next(fault(request=b"EVALSHA"))
        outcomes.append(await store.delete_run("r"))

    assert [True, False, True, False] == outcomes
    assert 4 == proxy.struck[fault.__name__]


async def test_a_repeated_deletion_spares_the_run_that_was_begun_since(redis_url: str) -> None:
    """Its answer was lost, and the id is in use again: the repetition says what the first did."""
    store = Store(redis_url)
    journal = store._engine.journal
    await store.append("r", rows(1), after=0, lease=None, summary=summary("done"))
    first = await store._engine.write(lambda: journal.delete("", "r", token="a"))
    await store.append("r", rows(1), after=0, lease=None, summary=summary("done"))

    again = await store._engine.write(lambda: journal.delete("", "r", token="a"))

    assert (True, True) == (first, again)
    assert rows(1) == await store.read("r")
    await store.aclose()


async def test_concurrent_appends_survive_a_cut(store: Store, proxy: Proxy) -> None:
    """A group that shares its round trip is repeated whole, and each is in once."""
    leases = [await started(store, f"r{n}") for n in range(20)]
    for seq in (2, 3, 4):
        proxy.fail_next(LoseAnswer(request=b"EVALSHA"))
        await asyncio.gather(
            *(
                store.append(lease.run, rows(seq), after=seq - 1, lease=lease, summary=summary())
                for lease in leases
            )
        )

    assert 3 == proxy.struck["LoseAnswer"]
    for lease in leases:
        assert rows(1, 4) == await store.read(lease.run)


async def test_idle_connections_that_were_cut_are_made_anew(store: Store, proxy: Proxy) -> None:
    """While a model thinks, a firewall forgets us; nobody notices but the store."""
    lease = await started(store, "r")
    store.renew({"r": lease})
    proxy.cut()

    await grow(store, lease, 2, 1)
    assert not store.renew({"r": lease})["r"].lost
    assert rows(1, 2) == await store.read("r")


async def test_i16_silence_is_a_bounded_error(proxy: Proxy) -> None:
    """A connection that takes everything and answers nothing costs a stated time, no more."""
    store = Store(f"redis://127.0.0.1:{proxy.port}/0", timeout_seconds=0.3, patience_seconds=0.3)
    lease = await started(store, "r")
    proxy.fall_silent()
    clock = SystemClock()
    began = clock.elapsed()

    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    with pytest.raises(StoreUnreachable):
        store.renew({"r": lease})

    assert clock.elapsed() - began < 30
    proxy.pass_on()
    await grow(store, lease, 2, 1)
    await store.aclose()


async def test_a_line_that_is_slow_with_many_bytes_is_not_silent(
    redis_server: RedisServer,
    redis_url: str,
) -> None:
    """Each part of what is sent has its time, not all of it together."""
    parts: list[int] = []

    class Line(redis.connection.Connection):
        """Notes what is given to the system at once."""

        def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
            parts.extend(map(len, command))
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    pool = redis.ConnectionPool(Line, host="127.0.0.1", port=redis_server.port)
    store = Store(redis.Redis(connection_pool=pool))
    lease = await started(store, "r")

    big = Row(2, b"x" * 1_000_000, rows(2)[0].check)
    await store.append("r", [big], after=1, lease=lease, summary=summary())
    read = await store.read("r", after=1)
    await store.aclose()

    assert [big] == read
    assert max(parts) <= 65_536


async def test_an_answer_that_is_held_back_is_asked_for_again(store: Store, proxy: Proxy) -> None:
    """After the time of one answer, on a new connection."""
    lease = await started(store, "r")
    proxy.fail_next(HoldAnswer(request=b"EVALSHA"))

    await grow(store, lease, 2, 1)

    assert 1 == proxy.struck["HoldAnswer"]
    assert rows(1, 2) == await store.read("r")


async def test_a_restart_is_waited_for(tmp_path: object) -> None:
    """A server that is gone and comes back within the patience of the store is no error."""
    with RedisServer(appendonly=True, appendfsync="always") as server:
        store = Store(server.url, patience_seconds=60.0)
        lease = await started(store, "r")
        server.kill()
        restart = threading.Thread(target=server.start)
        append = asyncio.ensure_future(grow(store, lease, 2, 1))
        await asyncio.sleep(0)
        restart.start()

        await append

        restart.join()
        assert rows(1, 2) == await store.read("r")
        await store.aclose()


async def test_a_replica_is_not_written(redis_url: str) -> None:
    """It is named for what it is, also where it became one under an open connection."""
    with (
        RedisServer(save="") as master,
        RedisServer(save="", settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        store = Store(replica.url, patience_seconds=0.1)
        with pytest.raises(StoreUnreachable, match="it is a replica"):
            await started(store, "r")
        replica.ask("REPLICAOF", "NO", "ONE")
        lease = await started(store, "r")
        master.kill()  # or the replica would be emptied to be made like it
        replica.ask("REPLICAOF", "127.0.0.1", str(master.port))
        with pytest.raises(StoreUnreachable, match="it is a replica"):
            await store.append("r", rows(2), after=1, lease=lease, summary=summary())
        await store.aclose()


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [("min-replicas-to-write", "3", "fewer replicas"), ("requirepass", "hunter2", "password")],
)
async def test_a_server_that_refuses_is_quoted(setting: str, value: str, says: str) -> None:
    """With what to do about it."""
    with RedisServer(save="") as server:
        server.ask("CONFIG", "SET", setting, value)
        store = Store(server.url, patience_seconds=0.1)

        with pytest.raises(StoreUnreachable, match=says):
            await started(store, "r")
        await store.aclose()


async def test_f118_no_error_shows_a_password() -> None:
    """Neither the one that was refused nor the one that was given is in message or location."""
    with RedisServer(save="") as server:
        server.ask("CONFIG", "SET", "requirepass", "swordfish")
        for user in ("", "default", "nobody"):
            url = f"redis://{user}:hunter2@127.0.0.1:{server.port}/0?password=hunter2"
            store = Store(url, patience_seconds=0.1)
            with pytest.raises(StoreUnreachable) as refused:
                await started(store, "r")
            said = "".join(traceback.format_exception(refused.value)) + store.location + repr(store)
            assert "hunter2" not in said.replace(url, "")
            await store.aclose()
        store = Store(f"redis://:swordfish@127.0.0.1:{server.port}/0")
        await started(store, "r")
        assert f"redis://127.0.0.1:{server.port}/0?prefix=agent" == store.location
        await store.aclose()


async def test_a_user_that_may_not_ask_for_settings_is_served() -> None:
    """Managed services forbid CONFIG; then it is not known what the server keeps."""
    with RedisServer(save="") as server:
        server.ask("ACL", "SETUSER", "app", "on", ">pass", "~agent:*", "+@all", "-config")
        store = Store(f"redis://app:pass@127.0.0.1:{server.port}/0")
        await started(store, "r")

        (known,) = await store.durability()

        assert (None, None) == (known.keeps_entries, known.keeps_runs)
        await store.aclose()


async def test_a_user_without_the_keys_is_told() -> None:
    """A permission that is missing is named as one."""
    with RedisServer(save="") as server:
        server.ask("ACL", "SETUSER", "app", "on", ">pass", "~other:*", "+@all")
        store = Store(f"redis://app:pass@127.0.0.1:{server.port}/0", patience_seconds=0.1)

        with pytest.raises(StoreUnreachable, match="this user may not do that"):
            await started(store, "r")
        await store.aclose()


@pytest.mark.parametrize(
    ("settings", "safe", "says"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, True, ""),
        ({"appendonly": "yes", "appendfsync": "everysec"}, False, "appendfsync is everysec"),
        ({"appendonly": "no", "appendfsync": "always"}, False, "appendonly is no"),
        (
            {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "yes"},
            False,
            "no-appendfsync-on-rewrite is yes",
        ),
    ],
)
async def test_what_a_server_keeps_is_told(settings: dict[str, str], safe: bool, says: str) -> None:
    """By `durability`, and `strict` refuses what may lose entries."""
    with RedisServer(save="", settings=settings) as server:
        store, strict = Store(server.url), Store(server.url, strict=True, patience_seconds=0.1)
        (known,) = await store.durability()

        assert safe is known.keeps_entries
        assert known.keeps_runs
        if safe:
            await started(strict, "r")
        else:
            with pytest.raises(StoreUnreachable, match=says):
                await started(strict, "r")
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreUnreachable, match="maxmemory-policy is allkeys-lru"):
            await started(Store(server.url, strict=True, patience_seconds=0.1), "s")
        await store.aclose()
        await strict.aclose()


def test_an_old_server_is_refused() -> None:
    """Before anything is written, with the version that is needed."""
    with pytest.raises(StoreError, match=r"version 6\.0\.16; a store needs 6\.2 or later"):
        ServerState(version="6.0.16").check("host:1")
    ServerState(version="6.2.0").check("host:1")
    ServerState(version="10.0").check("host:1")
    ServerState().check("host:1")


def test_a_client_of_an_event_loop_is_refused() -> None:
    """It would serve one loop; the error says what to give instead."""
    with pytest.raises(StoreMisused, match="bound to one event loop"):
        Store(redis.asyncio.Redis())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(StoreMisused, match=r"not a builtins\.int"):
        Store(5)  # type: ignore[arg-type]  # on purpose


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it; an old one too."""
    redis_errors.driver.cache_clear()
    monkeypatch.setattr(redis, "__version__", "4.6.0")
    with pytest.raises(MissingExtra, match="too old"):
        Store("redis://localhost")
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"arc-agentkit\[redis\]"):
        Store("redis://localhost")
    redis_errors.driver.cache_clear()


async def test_a_client_of_the_user_lends_its_settings(redis_url: str) -> None:
    """Its own retries, decoding and pool do not reach the store."""
    pool = redis.ConnectionPool.from_url(redis_url, decode_responses=True, max_connections=1)
    client = redis.Redis(connection_pool=pool)
    store = Store(client)
    lease = await started(store, "r")
    await grow(store, lease, 2, 3)

    assert rows(1, 4) == await store.read("r")
    assert Store(redis_url).location == store.location
    assert 0 == len(cast("list[object]", pool._available_connections))
    await store.aclose()


async def test_a_socket_in_the_file_system_will_do() -> None:
    """`redis+unix:///path` names it."""
    with RedisServer(save="", settings={"unixsocket": "s"}) as server:
        path = f"{server.folder}/s"
        store = Store(f"redis+unix://{path}?db=1")
        await started(store, "r")

        assert f"redis+unix://{path}?db=1&prefix=agent" == store.location
        assert "db1" in server.info("keyspace")
        await store.aclose()


async def test_connections_are_ours_and_end_with_the_store() -> None:
    """Three at most, none after `aclose`, and none when the object is just dropped."""
    with RedisServer(save="") as server:
        client = redis.Redis.from_url(server.url)

        def connections() -> int:
            return len(cast("list[object]", client.client_list())) - 1

        store = Store(server.url)
        lease = await started(store, "r")
        store.renew({"r": lease})
        await store.read("r")
        assert 3 == connections()
        await store.aclose()
        wait_until(lambda: connections() == 0, what="all connections are closed")
        await grow(store, lease, 2, 1)
        del store
        gc.collect()
        wait_until(lambda: connections() == 0, what="all connections are closed")


async def test_a_forked_child_has_its_own_connections(redis_url: str) -> None:
    """Parent and child go on at once, and neither reads the other's answers."""
    store = Store(redis_url)
    lease = await started(store, "r")

    def in_child() -> None:
        async def work() -> None:
            for number in range(50):
                await store.append(f"c{number}", rows(1), after=0, lease=None, summary=summary())

        asyncio.run(work())

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            thread = threading.Thread(target=in_child)
            thread.start()
            thread.join()
            code = 0
        finally:
            os._exit(code)
    await grow(store, lease, 2, 50)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    assert rows(1, 51) == await store.read("r")
    assert 51 == len((await store.list_runs())[0])
    await store.aclose()
