"""Postgres: who shares a commit, what a lost answer means, and what a transaction is set to."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from agentkit.core.contracts.errors import (
    HeadMoved,
    JournalDamaged,
    LeaseLost,
    NoteRefused,
    RunInUse,
    StoreUnreachable,
)
from agentkit.core.contracts.heads import Head, Renewal
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.checkpoints.adapters import _postgres_writer as writer
from agentkit.testing.servers import LoseAnswer, LoseRequest, PostgresServer, Proxy
from tests.state.stores.helpers import TTL_SECONDS, row, rows, started, summary
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

COMMITS = "SELECT count(DISTINCT xmin::text) FROM {s}.agentkit_entry WHERE seq = 2"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"


@pytest.fixture
async def store(desk: Desk) -> AsyncIterator[PostgresCheckpointStore]:
    """A new, empty store."""
    store = desk.store()
    yield store
    await store.aclose()


@contextmanager
def locked(desk: Desk, run: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Somebody holds the row of this run until the block ends."""
    with psycopg.connect(desk.dsn) as other:
        sql = f"SELECT 1 FROM {desk.schema}.agentkit_run WHERE run = %s FOR UPDATE"
        other.execute(sql.encode(), (run,))
        yield other


async def until(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    while not condition():  # noqa: ASYNC110 (nobody in this process could set an event)
        await asyncio.sleep(0)


async def until_waiting(desk: Desk) -> None:
    """Until a statement of the store waits for a lock."""
    with psycopg.connect(desk.dsn, autocommit=True) as db:
        await until(lambda: db.execute(WAITING, (f"%{desk.schema}%",)).fetchone() != (0,))


async def test_appends_that_come_meanwhile_share_the_next_commit(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """Whatever is asked for while a round trip is under way goes in one statement after it; each
    append has a verdict of its own, and one that is refused disturbs nobody.
    """
    leases = [await started(store, f"r{n}") for n in range(50)]
    ended = await started(store, "ended")
    await store.append("ended", rows(2, 2), after=1, lease=ended, summary=summary("done"))
    await started(store, "held")

    def append(n: int, after: int = 1, owner: str = "worker") -> "asyncio.Task[Head]":
        lease = leases[n]
        if owner != "worker":
            lease = type(lease)(lease.run, owner, lease.epoch, lease.ttl_seconds, lease.head)
        return asyncio.ensure_future(
            store.append(
                f"r{n}", rows(after + 1), after=after, lease=lease, summary=summary("parked")
            )
        )

    with locked(desk, "held") as other:
        blocked = asyncio.ensure_future(
            store.append("held", rows(2), after=1, lease=None, summary=summary())
        )
        await until_waiting(desk)
        good = [append(n) for n in range(48)]
        moved, lost = append(48, after=5), append(49, owner="somebody else")
        note = asyncio.ensure_future(
            store.append("ended", rows(4), after=3, lease=None, summary=summary())
        )
        await asyncio.sleep(0)
        other.rollback()
    heads = await asyncio.gather(*good)
    refused = await asyncio.gather(moved, lost, note, return_exceptions=True)

    assert [2] * 48 == [head.seq for head in heads]
    assert [HeadMoved, LeaseLost, NoteRefused] == [type(error) for error in refused]
    await blocked
    assert [(3,)] == desk.sql(COMMITS)  # those of `ended` and `held`, and one for all the others
    assert rows(1, 2) == await store.read("r0")
    assert rows(1) == await store.read("r48")


async def test_a_statement_carries_no_more_than_its_limit(
    desk: Desk, store: PostgresCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends that are large together go in several statements."""
    monkeypatch.setattr(writer, "MAX_STATEMENT_BYTES", 100)
    for n in range(6):
        await started(store, f"r{n}")
    with locked(desk, "r0") as other:
        first = asyncio.ensure_future(
            store.append("r0", rows(2), after=1, lease=None, summary=summary())
        )
        await until_waiting(desk)
        tasks = [
            asyncio.ensure_future(
                store.append(f"r{n}", [row(2, "x" * 30)], after=1, lease=None, summary=summary())
            )
            for n in range(1, 6)
        ]
        await asyncio.sleep(0)
        other.rollback()
    await asyncio.gather(first, *tasks)

    assert [(4,)] == desk.sql(COMMITS)  # 1, then 2, 2 and 1


async def test_two_appends_of_one_run_in_one_statement_follow_each_other(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """The second one finds what the first one wrote, whether it fits behind it or repeats it."""
    await started(store, "held")
    with locked(desk, "held") as other:
        first = asyncio.ensure_future(
            store.append("held", rows(2), after=1, lease=None, summary=summary())
        )
        await until_waiting(desk)
        tasks = [
            asyncio.ensure_future(
                store.append("new", rows(seq), after=seq - 1, lease=None, summary=summary())
            )
            for seq in (1, 2, 1, 3)
        ]
        await asyncio.sleep(0)
        other.rollback()
    heads = await asyncio.gather(first, *tasks)

    assert [2, 1, 2, 2, 3] == [head.seq for head in heads]
    assert rows(1, 3) == await store.read("new")


async def test_a_run_that_somebody_locks_keeps_nobody_else_from_the_disk(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """Its own append is given up after a while, and may be repeated."""
    store._engine.journal._wait_ms = 100
    for run in ("r", "other", "held"):
        await started(store, run)

    def note(run: str) -> "asyncio.Task[Head]":
        return asyncio.ensure_future(
            store.append(run, rows(2), after=1, lease=None, summary=summary())
        )

    with locked(desk, "r"):
        with locked(desk, "held"):
            tasks = [note("held")]
            await until_waiting(desk)
            tasks += [note("r"), note("other")]
            await asyncio.sleep(0)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[1], StoreUnreachable)
        assert "locked by another session" in str(found[1])
        assert isinstance(found[2], Head)

    assert 2 == (await note("r")).seq


async def test_a_renewal_waits_for_no_run_that_is_locked(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """The other leases are extended at once; the locked one as soon as it is free."""
    free, held = await started(store, "free"), await started(store, "held")
    left = "SELECT expires_ms FROM {s}.agentkit_run WHERE run = 'free'"
    before = desk.sql(left)
    answers: list[dict[str, Renewal]] = []

    with locked(desk, "held"):
        thread = threading.Thread(
            target=lambda: answers.append(store.renew({"free": free, "held": held}))
        )
        thread.start()
        await until(lambda: desk.sql(left) != before)
        assert [] == answers
    thread.join(30)

    assert [{"free": Renewal(1), "held": Renewal(1)}] == answers


@pytest.mark.parametrize("fault", [LoseAnswer, LoseRequest])
async def test_an_append_whose_connection_breaks_is_in_once(
    desk: Desk, postgres_server: PostgresServer, fault: type[LoseAnswer] | type[LoseRequest]
) -> None:
    """The store asks again by itself; the rows that are there already are found."""
    with Proxy(postgres_server.port) as proxy:
        store = desk.store(postgres_server.dsn(port=proxy.port))
        lease = await started(store, "r")
        for seq in range(2, 12):
            proxy.fail_next(fault(request=b"agentkit_append"))
            head = await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())
            assert seq == head.seq
        await store.aclose()

        assert {fault.__name__: 10} == proxy.struck
    assert [(11,)] == desk.sql("SELECT count(*) FROM {s}.agentkit_entry")


async def test_an_append_in_doubt_is_an_error_and_may_be_repeated(
    desk: Desk, postgres_server: PostgresServer
) -> None:
    """Where the second answer is lost too, whoever asked hears of it; the rows are in once."""
    with Proxy(postgres_server.port) as proxy:
        store = desk.store(postgres_server.dsn(port=proxy.port))
        lease = await started(store, "r")
        lost = LoseAnswer(request=b"agentkit_append")
        proxy.fail_next(lost, lost)

        with pytest.raises(StoreUnreachable):
            await store.append("r", rows(2), after=1, lease=lease, summary=summary(), release=True)
        head = await store.append(
            "r", rows(2), after=1, lease=lease, summary=summary(), release=True
        )
        await store.aclose()

    assert (2, "") == (head.seq, head.owner)
    assert [(2,)] == desk.sql("SELECT count(*) FROM {s}.agentkit_entry")


@pytest.mark.parametrize("fault", [LoseAnswer, LoseRequest])
async def test_a_claim_whose_connection_breaks_is_granted_once(
    desk: Desk, postgres_server: PostgresServer, fault: type[LoseAnswer] | type[LoseRequest]
) -> None:
    """Repeated by itself it is known again: it does not find the run held by itself, and what it
    took the run from is told and counted once.
    """
    with Proxy(postgres_server.port) as proxy:
        store = desk.store(postgres_server.dsn(port=proxy.port))
        dead = await started(store, "r")
        lost = fault(request=b"agentkit_acquire")

        proxy.fail_next(lost)
        new = await store.acquire("new", "worker", TTL_SECONDS)
        proxy.fail_next(lost)
        took = await store.acquire("r", "other", TTL_SECONDS, supersede=dead.epoch)
        proxy.fail_next(lost)
        same = await store.acquire("r", "other", TTL_SECONDS, supersede=took.epoch)
        claims = desk.sql("SELECT claims FROM {s}.agentkit_run ORDER BY run")
        head = await store.append("r", rows(2), after=1, lease=same, summary=summary())
        await store.aclose()

        assert {fault.__name__: 3} == proxy.struck
    assert [(0,), (2,)] == claims
    assert (False, True, True) == (new.took_over, took.took_over, same.took_over)
    assert (0, 1, 2) == (new.head.recoveries, took.head.recoveries, same.head.recoveries)
    assert took.epoch < same.epoch
    assert TTL_SECONDS - 5 < same.head.expires_in_seconds <= TTL_SECONDS
    assert "other" == head.owner


async def test_a_claim_in_doubt_shields_nobody_else(
    desk: Desk, postgres_server: PostgresServer
) -> None:
    """Where the second answer is lost too, whoever asked hears of it, and the run is held: also
    for another request of the same owner, which may be another one's.
    """
    with Proxy(postgres_server.port) as proxy:
        store = desk.store(postgres_server.dsn(port=proxy.port))
        await store.head("r")
        lost = LoseAnswer(request=b"agentkit_acquire")
        proxy.fail_next(lost, lost)

        with pytest.raises(StoreUnreachable):
            await store.acquire("r", "worker", TTL_SECONDS)
        for owner in ("worker", "other"):
            with pytest.raises(RunInUse):
                await store.acquire("r", owner, TTL_SECONDS)
        await store.aclose()

    assert [("worker",)] == desk.sql("SELECT owner FROM {s}.agentkit_run")


async def test_a_commit_is_durable_whatever_the_database_is_set_to(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    """Settings go with the transaction: they hold at its commit, and are gone after it."""
    database = postgres_dsn.rpartition("/")[2]
    postgres_server.sql(f"ALTER DATABASE {database} SET synchronous_commit = off")
    store = PostgresCheckpointStore(postgres_dsn)

    settings = await store.durability()
    await store.aclose()

    assert ("on", "off", "on") == settings
    with psycopg.connect(postgres_dsn) as db:
        shown = []
        for statement in ("SELECT agentkit.agentkit_set(1234)", "SELECT 1"):
            db.execute(statement)
            look = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"
            shown.append(db.execute(look).fetchone())
            db.commit()
    assert [("on", "1234ms"), ("off", "0")] == shown


async def test_a_release_is_in_the_commit_of_its_rows(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """Nobody finds the last entry and the lease still held, whenever the worker dies."""
    lease = await started(store, "r")

    await store.append("r", rows(2), after=1, lease=lease, summary=summary("done"), release=True)

    one = "SELECT r.owner, r.xmin = e.xmin FROM {s}.agentkit_run r JOIN {s}.agentkit_entry e"
    assert [("", True)] == desk.sql(f"{one} USING (number) WHERE e.seq = 2")


async def test_leases_and_epochs_go_by_the_servers_clock_alone(
    desk: Desk, store: PostgresCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is hours ahead takes no run that is held, and no later epoch."""
    await store.acquire("r", "worker", TTL_SECONDS)
    ahead = time.time() + 7_200.0
    monkeypatch.setattr(time, "time", lambda: ahead)

    with pytest.raises(RunInUse) as refused:
        await store.acquire("r", "other", TTL_SECONDS)
    new = await store.acquire("new", "other", TTL_SECONDS)

    assert 0 < refused.value.expires_in_seconds <= TTL_SECONDS
    assert new.epoch < ahead * 1000
    assert [] == desk.sql("SELECT 1 FROM {s}.agentkit_run WHERE expires_ms > %s", ahead * 1000)


async def test_an_entry_that_stands_where_the_head_ends_is_damage(
    desk: Desk, store: PostgresCheckpointStore
) -> None:
    """Nothing is written over it, and other runs of the same group are not harmed."""
    lease = await started(store, "r")
    await started(store, "held")
    desk.sql("INSERT INTO {s}.agentkit_entry SELECT number, 2, 'x', 'y' FROM {s}.agentkit_run")

    with pytest.raises(JournalDamaged) as damaged:
        await store.append("r", rows(2), after=1, lease=lease, summary=summary())
    desk.sql(
        "DELETE FROM {s}.agentkit_entry e USING {s}.agentkit_run r "
        "WHERE r.number = e.number AND run = 'held' AND e.seq = 2"
    )
    with locked(desk, "held") as other:
        first = asyncio.ensure_future(
            store.append("held", rows(2), after=1, lease=None, summary=summary())
        )
        await until_waiting(desk)
        pair = [
            asyncio.ensure_future(
                store.append(run, rows(after + 1), after=after, lease=None, summary=summary())
            )
            for run, after in (("r", 1), ("good", 0))
        ]
        await asyncio.sleep(0)
        other.rollback()
    found = await asyncio.gather(first, *pair, return_exceptions=True)

    assert 2 == damaged.value.seq
    assert [Head, JournalDamaged, Head] == [type(one) for one in found]
