"""Bit flips: one bit of a database file is another one than was written."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a case can be repeated
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import apsw
import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.heads import Head, Lease, Row, RunSummary, Summary
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.codec import damaged, decode_rows
from agentkit.testing.disk.power import memory
from agentkit.testing.disk.traffic import SCOPES, agents_at_work, scope_of

__all__ = [
    "Database",
    "Flip",
    "Flips",
    "Verdict",
    "bit_flips",
    "database",
    "one_bit_of_each_byte",
    "random_bits",
]

Verdict: TypeAlias = Literal["harmless", "told", "entries", "head", "list", "claim", "crash"]
"""`harmless`: all reads say what was written. `told`: an error of ours. The others change what is
read without one: `entries`, `head`, a `list` of runs, what a `claim` gets that comes afterwards; or
the error is not ours, a `crash`."""

_FLIPPED = ("run-0", "run-1")
_HELD = "run-2"
_DELETED = "run-4"
_NEW = "run-6"
_KEY = "key"
_TTL_SECONDS = 86_400.0
_AHEAD_SECONDS = 1_000_000.0
"""How far ahead the clock was when the deleted run got its epoch; the next one counts from it."""

_LATER = 10_000.0


class Database(NamedTuple):
    """A database file, checkpointed, and what all reads say of it.

    It has finished runs, one that was claimed and has no entries, and the epoch of a deleted one.

    Args:
        content: of the file.
        places: for each page the table or index that it belongs to.
        said: see `_said`.
    """

    content: bytes
    places: Mapping[int, str]
    said: _Said


class Flip(NamedTuple):
    """One flipped bit and what came of it. `place`: the table or index."""

    bit: int
    place: str
    verdict: Verdict
    what: str

    @property
    def silent(self) -> bool:
        """Whether something else is read, and no error of ours says so."""
        return self.verdict not in {"harmless", "told"}


class Flips(NamedTuple):
    """What a campaign came to."""

    flips: tuple[Flip, ...]

    def counts(self) -> Counter[str]:
        """How many of each verdict."""
        return Counter(flip.verdict for flip in self.flips)

    def silent(self) -> list[Flip]:
        """Flips that change what is read, and nobody is told."""
        return [flip for flip in self.flips if flip.silent]


class _Said(NamedTuple):
    """What a store says: heads, verified entries and lists; then what is got by claiming."""

    heads: tuple[Head, ...]
    rows: tuple[tuple[Row, ...], ...]
    lists: tuple[tuple[RunSummary, ...], ...]
    claims: tuple[Lease | Claim, ...]


def database(seed: int = 1) -> Database:
    """Make a database with real runs."""
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        path = Path(name) / "runs.db"
        asyncio.run(_fill(path, seed))
        content, places = path.read_bytes(), _places(path)
        return Database(content, places, said=asyncio.run(_open(path)))


def random_bits(made: Database, numbers: Iterable[int], *, seed: int) -> list[int]:
    """The bit of each case of a campaign."""
    bits = len(made.content) * 8
    return [random.Random(f"{seed}:{n}").randrange(bits) for n in numbers]  # noqa: S311 - no secret


def one_bit_of_each_byte(made: Database, *, seed: int) -> list[int]:
    """For the whole of a small file."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return [byte * 8 + chance.randrange(8) for byte in range(len(made.content))]


def bit_flips(made: Database, bits: Iterable[int]) -> Flips:
    """Flip each bit by itself, open the store, read everything."""
    page = int.from_bytes(made.content[16:18], "big")
    flips = []
    with tempfile.TemporaryDirectory(dir=memory()) as name, asyncio.Runner() as runner:
        path = Path(name) / "runs.db"
        for bit in bits:
            for old in path.parent.iterdir():
                old.unlink()
            content = bytearray(made.content)
            content[bit // 8] ^= 1 << bit % 8
            path.write_bytes(content)
            verdict, what = runner.run(_judged(made.said, path))
            flips.append(Flip(bit, made.places.get(bit // 8 // page + 1, "free"), verdict, what))
    return Flips(tuple(flips))


async def _fill(path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    clock = FakeClock()
    store = SqliteCheckpointStore(path, clock=clock)
    await agents_at_work(store, chance, runs=_FLIPPED)
    await store.acquire(_HELD, "worker", _TTL_SECONDS)
    await store.claim_value(_KEY, token="one", ttl_seconds=_TTL_SECONDS)  # noqa: S106 - no secret
    await store.settle_value(_KEY, token="one", value="kept")  # noqa: S106 - no secret
    clock.set_now(clock.now() + _AHEAD_SECONDS)
    lease = await store.acquire(_DELETED, "worker", _TTL_SECONDS)
    await store.append(_DELETED, [], after=0, lease=lease, summary=Summary("running"), release=True)
    await store.delete_run(_DELETED)
    await store.aclose()


async def _judged(right: _Said, path: Path) -> tuple[Verdict, str]:
    try:
        said = await _open(path)
    except AgentkitError as error:
        return "told", f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return "crash", f"{type(error).__name__}: {error}"
    if said.rows != right.rows:
        return "entries", f"{[len(rows) for rows in said.rows]} entries are read"
    if said.heads != right.heads:
        return "head", ", ".join(sorted(_changed(right.heads, said.heads)))
    if said.lists != right.lists:
        return "list", f"{said.lists}"
    if said.claims != right.claims:
        return "claim", f"{said.claims}"
    return "harmless", ""


async def _open(path: Path) -> _Said:
    store = SqliteCheckpointStore(path, clock=FakeClock(elapsed=_LATER))
    try:
        heads, rows, lists = [], [], []
        for run in (*_FLIPPED, _HELD):
            head, read = await _run(store.scoped(scope_of(run)), run)
            heads.append(head)
            rows.append(read)
        for view in map(store.scoped, SCOPES):
            lists.append((await view.list_runs())[0])
            lists.append((await view.list_runs(status="done", agent="worker", limit=1))[0])
        claims = (
            await store.claim_value(_KEY, token="two", ttl_seconds=_TTL_SECONDS),  # noqa: S106
            await store.acquire(_NEW, "worker", _TTL_SECONDS),
        )
        return _Said(tuple(heads), tuple(rows), tuple(map(tuple, lists)), claims)
    finally:
        await store.aclose()


async def _run(view: JournalPort, run: str) -> tuple[Head, tuple[Row, ...]]:
    """Head and entries, checked as everybody checks them who reads a run."""
    head = await view.head(run) or Head(run)
    rows = tuple(await view.read(run))
    for _ in decode_rows(rows, after=0, before=b"", run_id=run):
        pass
    if len(rows) < head.seq:
        raise damaged(run, len(rows) + 1, "it is missing")
    return msgspec.structs.replace(head, expires_in_seconds=0.0), rows


def _changed(right: tuple[Head, ...], said: tuple[Head, ...]) -> set[str]:
    """Names of the fields of heads that are not what was written."""
    names: set[str] = set()
    for one, other in zip(right, said, strict=True):
        names |= _differing(one, other) - {"summary"}
        names |= _differing(one.summary, other.summary)
    return names


def _differing(one: msgspec.Struct | None, other: msgspec.Struct | None) -> set[str]:
    fields = one.__struct_fields__ if one is not None else ()
    return {name for name in fields if getattr(one, name) != getattr(other, name, None)}


def _places(path: Path) -> dict[int, str]:
    db = apsw.Connection(str(path))
    try:
        return {int(str(n)): str(name) for n, name in db.execute("SELECT pageno, name FROM dbstat")}
    finally:
        db.close()
