"""Ways into a store past the store itself: what anybody does who may write where it keeps its data.

Another store comes in with one more function, and a branch in `tamper`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    PostgresCheckpointStore,
    RedisCheckpointStore,
    SqliteCheckpointStore,
)

if TYPE_CHECKING:
    import redis

Change: TypeAlias = Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]]
"""From the stored (body, checksum) of each entry to those that are put in their place."""


def _memory(store: InMemoryCheckpointStore, run: str, change: Change) -> None:
    kept = store._data.runs["", run]
    changed = change([(row.body, row.check) for row in kept.rows])
    kept.rows = [Row(seq, *pair) for seq, pair in enumerate(changed, 1)]


def _sqlite(store: SqliteCheckpointStore, run: str, change: Change) -> None:
    db = sqlite3.connect(store.location.removeprefix("sqlite:///"))
    find = "SELECT number << 32 FROM agentkit_run WHERE run = ?"
    base = db.execute(find, (run,)).fetchone()[0]
    rows = "SELECT body, chained FROM agentkit_entry WHERE place > ? AND place < ? ORDER BY place"
    pairs = db.execute(rows, (base, base + 2**32)).fetchall()
    db.execute("DELETE FROM agentkit_entry WHERE place > ? AND place < ?", (base, base + 2**32))
    for seq, pair in enumerate(change(pairs), 1):
        db.execute("INSERT INTO agentkit_entry VALUES (?, ?, ?)", (base + seq, *pair))
    db.commit()
    db.close()


def _postgres(store: PostgresCheckpointStore, run: str, change: Change, *, dsn: str) -> None:
    import psycopg

    place = store._engine.place
    with psycopg.connect(dsn) as db:
        db.execute(f"SET search_path TO {place.schema}".encode())
        find = "SELECT number FROM agentkit_run WHERE run = %s"
        found = db.execute(find, (run,)).fetchone()
        assert found is not None
        rows = "SELECT body, chained FROM agentkit_entry WHERE number = %s ORDER BY seq"
        pairs = [(bytes(body), bytes(check)) for body, check in db.execute(rows, found)]
        db.execute("DELETE FROM agentkit_entry WHERE number = %s", found)
        for seq, pair in enumerate(change(pairs), 1):
            insert = "INSERT INTO agentkit_entry VALUES (%s, %s, %s, %s)"
            db.execute(insert, (*found, seq, *pair))


def _redis(change: Change, *, url: str) -> None:
    """The log is a list; each of its elements is taken as a body with nothing beside it."""
    client = _client(url)
    [key] = client.scan_iter("agent:log:*")
    elements = cast("list[bytes]", client.lrange(key, 0, -1))
    client.delete(key)
    changed = change([(element, b"") for element in elements])
    if changed:
        client.rpush(key, *(body for body, _ in changed))
    client.close()


def _client(url: str) -> redis.Redis | redis.RedisCluster:
    import redis

    host, _, port = url.rpartition("://")[2].partition("/")[0].rpartition(":")
    kind = redis.RedisCluster if "cluster" in url else redis.Redis
    return kind(host=host.rpartition("@")[2], port=int(port.partition(",")[0]))


def tamper(store: JournalPort, run: str, change: Change, *, address: Callable[[], str]) -> None:
    """Change a run's entries where they are kept.

    Args:
        store: looks at the scope without a tenant.
        run: one that is there, on Redis the only one.
        change: see `Change`.
        address: of the server.
    """
    if isinstance(store, InMemoryCheckpointStore):
        _memory(store, run, change)
    elif isinstance(store, SqliteCheckpointStore):
        _sqlite(store, run, change)
    elif isinstance(store, PostgresCheckpointStore):
        _postgres(store, run, change, dsn=address())
    else:
        assert isinstance(store, RedisCheckpointStore)
        _redis(change, url=address())


def forget_check(store: JournalPort, run: str, *, address: Callable[[], str]) -> None:
    """Take the checksum of the last entry out of a run's head; arguments as of `tamper`."""
    if isinstance(store, InMemoryCheckpointStore):
        kept = store._data.runs["", run]
        kept.head = msgspec.structs.replace(kept.head, check=b"")
    elif isinstance(store, SqliteCheckpointStore):
        db = sqlite3.connect(store.location.removeprefix("sqlite:///"))
        db.execute("UPDATE agentkit_run SET tip = x'' WHERE run = ?", (run,))
        db.commit()
        db.close()
    elif isinstance(store, PostgresCheckpointStore):
        import psycopg

        with psycopg.connect(address()) as connection:
            connection.execute(f"SET search_path TO {store._engine.place.schema}".encode())
            connection.execute("UPDATE agentkit_run SET tip = '' WHERE run = %s", (run,))
    else:
        client = _client(address())
        client.hdel(f"agent:checkpoint:{{{run}}}", "check")
        client.close()


def edited(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A tool's result is another one."""
    assert any(b"seen" in body for body, _ in pairs)
    return [(body.replace(b"seen", b"s33n"), check) for body, check in pairs]


def moved(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Two entries have changed places."""
    return [*pairs[:3], pairs[4], pairs[3], *pairs[5:]]


def removed(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """An entry is gone and the gap is closed."""
    return [*pairs[:3], *pairs[4:]]


def replayed(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """An entry stands there again."""
    return [*pairs[:5], pairs[3], *pairs[5:]]


def truncated(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The last entries are gone."""
    return [*pairs[:-2]]


def emptied(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """All are gone."""
    return []


KINDS = {one.__name__: one for one in (edited, moved, removed, replayed, truncated, emptied)}
