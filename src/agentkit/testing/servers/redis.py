"""A Redis, or Valkey, of one's own."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self, TypeAlias

from agentkit.testing.servers._resp import Reply, ask
from agentkit.testing.servers.binaries import find
from agentkit.testing.servers.ports import HOST, take_port
from agentkit.testing.servers.processes import (
    ServerFailed,
    ServerProcess,
    make_folder,
    wait_until,
)

__all__ = ["AppendFsync", "RedisServer"]

AppendFsync: TypeAlias = Literal["always", "everysec", "no"]
"""When the append-only file reaches the disk."""

_BUS_OFFSET = 10_000  # where a cluster node's bus listens: its port and this


class RedisServer:
    """One server in a folder of its own, on a free loopback port. Starts at once.

    Use it in a `with` statement. What is not given is as Redis's own defaults have it.

    Args:
        appendonly: whether there is an append-only file.
        appendfsync: when it reaches the disk.
        maxmemory: a limit like `10mb`; the empty string is none.
        policy: what gives way at that limit, as `maxmemory-policy` names it.
        save: when snapshots are taken, like `3600 1`; the empty string is never, None the default.
        settings: more lines of `redis.conf`.

    Raises:
        BinaryMissing: there is no Redis on this machine.
        ServerFailed: it did not start.
    """

    def __init__(
        self,
        *,
        appendonly: bool = False,
        appendfsync: AppendFsync = "everysec",
        maxmemory: str = "",
        policy: str = "noeviction",
        save: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._bin = find("redis-server")
        self.port = take_port(also=_BUS_OFFSET)
        self.folder = make_folder("redis")
        self._settings = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.folder),
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": appendfsync,
            "maxmemory": maxmemory or "0",
            "maxmemory-policy": policy,
            "repl-diskless-sync-delay": "0",  # a replica need not wait for others to come along
            **({} if save is None else {"save": save}),
            **(settings or {}),
        }
        self.process: ServerProcess | None = None
        try:
            self.start()
        except ServerFailed:
            self.close()
            raise

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
        """Its address, database 0."""
        return f"redis://{HOST}:{self.port}/0"

    def ask(self, *words: str) -> Reply:
        """Send a command; returns the answer.

        Raises:
            ServerFailed: the server refused it or is not there.
        """
        return ask(self.port, *words)

    def info(self, section: str) -> dict[str, str]:
        """What `INFO` says about a section."""
        lines = str(self.ask("INFO", section)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def flush(self) -> None:
        """Forget all keys and scripts."""
        self.ask("FLUSHALL")
        self.ask("SCRIPT", "FLUSH")

    def start(self) -> None:
        """Start it and wait until it has loaded its data and answers.

        Raises:
            ServerFailed: it runs already, or did not get ready.
        """
        if self.process is not None and self.process.alive:
            raise ServerFailed(f"this Redis runs already: pid {self.process.pid}")
        options = []
        for name, value in self._settings.items():
            # Before 7.0 a value of several words is not taken apart.
            options += [f"--{name}", *([value] if name == "dir" else value.split(" "))]
        self.process = ServerProcess([self._bin, *options], folder=self.folder)
        wait_until(self._answers, what="Redis answers", server=self.process)

    def stop(self) -> None:
        """Let it leave in order (it saves if it is set to), and wait until it has."""
        self._signal(signal.SIGTERM)
        if self.process is not None:
            self.process.wait()

    def kill(self) -> None:
        """SIGKILL it and wait until nothing of it is left."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Stop it and start it again, on the same port in the same folder."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on where it was."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        if self.process is not None:
            self.process.signal(number)

    def _answers(self) -> bool:
        try:
            return self.ask("PING") == "PONG"
        except ServerFailed:
            return False
