"""Redis: another server in the place of the one that acknowledged, and what it may lack."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from agentkit.core.contracts.errors import LeaseLost, StoreFailedOver
from agentkit.core.contracts.heads import Lease
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.testing.servers import RedisSentinel, RedisServer
from agentkit.testing.servers.processes import wait_until
from agentkit.testing.servers.redis import AppendFsync
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore


@pytest.fixture
def pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and a replica that is in step with it."""
    with (
        RedisServer(save="") as master,
        RedisServer(save="", settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        in_step(master, replica)
        yield master, replica


@pytest.fixture
async def stores() -> AsyncIterator[list[Store]]:
    """What is put in is closed in the end."""
    opened: list[Store] = []
    yield opened
    for store in opened:
        await store.aclose()


def in_step(master: RedisServer, replica: RedisServer) -> None:
    """Wait until the replica has all that its master has."""
    wait_until(
        lambda: (
            replica.info("replication").get("master_link_status") == "up"
            and replica.info("replication")["slave_repl_offset"]
            == master.info("replication")["master_repl_offset"]
        ),
        what="the replica is in step",
    )


async def grow(store: Store, lease: Lease, first: int, count: int) -> None:
    """Append one entry after the other to run `r`."""
    for seq in range(first, first + count):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())


async def stopped(store: Store, lease: Lease, seq: int) -> None:
    """See that nobody can act for run `r`, and nothing was written."""
    before = await store.read("r")
    for act in (
        store.append("r", rows(seq + 1), after=seq, lease=lease, summary=summary()),
        store.append("r", rows(seq + 1), after=seq, lease=None, summary=summary()),
        store.acquire("r", "other", TTL_SECONDS, supersede=lease.epoch),
    ):
        with pytest.raises(StoreFailedOver, match="accept_failover"):
            await act
    assert store.renew({"r": lease})["r"].lost
    assert before == await store.read("r")


async def test_a_stale_replica_that_was_promoted_is_found_out(
    pair: tuple[RedisServer, RedisServer], stores: list[Store]
) -> None:
    """Entries that only the old master had are missing; nobody goes on as if they had not been."""
    master, replica = pair
    stores.append(before := Store(master.url))
    lease = await started(before, "r", 3)
    in_step(master, replica)
    replica.ask("REPLICAOF", "127.0.0.1", "1")
    await grow(before, lease, 4, 2)
    master.kill()
    replica.ask("REPLICAOF", "NO", "ONE")
    stores.append(after := Store(replica.url))

    await stopped(after, lease, 5)

    assert rows(1, 3) == await after.read("r")


async def test_an_accepted_run_goes_on_with_what_is_there(
    pair: tuple[RedisServer, RedisServer], stores: list[Store]
) -> None:
    """Run by run, and once."""
    master, replica = pair
    stores.append(before := Store(master.url))
    lease = await started(before, "r", 3)
    await started(before, "s", 1)
    in_step(master, replica)
    replica.ask("REPLICAOF", "NO", "ONE")
    stores.append(after := Store(replica.url))

    accepted = await after.accept_failover("r"), await after.accept_failover("unknown")

    assert (True, False) == accepted
    await grow(after, lease, 4, 2)
    assert not after.renew({"r": lease})["r"].lost
    with pytest.raises(StoreFailedOver):
        await after.append("s", rows(2), after=1, lease=None, summary=summary())


async def test_who_wants_to_goes_on_without_being_asked(
    pair: tuple[RedisServer, RedisServer],
    stores: list[Store],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`on_failover="accept"`: it is said in the log."""
    master, replica = pair
    stores.append(before := Store(master.url))
    lease = await started(before, "r", 3)
    in_step(master, replica)
    replica.ask("REPLICAOF", "NO", "ONE")
    stores.append(after := Store(replica.url, on_failover="accept"))

    await grow(after, lease, 4, 2)

    assert rows(1, 5) == await after.read("r")
    assert ["run 'r' goes on after a failover: promoted"] == caplog.messages


async def test_an_ended_run_is_not_stopped(
    pair: tuple[RedisServer, RedisServer], stores: list[Store]
) -> None:
    """It has its result, and nothing comes after that."""
    master, replica = pair
    stores.append(before := Store(master.url))
    lease = await started(before, "r", 3)
    await before.append("r", rows(4), after=3, lease=lease, summary=summary("done"))
    in_step(master, replica)
    replica.ask("REPLICAOF", "NO", "ONE")
    stores.append(after := Store(replica.url))

    head = await after.append("r", [], after=4, lease=lease, summary=summary("done"), release=True)

    assert "" == head.owner
    assert await after.delete_run("r")


async def test_a_new_run_begins_on_the_new_server(
    pair: tuple[RedisServer, RedisServer], stores: list[Store]
) -> None:
    """Nothing of it can be missing."""
    _, replica = pair
    replica.ask("REPLICAOF", "NO", "ONE")
    stores.append(after := Store(replica.url))

    await grow(after, await started(after, "r"), 2, 3)

    assert rows(1, 4) == await after.read("r")


async def test_a_replica_that_comes_or_goes_is_no_failover(stores: list[Store]) -> None:
    """The server's replication id changes with its first replica; its process is the same."""
    with RedisServer(save="", settings={"repl-backlog-ttl": "1"}) as master:
        stores.append(store := Store(master.url))
        lease = await started(store, "r")
        alone = master.info("replication")["master_replid"]
        with RedisServer(save="", settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica:
            in_step(master, replica)
            followed = master.info("replication")["master_replid"]
            await grow(store, lease, 2, 2)
        wait_until(
            lambda: master.info("replication")["master_replid"] != followed,
            what="the master has forgotten its replica",
        )

        await grow(store, lease, 4, 2)

        assert alone != followed
        assert rows(1, 5) == await store.read("r")


async def test_a_master_that_was_a_replica_meanwhile_is_found_out(
    pair: tuple[RedisServer, RedisServer], stores: list[Store]
) -> None:
    """It has the data of the other one now, though its process and our connection are the same."""
    master, other = pair
    stores.append(store := Store(master.url))
    lease = await started(store, "r", 3)
    in_step(master, other)
    other.ask("REPLICAOF", "NO", "ONE")
    await grow(store, lease, 4, 2)
    master.ask("REPLICAOF", "127.0.0.1", str(other.port))
    in_step(other, master)
    master.ask("REPLICAOF", "NO", "ONE")

    await stopped(store, lease, 5)

    assert rows(1, 3) == await store.read("r")


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_a_restart_that_loses_nothing_is_not_noticed(how: str, stores: list[Store]) -> None:
    """`appendonly yes` and `appendfsync always`: what was acknowledged is on the disk."""
    with RedisServer(appendonly=True, appendfsync="always") as server:
        stores.append(store := Store(server.url))
        lease = await started(store, "r", 3)
        if how == "kill":
            server.kill()
            server.start()
        else:
            server.restart()

        await grow(store, lease, 4, 2)

        assert rows(1, 5) == await store.read("r")


@pytest.mark.parametrize(
    ("appendonly", "appendfsync", "save"),
    [(True, "everysec", ""), (True, "no", ""), (False, "everysec", "3600 1")],
)
async def test_a_restart_that_may_lose_something_is_found_out(
    appendonly: bool, appendfsync: AppendFsync, save: str, stores: list[Store]
) -> None:
    """Though this time nothing was lost: the store cannot tell."""
    with RedisServer(appendonly=appendonly, appendfsync=appendfsync, save=save) as server:
        stores.append(store := Store(server.url))
        lease = await started(store, "r", 3)
        server.restart()

        await stopped(store, lease, 3)

        assert rows(1, 3) == await store.read("r")


async def test_settings_count_as_they_were_when_it_was_written(stores: list[Store]) -> None:
    """A server that is made safe after the entries were written has not made them safe."""
    with RedisServer(appendonly=True, appendfsync="everysec") as server:
        stores.append(before := Store(server.url))
        lease = await started(before, "r", 3)
        server.ask("CONFIG", "SET", "appendfsync", "always")
        server._settings["appendfsync"] = "always"
        server.restart()
        stores.append(after := Store(server.url))

        await stopped(after, lease, 3)


async def test_a_server_that_lost_all_stops_who_is_at_work(stores: list[Store]) -> None:
    """Without any persistence nothing is left to compare; whoever holds the run is told."""
    with RedisServer(save="") as server:
        stores.append(store := Store(server.url))
        lease = await started(store, "r", 3)
        server.kill()
        server.start()

        assert store.renew({"r": lease})["r"].lost
        with pytest.raises(LeaseLost, match="deleted"):
            await grow(store, lease, 4, 1)


async def test_sentinels_name_the_new_master(stores: list[Store]) -> None:
    """The store finds it by itself, and stops runs that the old one wrote; new ones begin."""
    with RedisSentinel(down_after_ms=500) as servers:
        stores.append(store := Store(servers.url, patience_seconds=100.0))
        lease = await started(store, "r", 3)
        wait_until(servers.in_step, what="the replica is in step")
        servers.lose_master()

        with pytest.raises(StoreFailedOver, match="a replica has taken the place"):
            await grow(store, lease, 4, 1)
        await store.accept_failover("r")
        await asyncio.gather(grow(store, lease, 4, 2), started(store, "s"))

        assert rows(1, 5) == await store.read("r")
        assert servers.url + "/0?prefix=agent" == store.location
