"""Runs copied from one store into another: whole, as they are stored, or not at all."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidId,
    JournalTooNew,
    RunInUse,
    RunLocked,
    StoreFailedOver,
    StoreMisused,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.state.journal.journal import load
from agentkit.state.upkeep.whole import held, put, read_whole, stood_in
from agentkit.testing.faulty import Fault, FaultKind, FaultyStore
from tests.agents.kit import Hurried, context, then
from tests.state.stores.helpers import rows, summary
from tests.state.stores.moving import (
    SENDER,
    TASK,
    copied,
    exported,
    finished,
    imported,
    interrupted,
    newer,
    outcomes,
    rows_of,
)

SCOPES = (Scope(), Scope("acme"), Scope("acme", "ann"), Scope("", "%/é"))


@pytest.fixture
def other(clock: FakeClock) -> InMemoryCheckpointStore:
    """Another store, on the other side of the move."""
    return InMemoryCheckpointStore(clock=clock)


async def test_runs_move_with_their_bytes_scopes_and_heads(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """There and back again, all scopes, the newest heads included."""
    for scope in SCOPES:
        await finished(other, "r", scope=scope)

    there = await copied(other, store)
    back = InMemoryCheckpointStore()
    again = await copied(store, back)

    assert ["copied"] * 8 == [one.outcome for one in (*there, *again)]
    for scope in SCOPES:
        kept = await rows_of(other, "r", scope)
        assert 10 < len(kept)
        assert kept == await rows_of(store, "r", scope) == await rows_of(back, "r", scope)
        heads = [await one.scoped(scope).head("r") for one in (other, store, back)]
        assert all(head is not None and not head.owner for head in heads)
        assert 1 == len({(head.seq, head.check) for head in heads if head is not None})
        assert 1 == len({msgspec.json.encode(head.summary) for head in heads if head is not None})


async def test_copying_again_changes_nothing(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """What is there already stays as it is, its epoch too."""
    await finished(other, "r")
    await copied(other, store)
    before = await store.head("r")

    assert {"r": "there"} == outcomes(await copied(other, store))
    assert before == await store.head("r")


async def test_one_tenant_or_one_run_is_copied_alone(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """A tenant is all its users; a run that is nowhere is told."""
    for scope in SCOPES:
        await finished(other, "r", scope=scope)
        await finished(other, "s", scope=scope)

    moved = await copied(other, store, "r", "nobody", tenant="acme")

    assert {("acme", "r"), ("acme/ann", "r"), ("", "nobody")} == {
        (one.scope, one.run) for one in moved
    }
    assert {"r": "copied", "nobody": "RunNotFound"} == outcomes(moved)
    assert ["acme", "acme/ann"] == await store.scopes()


async def test_an_interrupted_run_goes_on_in_the_other_store(
    store: JournalPort, other: InMemoryCheckpointStore, clock: FakeClock
) -> None:
    """That its worker vanished is recorded, as by anybody who takes over, and is copied too."""
    await interrupted(other, "r")
    clock.advance(20)

    moved = await copied(other, store)

    assert [("copied", False)] == [(one.outcome, one.ended) for one in moved]
    state = await load(store, "r")
    assert (1, 1, "running") == (state.takeovers, state.recoveries, state.status)
    assert await rows_of(other, "r") == await rows_of(store, "r")
    assert {"r": "there"} == outcomes(await copied(other, store))
    for one in (store, other):
        head = await one.head("r")
        assert head is not None
        assert (state.seq, "") == (head.seq, head.owner)


async def test_entries_that_come_later_have_a_higher_epoch(
    store: JournalPort, other: InMemoryCheckpointStore, clock: FakeClock
) -> None:
    """Also where the source's clock was far ahead: epochs never decrease along seq."""
    clock.set_now(clock.now() + 1_000_000)
    await interrupted(other, "r")
    clock.set_now(clock.now() - 1_000_000)
    clock.advance(20)
    await copied(other, store)

    last = (await load(store, "r")).epoch
    lease = await store.acquire("r", "worker", 15.0)

    assert lease.epoch > last


