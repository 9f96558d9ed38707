"""A PgBouncer of one's own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from agentkit.testing.servers.binaries import find
from agentkit.testing.servers.ports import HOST, take_port
from agentkit.testing.servers.postgres import PostgresServer
from agentkit.testing.servers.processes import (
    ServerFailed,
    ServerProcess,
    make_folder,
    run_tool,
    wait_until,
)

__all__ = ["PgBouncer"]


class PgBouncer:
    """A transaction pooler in front of a Postgres. Starts at once.

    Use it in a `with` statement. What is not given is as PgBouncer's own defaults have it.

    Args:
        server: whom it pools; it reaches all databases of it.
        pool_size: how many connections to the server a database gets. Few of them show sooner who
            relies on a session.
        settings: more lines of its `[pgbouncer]` section.

    Raises:
        BinaryMissing: there is no PgBouncer on this machine.
        ServerFailed: it did not start.
    """

    def __init__(
        self,
        server: PostgresServer,
        *,
        pool_size: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._bin = find("pgbouncer")
        self._psql = find("psql")
        self._server = server
        self.port = take_port()
        self.folder = make_folder("pgbouncer")
        lines = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": str(pool_size),
            "max_client_conn": "500",
            "server_login_retry": "0.1",  # a server that restarts is back sooner than in 15 s
            **(settings or {}),
        }
        self._config = self.folder / "pgbouncer.ini"
        self._config.write_text(
            f"[databases]\n* = host={HOST} port={server.port} user=postgres\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in lines.items())
        )
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

    def dsn(self, database: str = "postgres") -> str:
        """The address of a database, through the pooler."""
        return self._server.dsn(database, port=self.port)

    def start(self) -> None:
        """Start it and wait until it lets a client through to the server.

        Raises:
            ServerFailed: it runs already, or did not get ready.
        """
        if self.process is not None and self.process.alive:
            raise ServerFailed(f"this PgBouncer runs already: pid {self.process.pid}")
        self.process = ServerProcess([self._bin, str(self._config)], folder=self.folder)
        wait_until(self._lets_through, what="PgBouncer lets through", server=self.process)

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Kill it and start it again, on the same port."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lets_through(self) -> bool:
        try:
            return run_tool([self._psql, "-XAtqd", self.dsn(), "-c", "SELECT 1"]).strip() == "1"
        except ServerFailed:
            return False
