"""Entries that somebody changes behind the store's back: what is seen, and what cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentkit.agents.settling import settle_call
from agentkit.core.contracts.errors import JournalDamaged, RunExpired
from agentkit.core.contracts.heads import Head
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.state.journal.codec import checksum
from agentkit.state.journal.journal import load
from agentkit.state.upkeep import Policy, collect
from tests.agents.kit import context, then
from tests.state.stores.moving import SENDER, TASK, copied, finished, interrupted, outcomes
from tests.state.stores.tampering import KINDS, forget_check, removed, tamper

_ADDRESSES = {
    "postgres": "postgres_server",
    "pgbouncer": "postgres_server",
    "redis": "redis_url",
    "redis_cluster": "redis_cluster_url",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_entries_that_were_changed_are_an_error(
    kind: str, store: JournalPort, request: pytest.FixtureRequest
) -> None:
    """Edited, moved, removed, replayed or cut off: nobody reads on, copies or prunes the run.

    On Redis an ended run without its log is a tombstone, since the log has a time to live.
    """
    name = request.node.callspec.params["store"]
    await finished(store, "r")

    def address() -> str:
        given = request.getfixturevalue(_ADDRESSES[name])
        return given if isinstance(given, str) else str(given.dsn())

    tamper(store, "r", KINDS[kind], address=address)
    if name.startswith("redis") and kind == "emptied":
        assert "done" == (await load(store, "r")).base.status
        return

    with pytest.raises((JournalDamaged, RunExpired)):
        await load(store, "r")
    with pytest.raises((JournalDamaged, RunExpired)):
        await SENDER.run(TASK, context(then([]), store, run_id="r"))
    [moved] = await copied(store, InMemoryCheckpointStore())
    assert isinstance(moved.error, JournalDamaged | RunExpired)
    policy = Policy(0)
    found = collect(store, policy, clock=FakeClock(now=1e11))
    assert ["unreadable"] == [one.verdict async for one in found]


@pytest.mark.parametrize("emptied", [False, True])
async def test_an_open_run_whose_head_has_lost_its_checksum_is_never_begun_anew(
    emptied: bool, store: JournalPort, clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    """A head without a checksum is what is left of a run only where it says how that ended."""
    name = request.node.callspec.params["store"]
    await interrupted(store, "r")
    clock.advance(20)

    def address() -> str:
        given = request.getfixturevalue(_ADDRESSES[name])
        return given if isinstance(given, str) else str(given.dsn())

    if emptied:
        tamper(store, "r", KINDS["emptied"], address=address)
    forget_check(store, "r", address=address)

    with pytest.raises((JournalDamaged, RunExpired)):
        await load(store, "r")
    llm = then([], "begun anew")
    with pytest.raises((JournalDamaged, RunExpired)):
        await SENDER.run(TASK, context(llm, store, run_id="r"))
    assert [] == llm.requests
    with pytest.raises((JournalDamaged, RunExpired)):
        await settle_call(store, "r", "1.0", Decision("done", "sent"))
    [moved] = await copied(store, InMemoryCheckpointStore())
    assert isinstance(moved.error, JournalDamaged | RunExpired)


@pytest.mark.parametrize(
    "store",
    ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)],
    indirect=True,
)
async def test_a_chain_that_was_computed_anew_is_not_the_one_of_the_head(
    store: JournalPort, request: pytest.FixtureRequest
) -> None:
    """Whoever can compute checksums must also forge the head."""
    await finished(store, "r")

    def forged(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        check, found = b"", []
        for body, _ in pairs:
            changed = body.replace(b"seen", b"s33n")
            check = checksum(check, changed)
            found.append((changed, check))
        return found

    tamper(store, "r", forged, address=lambda: request.getfixturevalue("postgres_server").dsn())

    with pytest.raises(JournalDamaged, match="the one that the head tells"):
        await load(store, "r")


async def test_an_older_file_put_back_is_not_seen(tmp_path: Path, clock: FakeClock) -> None:
    """A backup of a whole store is a store as it was: nothing in it tells of what came later."""
    path, backup = tmp_path / "runs.db", tmp_path / "backup.db"
    store = SqliteCheckpointStore(path, clock=clock)
    await interrupted(store, "r")
    await store.aclose()
    shutil.copy(path, backup)
    older = (await load(store, "r")).seq
    clock.advance(20)
    lease = await store.acquire("r", "worker", 15.0)
    await store.append("r", [], after=older, lease=lease, summary=_summary(lease.head))
    await copied(store, InMemoryCheckpointStore(clock=clock))
    await store.aclose()

    shutil.copy(backup, path)

    again = SqliteCheckpointStore(path, clock=clock)
    assert older == (await load(again, "r")).seq
    newest = (await again.acquire("r", "worker", 15.0)).epoch
    assert newest > (await load(again, "r")).epoch
    await again.aclose()


async def test_a_damaged_run_that_somebody_holds_is_an_error_too(clock: FakeClock) -> None:
    """Its head is another one at each look, since the time that is left grows shorter."""

    class Ticking(StoreWrapper):
        async def head(self, run: str) -> Head | None:
            clock.advance(0.01)
            return await super().head(run)

    store = InMemoryCheckpointStore(clock=clock)
    await interrupted(store, "r")
    store._data.runs["", "r"].rows.pop()

    with pytest.raises(JournalDamaged, match="entry 4 is missing"):
        await load(Ticking(store), "r")
    moved = await copied(Ticking(store), InMemoryCheckpointStore())
    assert {"r": "JournalDamaged"} == outcomes(moved)


def test_every_kind_changes_something() -> None:
    """None of them is a change that leaves all as it was."""
    pairs = [(b"%d seen" % n, b"%d" % n) for n in range(8)]

    for kind in KINDS.values():
        assert pairs != kind(pairs)
    assert 7 == len(removed(pairs))


def _summary(head: Head):  # type: ignore[no-untyped-def]
    assert head.summary is not None
    return head.summary
