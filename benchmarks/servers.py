"""Postgres and Redis: what an iteration costs beside the same bytes on the same server, and stores.

The servers are started for it, on this machine, and keep what they acknowledge: Postgres with
`fsync` and `synchronous_commit`, Redis with an append-only file that is synced for every write.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import psycopg
import redis

from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore, RedisCheckpointStore
from agentkit.testing.servers import PostgresServer, RedisServer
from benchmarks.concurrency import Throughput, looped, shown_throughput, throughput
from benchmarks.floor import Commit, Group, ThreadFloor
from benchmarks.report import table
from benchmarks.workload import Model, groups_of, rows_of, run

_names = itertools.count(1)


class Bench(NamedTuple):
    """A server to measure on.

    Args:
        name: as the table shows it.
        store: a new, empty store.
        floor: opens a connection to a new, empty table or list, and how to commit groups there.
        stored_bytes: what the server keeps of the newest store's runs.
        floor_bodies: all bodies of the newest floor, in their order.
    """

    name: str
    store: Callable[[], JournalPort]
    floor: Callable[[], Commit]
    stored_bytes: Callable[[], int]
    floor_bodies: Callable[[], list[bytes]]


@contextlib.contextmanager
def postgres() -> Iterator[Bench]:
    """A Postgres whose commits reach the disk."""
    with PostgresServer() as server, psycopg.connect(server.dsn(), autocommit=True) as looking:
        at = {"schema": "", "table": ""}

        def store() -> JournalPort:
            at["schema"] = f"bench{next(_names)}"
            return PostgresCheckpointStore(server.dsn(), schema=at["schema"])

        def floor() -> Commit:
            at["table"] = f"floor{next(_names)}"
            db = psycopg.connect(server.dsn(), autocommit=True)
            db.execute(
                f"CREATE TABLE {at['table']} (place bigserial PRIMARY KEY, body bytea NOT NULL)"
            )
            insert = f"INSERT INTO {at['table']} (body) SELECT unnest(%s::bytea[])"

            def commit(groups: Sequence[Group]) -> None:
                db.execute(insert, [[body for group in groups for body in group]])

            return Commit(commit, db.close)

        def stored_bytes() -> int:
            sizes = looking.execute(
                "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c "
                "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND c.relkind = 'r'",
                [at["schema"]],
            ).fetchone()
            return int(sizes[0]) if sizes else 0

        def floor_bodies() -> list[bytes]:
            found = looking.execute(f"SELECT body FROM {at['table']} ORDER BY place")  # noqa: S608
            return [bytes(body) for (body,) in found]

        yield Bench("Postgres", store, floor, stored_bytes, floor_bodies)


@contextlib.contextmanager
def redis_always() -> Iterator[Bench]:
    """A Redis that syncs its append-only file before it answers."""
    with RedisServer(appendonly=True, appendfsync="always", save="") as server:
        looking = redis.Redis.from_url(server.url)
        at = {"prefix": "", "list": ""}

        def store() -> JournalPort:
            at["prefix"] = f"bench{next(_names)}"
            return RedisCheckpointStore(server.url, prefix=at["prefix"])

        def floor() -> Commit:
            at["list"] = f"floor{next(_names)}"
            db = redis.Redis.from_url(server.url)

            def commit(groups: Sequence[Group]) -> None:
                pipe = db.pipeline(transaction=False)
                for group in groups:
                    pipe.rpush(at["list"], *group)
                pipe.execute()

            return Commit(commit, db.close)

        def stored_bytes() -> int:
            keys = looking.scan_iter(f"{at['prefix']}:*", count=1000)
            return sum(int(str(looking.memory_usage(key, samples=0) or 0)) for key in keys)

        def floor_bodies() -> list[bytes]:
            return list(looking.lrange(at["list"], 0, -1))  # type: ignore[arg-type]  # it is sync

        yield Bench("Redis", store, floor, stored_bytes, floor_bodies)
        looking.close()


SERVERS = (postgres, redis_always)


async def _ours(bench: Bench, runs: int, iterations: int) -> tuple[Throughput, list[list[bytes]]]:
    """So many runs at once on a new store; and what one of them committed."""
    store = bench.store()
    await run(store, Model(2), run_id="first")  # makes the tables, connects
    began = time.process_time()
    models = await asyncio.gather(
        *(run(store, Model(iterations), run_id=f"run-{number}") for number in range(runs))
    )
    cpu = time.process_time() - began
    groups = groups_of(await rows_of(store, "run-0"))
    await store.aclose()
    return throughput([[moment.wall for moment in model.asked] for model in models], cpu), groups


def on_servers(sizes: list[int], total: int, pairs: int) -> str:
    """Each server with so many runs at once, about `total` iterations each time."""
    rows = []
    for opened in SERVERS:
        with opened() as bench:
            rows += [_row(bench, runs, max(total // runs, 4), pairs) for runs in sizes]
    columns = (
        "server", "runs", "it/s", "p99 ms", "CPU µs", "floor it/s", "floor p99 ms", "time : floor",
        "bytes / it", "of it rows",
    )  # fmt: skip
    return table("Concurrent runs on a server of this machine", columns, rows)


def _row(bench: Bench, runs: int, iterations: int, pairs: int) -> tuple[str, ...]:
    mine, floors, sizes, bare_sizes = [], [], [], []
    for _ in range(pairs):
        found, groups = asyncio.run(_ours(bench, runs, iterations))
        mine.append(found)
        sizes.append(bench.stored_bytes() / (runs * iterations + 2))
        bare_sizes.append(sum(map(len, itertools.chain(*groups))) / iterations)
        floors.append(asyncio.run(looped(ThreadFloor(bench.floor), runs, groups)))
        assert len(bench.floor_bodies()) == runs * sum(map(len, groups)) + len(groups[0])
    ratio = statistics.median(a.each / b.each for a, b in zip(mine, floors, strict=True))
    return (
        bench.name,
        f"{runs:,}",
        *shown_throughput(mine),
        *shown_throughput(floors)[:2],
        f"{ratio:.2f}",
        f"{statistics.median(sizes):,.0f}",
        f"{statistics.median(bare_sizes):,.0f}",
    )
