"""`python -m agentkit.testing.redis_honesty`: what Redis loses under which settings, measured.

Each round starts a real server, lets a worker append to several runs, remembers what was
acknowledged, does the server some harm, and looks: how many acknowledged entries are missing, and
what those are told who go on. Loss that nobody is told of is counted as silent; there must be none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from agentkit.core.contracts.errors import (
    JournalDamaged,
    LeaseLost,
    RunError,
    RunExpired,
    StoreError,
    StoreFailedOver,
)
from agentkit.core.contracts.heads import Lease, Row, Summary
from agentkit.state.checkpoints.adapters.redis import RedisCheckpointStore
from agentkit.state.journal.codec import checksum
from agentkit.testing.servers import Proxy, RedisCluster, RedisServer
from agentkit.testing.servers.processes import wait_until
from agentkit.testing.servers.redis import AppendFsync

__all__ = ["SCENES", "Fate", "Found", "Play", "Work", "main", "measure", "table"]

_TTL_SECONDS = 600.0
_BODY_BYTES = 400
_LISTS = ("agent:due", "agent:runs:", "agent:scopes")

Fate: TypeAlias = Literal["whole", "stopped", "expired", "gone", "silent"]
"""What became of a run: all entries are there and it goes on; it is stopped until somebody accepts;
its head or its entries alone are gone, and said so; nothing of it is left, and who held it is told;
entries are missing and nobody is told."""


class Found(NamedTuple):
    """What a scene came to.

    Args:
        scene: its name.
        acknowledged: entries that were acknowledged.
        lost: of these the ones that are missing afterwards.
        fates: how many runs came to what, see `Fate`.
        note: what else there is to say.
    """

    scene: str
    acknowledged: int
    lost: int
    fates: dict[str, int]
    note: str = ""

    @property
    def silent(self) -> int:
        """Runs that lost entries and nobody is told."""
        return self.fates.get("silent", 0)


class Work:
    """Some runs in a store, the leases on them, and what was acknowledged."""

    def __init__(self, url: str, runs: int) -> None:
        self.store = RedisCheckpointStore(url, patience_seconds=60.0)
        self._names = [f"run-{number}" for number in range(runs)]
        self._leases: dict[str, Lease] = {}
        self._checks: dict[str, bytes] = {}
        self.acknowledged: Counter[str] = Counter()
        self.refused = 0

    async def begin(self) -> None:
        """Take the lease of each run."""
        for run in self._names:
            self._leases[run] = await self.store.acquire(run, "worker", _TTL_SECONDS)

    async def append(self, entries: int) -> None:
        """Append so many entries to each run, one after the other, all runs at once."""
        await asyncio.gather(*(self._grow(run, entries) for run in self._names))

    async def look(self) -> tuple[int, Counter[str]]:
        """How many acknowledged entries are missing, and what each run came to."""
        lost, fates = 0, Counter[str]()
        for run in self._names:
            missing, fate = await self._fate(run)
            lost += missing
            fates[fate] += 1
        return lost, fates

    async def count_listed(self) -> tuple[int, int]:
        """How many runs the list shows, and how many have a head."""
        shown, _ = await self.store.list_runs(limit=len(self._names) + 1)
        return len(shown), sum([await self.store.head(run) is not None for run in self._names])

    async def close(self) -> None:
        """Close the store."""
        await self.store.aclose()

    async def _grow(self, run: str, entries: int) -> None:
        for _ in range(entries):
            after = self.acknowledged[run]
            row = self._row(run, after + 1)
            try:
                await self._add(run, row)
            except (StoreError, RunError):
                self.refused += 1
                return
            self.acknowledged[run], self._checks[run] = row.seq, row.check

    async def _fate(self, run: str) -> tuple[int, Fate]:
        acknowledged, fate = self.acknowledged[run], await self._told(run)
        try:
            there = len(await self.store.read(run, limit=1_000_000))
        except (RunExpired, JournalDamaged):
            there = 0
        # The entry by which the holder tried to go on does not count.
        missing = max(acknowledged - there, 0)
        return missing, "silent" if missing and fate == "whole" else fate

    async def _told(self, run: str) -> Fate:
        """What the holder of the run and whoever comes after it are told."""
        row = self._row(run, self.acknowledged[run] + 1)
        fates: list[Fate] = []
        for act in (
            lambda: self._add(run, row),
            lambda: self.store.acquire(
                run, "heir", _TTL_SECONDS, supersede=self._leases[run].epoch
            ),
        ):
            try:
                await act()
            except StoreFailedOver:
                fates.append("stopped")
            except (RunExpired, JournalDamaged):
                fates.append("expired")
            except LeaseLost:
                return "gone"
            else:
                fates.append("whole")
        return fates[0] if fates[0] == fates[1] else "silent"

    async def _add(self, run: str, row: Row) -> None:
        summary = Summary("running", agent="worker", started_at=1, updated_at=row.seq)
        await self.store.append(
            run, [row], after=row.seq - 1, lease=self._leases[run], summary=summary
        )

    def _row(self, run: str, seq: int) -> Row:
        body = json.dumps({"seq": seq, "of": run}).ljust(_BODY_BYTES).encode()
        return Row(seq, body, checksum(self._checks.get(run, b""), body))


class _Seen(NamedTuple):
    acknowledged: int
    lost: int
    fates: dict[str, int]
    note: str = ""


Play: TypeAlias = Callable[[int, int], Awaitable[_Seen]]
"""Does harm to a server while so many runs get so many entries each, and looks."""


async def _ended(
    runs: int,
    entries: int,
    *,
    appendonly: bool = False,
    appendfsync: AppendFsync = "everysec",
    harm: Literal["kill", "power", "orderly"] = "kill",
) -> _Seen:
    """A server that ends and starts again."""
    with RedisServer(appendonly=appendonly, appendfsync=appendfsync) as server:
        work = Work(server.url, runs)
        await work.begin()
        await work.append(entries // 2)
        if not appendonly:
            server.ask("SAVE")
        kept = _log_sizes(server)
        await work.append(entries - entries // 2)
        if harm == "orderly":
            server.stop()
        else:
            server.kill()
        if harm == "power":
            _cut(server, kept)
        server.start()
        return await _seen(work)


async def _promoted(runs: int, entries: int) -> _Seen:
    """A replica that has not got the newest entries takes its master's place."""
    with (
        RedisServer(save="") as master,
        RedisServer(save="", settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        Proxy(master.port) as address,
    ):
        work = Work(f"redis://127.0.0.1:{address.port}", runs)
        await work.begin()
        await work.append(entries // 2)
        wait_until(lambda: _in_step(master, replica), what="the replica is in step")
        replica.ask("REPLICAOF", "127.0.0.1", "1")
        await work.append(entries - entries // 2)
        master.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        address.target = replica.port
        address.cut()
        return await _seen(work)


async def _full(runs: int, entries: int, *, policy: str) -> _Seen:
    """A server without room for what comes."""
    with RedisServer(save="", policy=policy) as server:
        work = Work(server.url, runs)
        await work.begin()
        await work.append(1)
        used = int(server.info("memory")["used_memory"])
        room = runs * entries * _BODY_BYTES // 2
        server.ask("CONFIG", "SET", "maxmemory", str(used + room))
        await work.append(entries - 1)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        evicted = server.info("stats")["evicted_keys"]
        note = f"{work.refused} appends refused, {evicted} keys evicted"
        return (await _seen(work))._replace(note=note)


async def _flushed(runs: int, entries: int) -> _Seen:
    """A server that forgets its scripts, again and again."""
    with RedisServer(save="") as server:
        work = Work(server.url, runs)
        await work.begin()
        for _ in range(entries):
            server.ask("SCRIPT", "FLUSH")
            await work.append(1)
        return await _seen(work)


async def _thrown_out(runs: int, entries: int) -> _Seen:
    """A server that evicts the lists of runs and nothing else."""
    with RedisServer(save="") as server:
        work = Work(server.url, runs)
        await work.begin()
        await work.append(entries)
        await work.count_listed()
        server.ask("DEL", *_LISTS)
        return await _listed(work)


async def _emptied(runs: int, entries: int) -> _Seen:
    """A node of a cluster, which has the lists and some of the runs, comes back with nothing."""
    with RedisCluster() as cluster:
        work = Work(cluster.url, runs)
        await work.begin()
        await work.append(entries)
        await work.count_listed()
        for key in _LISTS:
            node = cluster.node_of(key)
            node.kill()
            node.start()
            cluster.wait_until_ok()
        return await _listed(work)


async def _listed(work: Work) -> _Seen:
    """How many of the runs that are there are listed, before anybody enters them again."""
    listed, there = await work.count_listed()
    seen = await _seen(work)
    fates = dict(seen.fates)
    if listed < there:
        fates["silent"] = fates.get("silent", 0) + there - listed
    return seen._replace(fates=fates, note=f"{listed} of {there} runs that are left are listed")


async def _seen(work: Work) -> _Seen:
    try:
        lost, fates = await work.look()
    finally:
        await work.close()
    return _Seen(sum(work.acknowledged.values()), lost, dict(fates))


def _in_step(master: RedisServer, replica: RedisServer) -> bool:
    ours = replica.info("replication")
    offset = master.info("replication")["master_repl_offset"]
    return ours.get("master_link_status") == "up" and ours.get("slave_repl_offset") == offset


def _log_sizes(server: RedisServer) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in server.folder.rglob("*.aof")}


def _cut(server: RedisServer, sizes: Mapping[str, int]) -> None:
    """As if what was written since had not reached the disk."""
    for path in server.folder.rglob("*.aof"):
        with path.open("r+b") as file:
            file.truncate(sizes.get(str(path), 0))


SCENES: dict[str, Play] = {
    "no append-only file (the default), kill -9": _ended,
    "no append-only file (the default), SIGTERM": partial(_ended, harm="orderly"),
    "appendfsync everysec, kill -9": partial(_ended, appendonly=True),
    "appendfsync everysec, power lost before the write to disk": partial(
        _ended, appendonly=True, harm="power"
    ),
    "appendfsync always, kill -9": partial(_ended, appendonly=True, appendfsync="always"),
    "a stale replica is promoted": _promoted,
    "memory full, noeviction": partial(_full, policy="noeviction"),
    "memory full, allkeys-lru": partial(_full, policy="allkeys-lru"),
    "SCRIPT FLUSH before each append": _flushed,
    "the lists of runs alone are evicted": _thrown_out,
    "cluster, no append-only file, kill -9 of the nodes with the lists": _emptied,
}
"""What is done to a server, in the order of the table."""


async def measure(scene: str, *, runs: int, entries: int) -> Found:
    """Play one of `SCENES`."""
    return Found(scene, *await SCENES[scene](runs, entries))


def table(found: Sequence[Found]) -> str:
    """What was found, in Markdown."""
    fates: tuple[Fate, ...] = ("whole", "stopped", "expired", "gone", "silent")
    heads = ["what happens", "acknowledged", "lost", *fates, ""]
    lines = [heads, ["---", *["---:"] * (len(heads) - 2), "---"]]
    for one in found:
        counts = [str(one.fates.get(fate, 0)) for fate in fates]
        lines.append([one.scene, str(one.acknowledged), str(one.lost), *counts, one.note])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code: 1 where a loss was silent."""
    parser = argparse.ArgumentParser(
        prog="python -m agentkit.testing.redis_honesty",
        description="What a Redis store loses under which settings, and who is told.",
    )
    parser.add_argument("--runs", type=int, default=50, help="runs of each scene")
    parser.add_argument("--entries", type=int, default=40, help="entries of each run")
    parser.add_argument("--only", default="", help="scenes whose name contains this text")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)

    async def work() -> list[Found]:
        names = [name for name in SCENES if given.only in name]
        return [await measure(name, runs=given.runs, entries=given.entries) for name in names]

    found = asyncio.run(work())
    shown = json.dumps([one._asdict() for one in found]) if given.json else table(found)
    sys.stdout.write(f"{shown}\n")
    return 1 if any(one.silent for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
