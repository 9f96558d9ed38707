"""A Redis Cluster of one's own."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from agentkit.testing.servers.ports import HOST
from agentkit.testing.servers.processes import ServerFailed, wait_until
from agentkit.testing.servers.redis import AppendFsync, RedisServer

__all__ = ["RedisCluster"]

_SLOTS = 16_384


class RedisCluster:
    """Masters without replicas that share all slots. Starts at once.

    Use it in a `with` statement.

    Args:
        masters: how many; a cluster has at least three.
        appendonly, appendfsync: as of `RedisServer`, for each of them.
        node_timeout_ms: after which a node that does not answer counts as failed.

    Raises:
        BinaryMissing: there is no Redis on this machine.
        ServerFailed: it did not come to agree with itself.
    """

    def __init__(
        self,
        *,
        masters: int = 3,
        appendonly: bool = False,
        appendfsync: AppendFsync = "everysec",
        node_timeout_ms: int = 5000,
    ) -> None:
        settings = {"cluster-enabled": "yes", "cluster-node-timeout": str(node_timeout_ms)}
        self.nodes: list[RedisServer] = []
        with ExitStack() as stack:
            for _ in range(masters):
                node = RedisServer(
                    appendonly=appendonly, appendfsync=appendfsync, save="", settings=settings
                )
                self.nodes.append(stack.enter_context(node))
            self._join()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Its address, by the first node."""
        return f"redis+cluster://{HOST}:{self.nodes[0].port}"

    def node_of(self, key: str) -> RedisServer:
        """The node that holds a key."""
        slot = int(str(self.nodes[0].ask("CLUSTER", "KEYSLOT", key)))
        return self.nodes[slot * len(self.nodes) // _SLOTS]

    def flush(self) -> None:
        """Let every node forget all keys and scripts."""
        for node in self.nodes:
            node.flush()

    def wait_until_ok(self) -> None:
        """Wait until every node sees all nodes and all slots served, as after a restart of one.

        Raises:
            ServerFailed: they did not come to.
        """
        wait_until(self._is_ok, what="every node sees the cluster whole")

    def close(self) -> None:
        """End all nodes and remove their folders."""
        self._stack.close()

    def _join(self) -> None:
        count, first = len(self.nodes), self.nodes[0]
        for index, node in enumerate(self.nodes):
            slots = range(-(-_SLOTS * index // count), -(-_SLOTS * (index + 1) // count))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
            node.ask("CLUSTER", "ADDSLOTS", *map(str, slots))
            node.ask("CLUSTER", "MEET", HOST, str(first.port))
        self.wait_until_ok()

    def _is_ok(self) -> bool:
        try:
            seen = [str(node.ask("CLUSTER", "INFO")) for node in self.nodes]
        except ServerFailed:
            return False
        whole = ("cluster_state:ok", f"cluster_slots_ok:{_SLOTS}", f"cluster_size:{len(seen)}")
        return all(line in said.splitlines() for said in seen for line in whole)
