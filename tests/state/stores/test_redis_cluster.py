"""Redis Cluster: many masters, keys that move between them, and masters that come back."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
import pytest
import redis

from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from agentkit.state.checkpoints.adapters._redis_address import Address, Place, Wire
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_links import Call, Link
from agentkit.testing.servers import RedisCluster, RedisServer, ServerFailed
from agentkit.testing.servers.processes import wait_until
from tests.state.stores.helpers import TTL_SECONDS, rows, started, summary

pytestmark = pytest.mark.redis

Store = RedisCheckpointStore
KEYS = run_keys("agent", "", "r")
SLOT = str(redis.crc.key_slot(KEYS.head.encode()))


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """A cluster whose slots may be moved."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
async def store(redis_cluster_url: str) -> AsyncIterator[Store]:
    """A new, empty store in a cluster whose slots stay where they are."""
    store = Store(redis_cluster_url)
    yield store
    await store.aclose()


async def grow(store: Store, lease: Lease, first: int, count: int) -> None:
    """Append one entry after the other to run `r`."""
    for seq in range(first, first + count):
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())


def two_of(cluster: RedisCluster) -> tuple[RedisServer, RedisServer]:
    """The node that has run `r`, and another one."""
    source = cluster.node_of(KEYS.head)
    return source, next(node for node in cluster.nodes if node is not source)


async def test_runs_are_spread_over_the_masters(store: Store, redis_cluster: RedisCluster) -> None:
    """One store, one list, whichever node has a run; a group of appends goes to all at once."""
    names = [f"r{number:03}" for number in range(60)]
    scoped = store.scoped(Scope("t"))
    await asyncio.gather(
        *(
            one.append(run, rows(1), after=0, lease=None, summary=summary())
            for run in names
            for one in (store, scoped)
        )
    )

    sizes = [int(str(node.ask("DBSIZE"))) for node in redis_cluster.nodes]
    page, cursor = await store.list_runs(limit=40)
    rest, _ = await store.list_runs(limit=40, cursor=cursor)

    assert all(size > 20 for size in sizes), sizes
    assert names == [one.run for one in [*page, *rest]]
    assert names == [one.run for one in (await scoped.list_runs())[0]]
    assert ["", "t"] == await store.scopes()
    for run in names:
        assert rows(1) == await store.read(run)
        assert await store.delete_run(run)


async def test_keys_that_move_are_followed(cluster: RedisCluster) -> None:
    """While a slot moves and after it has, nothing is lost, and it is no failover."""
    store = Store(cluster.url)
    lease = await started(store, "r")
    source, target = two_of(cluster)
    ids = {node: str(node.ask("CLUSTER", "MYID")) for node in (source, target)}
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", ids[source])
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", ids[target])
    await grow(store, lease, 2, 2)
    keys = (KEYS.head, KEYS.log)
    source.ask("MIGRATE", "127.0.0.1", str(target.port), "", "0", "9000", "KEYS", *keys)
    await grow(store, lease, 4, 2)
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", ids[target])
    await grow(store, lease, 6, 2)

    assert rows(1, 7) == await store.read("r")
    assert not store.renew({"r": lease})["r"].lost
    assert 2 == target.ask("EXISTS", *keys)
    await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unknown-endpoint", "hostname"])
