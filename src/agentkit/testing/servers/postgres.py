"""A Postgres of one's own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from agentkit.testing.servers.binaries import find
from agentkit.testing.servers.ports import HOST, take_port
from agentkit.testing.servers.processes import (
    ServerFailed,
    ServerProcess,
    make_folder,
    run_tool,
    wait_until,
)

__all__ = ["PostgresServer", "StopMode"]

StopMode: TypeAlias = Literal["smart", "fast", "immediate"]
"""Wait for clients to leave; end their sessions; leave without a checkpoint."""

_SIGNALS: dict[StopMode, int] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_PID_LINE, _STATUS_LINE = 0, 7  # of postmaster.pid


class PostgresServer:
    """A cluster of databases in a folder of its own, on a free loopback port. Starts at once.

    Use it in a `with` statement. Everybody on this machine may connect, without a password.

    Args:
        fsync: whether commits reach the disk. Without it the server survives a kill, as the kernel
            keeps what it has written, and is faster.
        settings: more lines for `postgresql.conf`.

    Raises:
        BinaryMissing: there is no Postgres on this machine.
        ServerFailed: it did not start.
    """

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._bin = find("postgres")
        self._psql = find("psql")
        self.port = take_port()
        self.folder = make_folder("postgres")
        self.data = self.folder / "data"
        self._databases = itertools.count(1)
        run_tool(["/bin/cp", "-R", str(_template(os.getpid())), str(self.data)])
        self._settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "on" if fsync else "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
            # Its files lie in the data folder and go with it, also when the server is killed.
            "dynamic_shared_memory_type": "mmap",
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

    def dsn(self, database: str = "postgres", *, port: int | None = None) -> str:
        """The address of a database; `port` names a proxy or pooler in front of the server."""
        return f"postgresql://postgres@{HOST}:{self.port if port is None else port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; returns its name."""
        name = f"db{next(self._databases)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database and end the sessions in it."""
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def sql(self, statement: str, *, database: str = "postgres", port: int | None = None) -> str:
        """Run a statement by `psql`; returns the rows, one a line, columns parted by `|`.

        Args:
            statement: one, or several parted by semicolons.
            database: where.
            port: of a proxy or pooler in front of the server.

        Raises:
            ServerFailed: the server refused it.
        """
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        where = ["-d", self.dsn(database, port=port)]
        return run_tool([self._psql, *options, *where, "-c", statement]).strip()

    def start(self) -> None:
        """Start it and wait until it takes connections, recovery included.

        Raises:
            ServerFailed: it runs already, or did not get ready.
        """
        if self.process is not None and self.process.alive:
            raise ServerFailed(f"this Postgres runs already: pid {self.process.pid}")
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        self.process = ServerProcess(
            [self._bin, "-D", str(self.data), *options],
            folder=self.folder,
            farewell=signal.SIGQUIT,
        )
        wait_until(self._is_ready, what="Postgres takes connections", server=self.process)

    def stop(self, mode: StopMode = "fast") -> None:
        """Let it leave in order, and wait until it has."""
        if self.process is not None:
            self.process.signal(_SIGNALS[mode])
            self.process.wait()

    def kill(self) -> None:
        """SIGKILL postmaster and backends in one go, and wait until none is left."""
        if self.process is not None:
            self.process.kill()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop it and start it again, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def demote(self) -> None:
        """Restart it as a standby, which takes no writes until `SELECT pg_promote()`."""
        self.stop()
        (self.data / "standby.signal").touch()
        self.start()

    def close(self) -> None:
        """End it and remove its folder."""
        if self.process is not None:
            self.process.signal(signal.SIGCONT)  # it may have been stopped
            self.stop("immediate")
        self._remove_shared_memory()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        lines = self._pid_file()
        if self.process is None or len(lines) <= _STATUS_LINE:
            return False
        ready = lines[_STATUS_LINE].strip() in {"ready", "standby"}
        return lines[_PID_LINE] == str(self.process.pid) and ready

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _remove_shared_memory(self) -> None:
        """Give back the small segment that a killed server leaves until it is started again."""
        lines, ipcrm = self._pid_file(), shutil.which("ipcrm")
        if len(lines) >= _STATUS_LINE and ipcrm is not None:
            run_tool([ipcrm, "-m", lines[_STATUS_LINE - 1].split()[1]])


@cache
def _template(_process: int) -> Path:
    """An initialised data folder, made once a process; it goes when the process goes."""
    folder = make_folder("initdb")
    _guards.append(ServerProcess(["/bin/sleep", "infinity"], folder=folder))
    data = folder / "data"
    options = ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    run_tool([find("initdb"), "-D", str(data), "-U", "postgres", *options])
    return data


_guards: list[ServerProcess] = []  # their keepers remove the folders of the templates
