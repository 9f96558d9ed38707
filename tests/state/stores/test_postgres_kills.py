"""Postgres: a worker killed within a transactional tool leaves effect and entry, or neither."""

import random
import signal

import pytest

from tests.state.stores.helpers import child
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


def test_a_killed_worker_leaves_effect_and_entry_or_neither(desk: Desk) -> None:
    """Wherever SIGKILL meets it; the next worker goes on behind what is there."""
    kill_workers(desk, kills=8, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_hundred_killed_workers_leave_effect_and_entry_or_neither(desk: Desk) -> None:
    """The same a hundred times."""
    kill_workers(desk, kills=100, seed=2)
