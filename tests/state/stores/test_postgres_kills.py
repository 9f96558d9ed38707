"""Postgres: a process killed in the middle of a transaction leaves all of it, or nothing."""

import random
import signal
from collections import Counter

import psycopg
import pytest

from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.upkeep import Policy, collect
from tests.state.stores.helpers import child
from tests.state.stores.moving import finished, interrupted
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

WORKER = """
import asyncio, os, sys
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.transactions import Proposal
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import row, summary

dsn, schema, go_on = sys.argv[1], sys.argv[2], int(sys.argv[3])

def say(word):
    print(word, flush=True)

async def main():
    store = PostgresCheckpointStore(dsn, schema=schema)
    head = await store.head("r")
    dead = head.epoch if head else None
    lease = await store.acquire("r", f"worker-{os.getpid()}", 15.0, supersede=dead)
    after = lease.head.seq
    while after < go_on or go_on == 0:
        def act(transaction, seq=after + 1):
            say("begun")
            transaction.execute(f"INSERT INTO {schema}.payment VALUES (%s)", (seq,))
            say("acted")
            return seq

        def conclude(seq):
            say("concluding")
            return Proposal((row(seq),), summary())

        assert await store.transact("r", act, conclude, after=after, lease=lease,
                                    threads=DaemonThreads(), timeout_seconds=60.0)
        after += 1
        say("done")
    await store.aclose()

asyncio.run(main())
"""

MOMENTS = ("begun", "acted", "concluding", "done")


def kill_workers(desk: Desk, *, kills: int, seed: int) -> None:
    """Kill so many workers, each at a moment by chance, and look at the database each time."""
    chance = random.Random(seed)
    desk.sql("CREATE SCHEMA {s}")
    desk.sql("CREATE TABLE {s}.payment (seq bigint)")
    before = 0
    killed = 0
    for _ in range(kills):
        worker = child(WORKER, desk.dsn, desk.schema, 0)
        assert worker.stdout is not None
        moment, count = chance.choice(MOMENTS), chance.randint(1, 3)
        while count:
            line = worker.stdout.readline().strip()
            assert line, worker.communicate()
            count -= line == moment
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        killed += worker.returncode == -signal.SIGKILL
        wait_for_the_dead(desk)
        entries, paid = both(desk)
        assert entries == paid
        assert len(entries) >= before
        before = len(entries)

    assert kills == killed
    assert before >= 1
    last = child(WORKER, desk.dsn, desk.schema, before + 1)
    assert "done" in last.communicate(timeout=60)[0]
    assert both(desk) == ([*range(1, before + 2)], [*range(1, before + 2)])


def both(desk: Desk) -> tuple[list[object], list[object]]:
    """Which entries and which effects there are."""
    ((entries, paid),) = desk.sql(
        "SELECT coalesce((SELECT array_agg(seq ORDER BY seq) FROM {s}.agentkit_entry), '{}'),"
        " coalesce((SELECT array_agg(seq ORDER BY seq) FROM {s}.payment), '{}')"
    )
    assert isinstance(entries, list)
    assert isinstance(paid, list)
    return entries, paid


def wait_for_the_dead(desk: Desk) -> None:
    """Until nobody holds the run's row: the server has noticed, or carried the commit out."""
    desk.sql("SELECT 1 FROM {s}.agentkit_run FOR UPDATE")


@pytest.mark.slow
def test_a_killed_worker_leaves_effect_and_entry_or_neither(desk: Desk) -> None:
    """Wherever SIGKILL meets it; the next worker goes on behind what is there."""
    kill_workers(desk, kills=8, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_hundred_killed_workers_leave_effect_and_entry_or_neither(desk: Desk) -> None:
    """The same a hundred times."""
    kill_workers(desk, kills=100, seed=2)


GC = """
import asyncio, sys
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.upkeep import Policy, collect

async def main():
    store = PostgresCheckpointStore(sys.argv[1], schema=sys.argv[2])
    policy = Policy(0.0, 0.0 if sys.argv[3] == "deleted" else None)
    async for pruned in collect(store, policy, clock=SystemClock()):
        print(pruned.run, pruned.verdict, flush=True)

asyncio.run(main())
"""

ENTRIES = "SELECT 1 FROM {s}.agentkit_entry WHERE number = (SELECT number FROM {s}.agentkit_run "
BARS = {
    "entombed": ENTRIES + "WHERE run = 'r2') FOR UPDATE",
    "deleted": "SELECT 1 FROM {s}.agentkit_store FOR UPDATE",
}
AT_THE_BAR = """
SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"{s}".agentkit_%'
"""
LEFT = """
SELECT r.run, r.seq, r.tip <> '', count(e.seq)
FROM {s}.agentkit_run AS r LEFT JOIN {s}.agentkit_entry AS e USING (number)
GROUP BY r.number ORDER BY r.run
"""


@pytest.mark.parametrize("session", ["goes on", "ends too"])
@pytest.mark.parametrize("doing", ["entombed", "deleted"])
async def test_gc_killed_in_the_middle_of_a_run_leaves_it_whole_or_removes_it(
    desk: Desk, doing: str, session: str
) -> None:
    """SIGKILL meets it when half of a run is gone, within the statement; whether the server carries
    that out or not, the run is as before or as it should be, and the next `gc` removes the rest.
    What is open was never touched.
    """
    store = desk.store()
    for run in ("r1", "r2", "r3"):
        await finished(store, run)
    await interrupted(store, "open")
    if doing == "deleted":
        assert {"entombed": 3, "open": 1} == await gc(store, "entombed")
    before = desk.sql(LEFT)
    bar = BARS[doing].replace("{s}", desk.schema)

    with psycopg.connect(desk.dsn) as other:
        other.execute(bar.encode())
        worker = child(GC, desk.dsn, desk.schema, doing)
        while not (waiting := desk.sql(AT_THE_BAR)):
            assert worker.poll() is None, worker.communicate()
        worker.send_signal(signal.SIGKILL)
        removed = worker.communicate()[0].count(doing)
        if session == "ends too":
            desk.sql("SELECT pg_terminate_backend(%s, 10000)", waiting[0][0])
        other.rollback()
    while desk.sql(AT_THE_BAR):
        pass
    wait_for_the_dead(desk)
    left = desk.sql(LEFT)
    again = await gc(store, doing)
    await store.aclose()

    still_open = {one for one in before if one[0] == "open"}
    whole = ({*left} & {*before}) - still_open
    tombstones = {(run, seq, False, 0) for run, seq, *_ in {*before} - still_open}
    removed_form = tombstones if doing == "entombed" else set()
    assert still_open <= {*left} <= {*before} | removed_form
    assert removed + (session == "goes on") == 3 - len(whole)
    assert {"open": 1, doing: len(whole)} == {
        verdict: count for verdict, count in again.items() if verdict != "young"
    }
    assert still_open | removed_form == {*desk.sql(LEFT)}


async def gc(store: PostgresCheckpointStore, doing: str) -> dict[str, int]:
    """What became of how many runs."""
    policy = Policy(0.0, 0.0 if doing == "deleted" else None)
    return Counter([one.verdict async for one in collect(store, policy, clock=SystemClock())])