async def test_a_run_that_somebody_works_on_is_left_out(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """It is told, the others go on, and nothing of it is in the destination."""
    await interrupted(other, "r")
    await finished(other, "s")

    assert {"r": "RunInUse", "s": "copied"} == outcomes(await copied(other, store))
    assert await store.head("r") is None


async def test_a_run_is_held_while_it_is_copied(store: JournalPort, clock: FakeClock) -> None:
    """No worker moves it on meanwhile; afterwards anybody may, at once."""
    await interrupted(store, "r")
    clock.advance(20)

    async with held(store, "r", clock=clock):
        with pytest.raises(RunInUse):
            await store.acquire("r", "worker", 15.0)

    assert not (await store.acquire("r", "worker", 15.0)).took_over


async def test_other_entries_under_the_same_id_stay(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """Each refusal says how they differ; the others are copied."""
    await finished(other, "other")
    await finished(store, "other")
    await finished(other, "new")
    kept = await rows_of(store, "other")

    moved = await copied(other, store)

    assert {"other": "RunIdReused", "new": "copied"} == outcomes(moved)
    assert "from entry 1 on" in next(str(one.error) for one in moved if one.error)
    assert kept == await rows_of(store, "other")


async def test_a_copy_that_went_on_is_not_overwritten_nor_one_that_is_older(
    store: JournalPort, other: InMemoryCheckpointStore, clock: FakeClock
) -> None:
    """Two stores hold it, and one of them knows more."""
    await interrupted(other, "r")
    clock.advance(20)
    await copied(other, store)
    lease = await store.acquire("r", "worker", 15.0)
    state = await load(store, "r")
    await store.append("r", rows(state.seq + 1), after=state.seq, lease=lease, summary=summary())

    [ahead] = await copied(other, store)
    assert "it has gone on there" in str(ahead.error)

    third = InMemoryCheckpointStore()
    kept = await rows_of(other, "r")
    first = await third.acquire("r", "worker", 15.0)
    await third.append("r", kept[:2], after=0, lease=first, summary=summary(), release=True)
    [behind] = await copied(other, third)
    assert "an older copy of it is there: 2 entries" in str(behind.error)


async def test_damaged_and_newer_runs_are_left_out_whole(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """Nothing is written to them, nor of them; the rest is copied."""
    await finished(other, "good")
    await finished(other, "damaged")
    await newer(other, "newer")
    data = other._data.runs["", "damaged"]
    row = data.rows[2]
    data.rows[2] = Row(row.seq, row.body.replace(b"look", b"l00k"), row.check)
    before = [await other.head(run) for run in ("damaged", "newer")]

    moved = outcomes(await copied(other, store))

    assert {"good": "copied", "damaged": "JournalDamaged", "newer": "JournalTooNew"} == moved
    assert ["good"] == [run.run for run in (await store.list_runs())[0]]
    after = [await other.head(run) for run in ("damaged", "newer")]
    assert [head.epoch for head in before if head] == [head.epoch for head in after if head]


@pytest.mark.parametrize("error", [StoreFailedOver, RunLocked, StoreMisused, InvalidId])
async def test_what_keeps_one_run_from_being_copied_leaves_out_that_run_alone(
    error: type[AgentkitError], other: InMemoryCheckpointStore
) -> None:
    """Its server was replaced, somebody has locked it, or the other store cannot keep it."""

    class Troubled(StoreWrapper):
        async def append(self, run: str, *args: Any, **options: Any) -> Head:
            if run == "bad":
                raise error("not this one")
            return await super().append(run, *args, **options)

    for run in ("a", "bad", "z"):
        await finished(other, run)

    clock = Hurried()
    moved = outcomes(await copied(other, Troubled(InMemoryCheckpointStore()), clock=clock))
    assert {"a": "copied", "bad": error.__name__, "z": "copied"} == moved
    lines = await exported(other)
    read = outcomes(await imported(lines, Troubled(InMemoryCheckpointStore()), clock=clock))
    assert {"a": "copied", "bad": error.__name__, "z": "copied"} == read


async def test_a_store_that_takes_nothing_refuses_once_and_at_the_beginning(
    tmp_path: Path, other: InMemoryCheckpointStore
) -> None:
    """One that a newer release made is no trouble of each run."""
    for run in ("a", "b"):
        await finished(other, run)
    with sqlite3.connect(tmp_path / "newer.db") as database:
        database.execute("PRAGMA application_id = 0x41674B74")
        database.execute("PRAGMA user_version = 999")
        database.execute("CREATE TABLE agentkit_run (run TEXT)")
    store = SqliteCheckpointStore(tmp_path / "newer.db")

    with pytest.raises(JournalTooNew):
        await copied(other, store)
    with pytest.raises(JournalTooNew):
        await imported(await exported(other), store)
    await store.aclose()


async def test_two_results_of_one_id_are_told_apart_in_words(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """How each of them ended, and when."""
    for place, task in ((store, "ended"), (other, "ended too")):
        lease = await place.acquire("r", "worker", 15.0)
        last = msgspec.structs.replace(summary("done"), updated_at=1_000 * len(task))
        await place.append("r", rows(1), after=0, lease=lease, summary=last, release=True)
        await place.entomb("r", updated_at=last.updated_at)

    [moved] = await copied(other, store)

    there, here = "1970-01-01 00:00:05.000+00:00", "1970-01-01 00:00:09.000+00:00"
    assert f"it has ended otherwise: done at {there} there, done at {here} here" in str(moved.error)


async def test_a_tombstone_stays_one(store: JournalPort, other: InMemoryCheckpointStore) -> None:
    """The same id and task get the stored result from the other store too."""
    await finished(other, "r")
    head = await other.head("r")
    assert head is not None
    assert head.summary is not None
    await other.entomb("r", updated_at=head.summary.updated_at)

    moved = await copied(other, store)

    assert [("copied", True, 0)] == [(one.outcome, one.tombstone, one.entries) for one in moved]
    left = await store.head("r")
    assert left is not None
    assert left.tombstone
    assert head.summary == left.summary
    llm = then([], "another answer")
    assert "done: r" == (await SENDER.run(TASK, context(llm, store, run_id="r"))).output
    assert [] == llm.requests
    assert {"r": "there"} == outcomes(await copied(other, store))


async def test_a_tombstone_whose_copying_was_cut_off_has_ended_all_the_same(
    store: JournalPort, other: InMemoryCheckpointStore, clock: FakeClock
) -> None:
    """Killed before the entombing: asking again gets the result, copying again ends it."""
    await finished(other, "r")
    head = await other.head("r")
    assert head is not None
    assert head.summary is not None
    await other.entomb("r", updated_at=head.summary.updated_at)
    whole = await read_whole(other, "r")
    lease = await store.acquire("r", "copier", 15.0)
    await store.append(
        "r", [stood_in(whole)], after=0, lease=lease, summary=whole.summary, release=True
    )

    llm = then([], "another answer")
    assert "done: r" == (await SENDER.run(TASK, context(llm, store, run_id="r"))).output
    assert "there" == await put(store, whole, clock=clock)
    left = await store.head("r")
    assert left is not None
    assert left.tombstone


async def test_an_end_that_one_store_no_longer_has_the_entries_of_is_the_same_end(
    store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """Whichever of the two was pruned since."""
    await finished(other, "r")
    await copied(other, store)
    head = await other.head("r")
    assert head is not None
    assert head.summary is not None

    await other.entomb("r", updated_at=head.summary.updated_at)
    assert {"r": "there"} == outcomes(await copied(other, store))
    assert {"r": "there"} == outcomes(await copied(store, other))
    assert await store.read("r")


async def test_what_reads_back_otherwise_is_told(other: InMemoryCheckpointStore) -> None:
    """A destination that answers and does not keep is found out."""

    class Forgetful(FaultyStore):
        async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
            return (await super().read(run, after=after, limit=limit))[:-1]

    await finished(other, "r")

    [moved] = await copied(other, Forgetful(InMemoryCheckpointStore()))

    assert "StoreDamaged" == type(moved.error).__name__
    assert "reads back otherwise" in str(moved.error)


@pytest.mark.parametrize("kind", ["before", "after", "twice"])
async def test_a_store_that_fails_now_and_then_gets_each_run_once(
    kind: FaultKind, store: JournalPort, other: InMemoryCheckpointStore
) -> None:
    """An append whose answer was lost is repeated, with the same bytes."""
    await finished(other, "r")
    faulty = FaultyStore(store, Fault(kind, operation="append", times=2))

    moved = await copied(other, faulty, clock=Hurried())

    assert faulty.fired
    assert {"r": "copied"} == outcomes(moved)
    assert await rows_of(other, "r") == await rows_of(store, "r")


async def test_a_store_that_is_gone_ends_the_copy(other: InMemoryCheckpointStore) -> None:
    """There is no point in trying the next run."""
    await finished(other, "r")
    gone = FaultyStore(InMemoryCheckpointStore(), Fault("before", operation="append", times=99))

    with pytest.raises(StoreUnreachable):
        await copied(other, gone, clock=Hurried())
    assert gone.fired


async def test_a_store_is_not_copied_into_itself(store: JournalPort) -> None:
    """Whatever object one reaches it by."""
    with pytest.raises(StoreMisused):
        await copied(store, store.scoped(Scope("other")))