async def test_nodes_that_do_not_say_where_they_are_are_found(
    cluster: RedisCluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one address for all, or with names that were never given: a list of slots without
    hosts, and MOVED without one. It is followed at once though the list that we have is old.
    """
    hosts = set()
    connection = Address.connection

    def noted(address: Address, place: Place | None, *, timeout_seconds: float) -> Wire:
        hosts.add(place and place[0])
        return connection(address, place, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(Address, "connection", noted)
    for node in cluster.nodes:
        try:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)
        except ServerFailed:
            pytest.fail("a Redis of 7.0 or later is needed to try this")
    store = Store(cluster.url, patience_seconds=0.0)
    lease = await started(store, "r")
    source, target = two_of(cluster)
    ids = {node: str(node.ask("CLUSTER", "MYID")) for node in (source, target)}
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", ids[source])
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", ids[target])
    source.ask(
        "MIGRATE", "127.0.0.1", str(target.port), "", "0", "9000", "KEYS", KEYS.head, KEYS.log
    )
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", ids[target])

    await grow(store, lease, 2, 2)

    with pytest.raises(ServerFailed, match=r"MOVED \d+ \??:"):
        source.ask("LLEN", KEYS.log)
    assert rows(1, 3) == await store.read("r")
    assert {"127.0.0.1"} == hosts
    await store.aclose()


@pytest.mark.slow
async def test_keys_that_are_apart_while_they_move_are_waited_for(cluster: RedisCluster) -> None:
    """Neither node can run a script then (TRYAGAIN): it is tried until the move goes on, and told
    where it does not.
    """
    hasty, store = Store(cluster.url, patience_seconds=0.0), Store(cluster.url)
    lease = await started(store, "r")
    source, target = two_of(cluster)
    ids = {node: str(node.ask("CLUSTER", "MYID")) for node in (source, target)}
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", ids[source])
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", ids[target])
    move = ("MIGRATE", "127.0.0.1", str(target.port), "", "0", "9000", "KEYS")
    source.ask(*move, KEYS.head)

    with pytest.raises(StoreUnreachable, match="are being moved"):
        await grow(hasty, lease, 2, 1)
    for node in (source, target):
        node.ask("CONFIG", "RESETSTAT")
    append = asyncio.ensure_future(grow(store, lease, 2, 1))
    await asyncio.to_thread(wait_until, lambda: was_refused(source, target), what="TRYAGAIN")
    source.ask(*move, KEYS.log)
    await append

    assert rows(1, 2) == await store.read("r")
    await store.aclose()
    await hasty.aclose()


def was_refused(*nodes: RedisServer) -> bool:
    """Whether one of them has said that keys are apart."""
    return any("errorstat_TRYAGAIN" in node.info("errorstats") for node in nodes)


@pytest.mark.slow
async def test_a_cluster_that_is_not_whole_is_waited_for() -> None:
    """While a node is away, the one that the URL names, the others serve nothing (CLUSTERDOWN); the
    store asks those that it knows, and goes on when the cluster is whole.
    """
    with RedisCluster(appendonly=True, appendfsync="always", node_timeout_ms=500) as cluster:
        store = Store(cluster.url, timeout_seconds=1.0, patience_seconds=0.2)
        source = cluster.nodes[1]
        run = next(
            run
            for run in (f"r{n}" for n in range(30))
            if cluster.node_of(run_keys("agent", "", run).head) is source
        )
        lease, other = await started(store, run), cluster.nodes[0]
        other.kill()
        wait_until(lambda: "cluster_state:fail" in str(source.ask("CLUSTER", "INFO")), what="fail")

        with pytest.raises(StoreUnreachable, match="does not serve all slots"):
            await store.read(run)
        other.start()
        cluster.wait_until_ok()
        await store.append(run, rows(2), after=1, lease=lease, summary=summary())

        assert rows(1, 2) == await store.read(run)
        await store.aclose()


async def test_a_node_that_is_down_stops_its_own_runs() -> None:
    """Those of other nodes go on; when it is back and has lost nothing, so do its own."""
    with RedisCluster(appendonly=True, appendfsync="always") as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        store = Store(cluster.url, timeout_seconds=1.0, patience_seconds=0.5)
        source, _ = two_of(cluster)
        elsewhere = next(
            run
            for run in (f"r{n}" for n in range(30))
            if cluster.node_of(run_keys("agent", "", run).head) is not source
        )
        lease, other = await started(store, "r"), await started(store, elsewhere)
        source.kill()

        with pytest.raises(StoreUnreachable):
            await grow(store, lease, 2, 1)
        await store.append(elsewhere, rows(2), after=1, lease=other, summary=summary())
        source.start()
        cluster.wait_until_ok()
        await grow(store, lease, 2, 1)

        assert rows(1, 2) == await store.read("r") == await store.read(elsewhere)
        await store.aclose()


def apart(cluster: RedisCluster, node: RedisServer) -> tuple[str, str]:
    """A run of that node, and one of another."""
    runs = {f"r{n}": cluster.node_of(run_keys("agent", "", f"r{n}").head) for n in range(60)}
    return (
        next(run for run, at in runs.items() if at is node),
        next(run for run, at in runs.items() if at is not node),
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_a_node_that_is_away_takes_no_lease_of_other_nodes(
    cluster: RedisCluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Theirs are renewed, and what is written there waits for nobody else; only where no node
    answers a renewal has failed as a whole.
    """
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
    lists = {cluster.node_of(key).port for key in ("agent:due", "agent:runs:", "agent:scopes")}
    away = next(node for node in cluster.nodes if node.port not in lists)
    theirs, others = apart(cluster, away)
    store = Store(cluster.url, timeout_seconds=1.0, patience_seconds=8.0)
    leases = {run: await started(store, run) for run in (theirs, others)}
    store.renew(leases)
    (away.kill if how == "kill" else away.pause)()

    waits = asyncio.ensure_future(
        store.append(theirs, rows(2), after=1, lease=leases[theirs], summary=summary())
    )
    for seq in range(2, 5):
        await store.append(
            others, rows(seq), after=seq - 1, lease=leases[others], summary=summary()
        )
    waiting = not waits.done()
    renewed = [await asyncio.to_thread(store.renew, leases) for _ in range(3)]
    with pytest.raises(StoreUnreachable):
        await asyncio.to_thread(store.renew, {theirs: leases[theirs]})
    with pytest.raises(StoreUnreachable):
        await waits

    assert waiting
    assert [[others]] * 3 == [list(one) for one in renewed]
    assert not any(one[others].lost for one in renewed)
    assert 1 == sum("cannot renew 1 of 2 leases" in record.message for record in caplog.records)
    await store.aclose()


@pytest.mark.slow
async def test_a_node_with_lists_that_is_away_stops_no_run_of_others(
    cluster: RedisCluster,
) -> None:
    """They go on, are renewed, taken over and ended; what was to be noted is doubted later."""
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
    away = cluster.node_of("agent:due")
    _, run = apart(cluster, away)
    store = Store(cluster.url, timeout_seconds=1.0, patience_seconds=0.5)
    running = msgspec.structs.replace(summary(), due_at=0)
    lease = await store.acquire(run, "w", TTL_SECONDS)
    await store.append(run, rows(1), after=0, lease=lease, summary=running)
    away.kill()

    await store.append(run, rows(2), after=1, lease=lease, summary=running)
    renewed = store.renew({run: lease})[run]
    heir = await store.acquire(run, "heir", TTL_SECONDS, supersede=lease.epoch)
    ended = msgspec.structs.replace(summary("done"), due_at=None)
    await store.append(run, rows(3), after=2, lease=heir, summary=ended, release=True)

    assert not renewed.lost
    assert rows(1, 3) == await store.read(run)
    with pytest.raises(StoreUnreachable):
        await store.claimable()
    await store.aclose()


async def test_any_node_leads_to_all(store: Store, redis_cluster: RedisCluster) -> None:
    """Of the nodes that are named one has to be there."""
    await started(store, "r")
    port = redis_cluster.nodes[-1].port
    other = Store(f"redis+cluster://127.0.0.1:1,127.0.0.1:{port}")

    assert rows(1) == await other.read("r")
    await other.aclose()


async def test_a_cluster_client_of_the_user_lends_its_settings(
    store: Store, redis_cluster: RedisCluster
) -> None:
    """Its nodes and how to connect to them."""
    lease = await started(store, "r")
    client = redis.RedisCluster(host="127.0.0.1", port=redis_cluster.nodes[0].port)
    other = Store(client)

    await grow(other, lease, 2, 3)

    assert rows(1, 4) == await store.read("r")
    assert 3 == len(await other.durability())
    client.close()
    await other.aclose()


async def test_a_single_address_of_a_cluster_is_told(redis_cluster: RedisCluster) -> None:
    """Named as one server, a node says that others have the keys."""
    found = []
    for run in ("a", "b", "c", "d", "e", "f"):
        store = Store(f"redis://127.0.0.1:{redis_cluster.nodes[0].port}", patience_seconds=0.0)
        try:
            await started(store, run)
        except StoreUnreachable as error:
            found.append(str(error))
        await store.aclose()

    assert found
    assert all("Use redis+cluster://" in text for text in found)


async def test_answers_of_one_node_are_not_taken_for_others_after_another_node_was_refused(
    store: Store, redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent to the first nodes of a group was answered, and nobody has read it."""
    runs = [f"r{number}" for number in range(30)]
    for run in runs:
        await started(store, run)
    send = Link.send
    refused: list[str] = []

    def refusing(link: Link, calls: Sequence[Call], *, asking: bool = False) -> None:
        if not refused and link._name.endswith(str(redis_cluster.nodes[-1].port)):
            refused.append(link._name)
            raise StoreUnreachable("a look at its settings has shown that it may not be used")
        send(link, calls, asking=asking)

    monkeypatch.setattr(Link, "send", refusing)
    await asyncio.gather(*map(store.head, runs), return_exceptions=True)

    found = [await store.read(run) for run in runs]

    assert len(refused) == 1
    assert [rows(1)] * len(runs) == found
