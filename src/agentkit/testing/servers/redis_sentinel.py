"""A Redis with a replica and sentinels that promote it."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from agentkit.testing.servers._resp import ask
from agentkit.testing.servers.binaries import find
from agentkit.testing.servers.ports import HOST, take_port
from agentkit.testing.servers.processes import (
    ServerFailed,
    ServerProcess,
    make_folder,
    wait_until,
)
from agentkit.testing.servers.redis import AppendFsync, RedisServer

__all__ = ["RedisSentinel"]

_PATIENT_MS = 600_000
_TILT_MS = 1000  # a sentinel whose machine was busy does nothing for so long; 30 s by itself

_CONFIG = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {name} 127.0.0.1 {master} {quorum}
sentinel down-after-milliseconds {name} {down_after_ms}
sentinel failover-timeout {name} 1500
"""


class RedisSentinel:
    """A master, a replica in step with it, and sentinels that watch both. Starts at once.

    Use it in a `with` statement. The sentinels are patient until `lose_master`: a master that a
    busy machine keeps from answering for a moment is not replaced. For a failover that loses a
    write: kill the replica, write, lose the master, start the replica.

    Args:
        sentinels: how many; more than half of them have to agree.
        down_after_ms: after which a master that was lost is replaced.
        appendonly, appendfsync: as of `RedisServer`, for both servers.

    Attributes:
        name: what the sentinels call the master.
        master: the server that was the master at first.
        replica: the one that was its replica.
        sentinel_ports: where the sentinels listen.

    Raises:
        BinaryMissing: there is no Redis on this machine.
        ServerFailed: they did not come to know each other.
    """

    name = "agentkit"

    def __init__(
        self,
        *,
        sentinels: int = 1,
        down_after_ms: int = 2000,
        appendonly: bool = False,
        appendfsync: AppendFsync = "everysec",
    ) -> None:
        self.sentinel_ports: list[int] = []
        self._down_after_ms = down_after_ms
        with ExitStack() as stack:
            server = partial(RedisServer, appendonly=appendonly, appendfsync=appendfsync)
            self.master = stack.enter_context(server())
            replicaof = {"replicaof": f"{HOST} {self.master.port}"}
            self.replica = stack.enter_context(server(settings=replicaof))
            wait_until(self.in_step, what="the replica is in step with its master")
            for _ in range(sentinels):
                self._start_sentinel(stack, sentinels // 2 + 1)
            wait_until(self._is_known, what="the sentinels know the replica and each other")
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
        """The address of the first sentinel, with the master's name."""
        return f"redis+sentinel://{HOST}:{self.sentinel_ports[0]}/{self.name}"

    def master_port(self) -> int:
        """Whom the first sentinel calls the master."""
        answer = ask(self.sentinel_ports[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        if not isinstance(answer, list):
            raise ServerFailed(f"the sentinel knows no master: {answer!r}")
        return int(str(answer[1]))

    def in_step(self) -> bool:
        """Whether the replica is connected and has all that its master has written.

        A replica that has just copied its master writes its append-only file anew. Until that is
        done a kill takes everything from it, so it does not count before.
        """
        try:
            ours = self.replica.info("replication") | self.replica.info("persistence")
            master = self.master.info("replication")
        except ServerFailed:
            return False
        rewrites = {ours["aof_rewrite_in_progress"], ours["aof_rewrite_scheduled"]}
        return (
            ours.get("master_link_status") == "up"
            and ours.get("slave_repl_offset") == master["master_repl_offset"]
            and rewrites == {"0"}
        )

    def lose_master(self) -> None:
        """SIGKILL the master; from now on the sentinels look for a new one."""
        self.master.kill()
        for port in self.sentinel_ports:
            down_after = ("down-after-milliseconds", str(self._down_after_ms))
            ask(port, "SENTINEL", "SET", self.name, *down_after)

    def wait_for_failover(self) -> None:
        """Wait until the replica is the master and takes writes, after `lose_master`.

        Raises:
            ServerFailed: it did not become it.
        """
        wait_until(self._is_promoted, what="the replica is promoted", seconds=120.0)

    def close(self) -> None:
        """End all of them and remove their folders."""
        self._stack.close()

    def _start_sentinel(self, stack: ExitStack, quorum: int) -> None:
        port, folder = take_port(), make_folder("sentinel")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        config = folder / "sentinel.conf"
        config.write_text(
            _CONFIG.format(
                port=port,
                folder=folder,
                name=self.name,
                master=self.master.port,
                quorum=quorum,
                down_after_ms=_PATIENT_MS,
            )
        )
        shutil.chown(config, folder.owner())  # a sentinel writes what it learns into it
        process = ServerProcess([find("redis-server"), str(config), "--sentinel"], folder=folder)
        stack.callback(process.kill)
        self.sentinel_ports.append(port)
        wait_until(lambda: _answers(port), what="the sentinel answers", server=process)
        with suppress(ServerFailed):  # before 7.0 there is no such command
            ask(port, "SENTINEL", "DEBUG", "tilt-period", str(_TILT_MS))

    def _is_known(self) -> bool:
        others = str(len(self.sentinel_ports) - 1)
        for port in self.sentinel_ports:
            try:
                answer = ask(port, "SENTINEL", "MASTER", self.name)
            except ServerFailed:
                return False
            if not isinstance(answer, list):
                return False
            facts = dict(zip(answer[::2], answer[1::2], strict=True))
            if facts["num-slaves"] != "1" or facts["num-other-sentinels"] != others:
                return False
        return True

    def _is_promoted(self) -> bool:
        try:
            role = self.replica.info("replication")["role"]
            return role == "master" and self.master_port() == self.replica.port
        except ServerFailed:
            return False


def _answers(port: int) -> bool:
    try:
        return ask(port, "PING") == "PONG"
    except ServerFailed:
        return False
