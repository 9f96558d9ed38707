"""Servers of our own that fail in their own ways while sessions are open on them."""

from __future__ import annotations

import os
import random  # noqa: TID251 - seeded
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from agentkit.testing.crash.load import pause
from agentkit.testing.servers import PgBouncer, PostgresServer, RedisServer, ServerFailed

_OURS = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type LIKE 'client%'"
_SESSIONS = f"SELECT pid FROM pg_stat_activity WHERE {_OURS} ORDER BY pid"  # noqa: S608 - ours
_END_SESSIONS = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OURS}"  # noqa: S608
_ENTRIES = "SELECT count(*) FROM agentkit.agentkit_entry"
_COUNT_ENTRIES = """
local entries = 0
for _, key in ipairs(redis.call('KEYS', 'agent:log:*')) do
  entries = entries + redis.call('LLEN', key)
end
return entries
"""

_LONGEST_PAUSE_SECONDS = 1.0


class Victim(Protocol):
    """A server that campaigns let fail.

    Attributes:
        url: of a store on it.
        acts: the ways to fail. Each is back when it returns, and tells whether it struck sessions.
    """

    url: str
    acts: Mapping[str, Callable[[], bool]]

    def entries(self) -> int:
        """How many entries all journals have; 0 while it cannot tell."""
        ...


@contextmanager
def victim(store: str, dice: random.Random) -> Iterator[Victim]:
    """A new server with nothing in it; `dice` say whom it strikes and for how long."""
    if store == "postgres":
        with PostgresServer() as postgres:
            yield _Postgres(postgres, dice)
    elif store == "pgbouncer":
        with PostgresServer() as postgres, PgBouncer(postgres) as pooler:
            yield _Pooled(postgres, pooler, dice)
    else:
        with RedisServer(appendonly=True, appendfsync="always") as redis:
            yield _Redis(redis, dice)


class _Postgres:
    """`pg_terminate_backend`; SIGKILL of a backend, after which Postgres restarts them all; an
    orderly restart; one without a checkpoint; SIGKILL of postmaster and backends.
    """

    def __init__(self, server: PostgresServer, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self._database = server.new_database()
        self.url = server.dsn(self._database)
        self.acts: Mapping[str, Callable[[], bool]] = {
            "end sessions": lambda: "t" in self._ask(_END_SESSIONS),
            "kill a backend": self._kill_a_backend,
            "restart": lambda: self._struck(server.restart),
            "stop at once": lambda: self._struck(lambda: server.restart("immediate")),
            "kill the server": lambda: self._struck(server.kill, server.start),
        }

    def entries(self) -> int:
        """See `Victim.entries`."""
        return int(self._ask(_ENTRIES) or 0)

    def _kill_a_backend(self) -> bool:
        pids = self._ask(_SESSIONS).split()
        if pids:
            os.kill(int(self._dice.choice(pids)), signal.SIGKILL)
        return bool(pids)

    def _struck(self, *acts: Callable[[], None]) -> bool:
        struck = bool(self._ask(_SESSIONS))
        for act in acts:
            act()
        return struck

    def _ask(self, statement: str) -> str:
        """The answer; empty while the server recovers."""
        try:
            return self._server.sql(statement, database=self._database)
        except ServerFailed:
            return ""


class _Pooled(_Postgres):
    """The same behind a pooler in transaction mode, which is killed and started again as well."""

    def __init__(self, server: PostgresServer, pooler: PgBouncer, dice: random.Random) -> None:
        super().__init__(server, dice)
        self.url = pooler.dsn(self._database)
        self.acts = {**self.acts, "restart the pooler": lambda: self._struck(pooler.restart)}


class _Redis:
    """`CLIENT KILL`; SIGSTOP for up to a second; an orderly restart; SIGKILL, of a server that
    writes each command to the disk before it answers.
    """

    def __init__(self, server: RedisServer, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self.url = server.url
        self.acts: Mapping[str, Callable[[], bool]] = {
            "end sessions": lambda: server.ask("CLIENT", "KILL", "TYPE", "normal") != 0,
            "pause": lambda: self._struck(server.pause, self._wait, server.resume),
            "restart": lambda: self._struck(server.restart),
            "kill the server": lambda: self._struck(server.kill, server.start),
        }

    def entries(self) -> int:
        """See `Victim.entries`."""
        return int(str(self._server.ask("EVAL", _COUNT_ENTRIES, "0")))

    def _wait(self) -> None:
        pause(self._dice.uniform(0.0, _LONGEST_PAUSE_SECONDS))

    def _struck(self, *acts: Callable[[], None]) -> bool:
        clients = str(self._server.ask("CLIENT", "LIST", "TYPE", "normal")).splitlines()
        for act in acts:
            act()
        return len(clients) > 1  # one of them asked
