"""A Redis of one's own, alone, in a cluster, or watched by sentinels."""

import os
from pathlib import Path

import pytest

from agentkit.testing.servers import RedisCluster, RedisSentinel, RedisServer, ServerFailed
from agentkit.testing.servers._resp import ask
from agentkit.testing.servers.processes import wait_until

pytestmark = pytest.mark.redis


def test_a_killed_server_comes_back_with_what_its_file_has() -> None:
    """With an append-only file that is always written, SIGKILL loses nothing."""
    with RedisServer(appendonly=True, appendfsync="always", save="") as server:
        server.ask("SET", "kept", "7")
        url = server.url

        server.kill()
        with pytest.raises(ServerFailed):
            server.ask("PING")
        server.start()

        assert "7" == server.ask("GET", "kept")
        assert url == server.url


def test_a_server_without_files_comes_back_empty() -> None:
    """Without persistence, SIGKILL loses everything."""
    with RedisServer(save="") as server:
        server.ask("SET", "lost", "7")

        server.kill()
        server.start()

        assert None is server.ask("GET", "lost")


def test_a_server_that_is_stopped_in_order_saves() -> None:
    """With snapshots on, an orderly stop writes one."""
    with RedisServer(save="3600 1") as server:
        server.ask("SET", "kept", "7")

        server.restart()

        assert "7" == server.ask("GET", "kept")


def test_a_server_is_set_up_as_asked() -> None:
    """Persistence and eviction settings reach the server; the rest is as Redis has it."""
    with RedisServer(
        appendonly=True,
        appendfsync="always",
        maxmemory="10mb",
        policy="allkeys-lru",
        save="",
        settings={"hz": "50"},
    ) as server:
        wanted = {
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory": "10485760",
            "maxmemory-policy": "allkeys-lru",
            "save": "",
            "hz": "50",
        }

        assert wanted == {name: _setting(server, name) for name in wanted}


def test_a_paused_server_says_nothing_until_it_goes_on() -> None:
    """Between `pause` and `resume` a server holds its connections without a word."""
    with RedisServer(save="") as server:
        server.pause()
        assert server.process is not None
        pid = server.process.pid
        wait_until(lambda: "T" == _state(pid), what="the server is stopped")

        server.resume()

        assert "PONG" == server.ask("PING")


def test_a_refusal_says_what_was_refused(redis_server: RedisServer) -> None:
    """An error of the server is raised with its words."""
    with pytest.raises(ServerFailed, match="NO_SUCH_COMMAND"):
        redis_server.ask("NO_SUCH_COMMAND")


def test_a_server_that_cannot_start_says_why() -> None:
    """The error has the last words of the server."""
    with pytest.raises(ServerFailed, match="no-such-setting"):
        RedisServer(settings={"no-such-setting": "1"})


def test_a_closed_server_leaves_nothing() -> None:
    """Neither process nor folder is there after the `with` statement."""
    with RedisServer() as server:
        assert server.process is not None
        pid = server.process.pid

    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_cluster_is_whole_again_after_a_node_was_killed() -> None:
    """The keys are spread over all nodes; a killed node comes back with its own."""
    keys = [f"key{number}" for number in range(20)]
    with RedisCluster(appendonly=True, appendfsync="always") as cluster:
        for key in keys:
            cluster.node_of(key).ask("SET", key, "7")
        assert set(cluster.nodes) == {cluster.node_of(key) for key in keys}

        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        cluster.wait_until_ok()

        assert ["7"] * 20 == [cluster.node_of(key).ask("GET", key) for key in keys]


@pytest.mark.slow
def test_a_stale_replica_is_promoted() -> None:
    """A replica that missed a write is the master without it when the old one was killed."""
    with RedisSentinel(appendonly=True, appendfsync="always", down_after_ms=500) as group:
        group.master.ask("SET", "seen", "7")
        wait_until(group.in_step, what="the replica has the first write")
        group.replica.kill()
        group.master.ask("SET", "missed", "7")
        assert group.master.port == group.master_port()

        group.lose_master()
        group.replica.start()
        group.wait_for_failover()

        assert group.replica.port == group.master_port()
        assert ["7", None] == group.replica.ask("MGET", "seen", "missed")


@pytest.mark.slow
def test_a_master_that_is_slow_is_not_replaced_before_it_is_lost() -> None:
    """A busy machine that keeps it from answering for a moment does not spoil a test."""
    with RedisSentinel(down_after_ms=200) as group:
        group.master.pause()
        wait_until(lambda: _silent_ms(group) > 1500, what="the master has been silent")
        group.master.resume()
        wait_until(lambda: _silent_ms(group) < 200, what="the master answers again")

        assert group.master.port == group.master_port()
        assert "slave" == group.replica.info("replication")["role"]


def _silent_ms(group: RedisSentinel) -> int:
    """For how long the sentinel has had no answer of the master."""
    answer = ask(group.sentinel_ports[0], "SENTINEL", "MASTER", group.name)
    assert isinstance(answer, list)
    return int(str(answer[answer.index("last-ok-ping-reply") + 1]))


def _setting(server: RedisServer, name: str) -> str:
    answer = server.ask("CONFIG", "GET", name)
    assert isinstance(answer, list)
    return str(answer[1])


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0]
