"""The stores that campaigns run on, each with a real server where it needs one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from agentkit.core.contracts.errors import InvalidStoreUrl

__all__ = ["served"]


@contextlib.contextmanager
def served(store: str) -> Iterator[str]:
    """The URL of a new, empty store for all runs together; empty for a file with each run.

    Args:
        store: `sqlite`, `postgres` or `redis`; or a URL, which is used as it is.

    Raises:
        BinaryMissing: the server is not installed.
        InvalidStoreUrl: it is none of these.
    """
    if store == "sqlite":
        yield ""
    elif "://" in store:
        yield store
    elif store == "postgres":
        from agentkit.testing.servers import PostgresServer

        with PostgresServer() as postgres:
            yield postgres.dsn(postgres.new_database())
    elif store == "redis":
        from agentkit.testing.servers import RedisServer

        with RedisServer(appendonly=True, appendfsync="always") as redis:
            yield redis.url
    else:
        raise InvalidStoreUrl(f"{store!r} is not sqlite, postgres, redis or a store URL")
