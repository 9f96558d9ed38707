"""Steps of a Postgres schema: each is applied once, whole, whoever begins and whoever is killed."""

import signal
import subprocess

import pytest

from agentkit.core.contracts.errors import JournalTooNew
from agentkit.state.checkpoints.adapters import _migrations as migrations
from tests.state.stores import planted
from tests.state.stores.helpers import child, finish, rows, started
from tests.state.stores.planted import STEPS_ON_POSTGRES
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.postgres

RUNS = 60

OPENS = """
import asyncio, os, signal, sys
import psycopg
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from tests.state.stores.planted import later_release

later_release()
kill_at, calls = int(sys.argv[3]), 0
if kill_at:
    class Killed(psycopg.Cursor):
        def execute(self, *arguments, **options):
            global calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().execute(*arguments, **options)
    psycopg.Cursor = Killed

async def main():
    store = PostgresCheckpointStore(sys.argv[1], schema=sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.head("r0")
    await store.aclose()

asyncio.run(main())
"""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is of a release that knows more steps."""
    monkeypatch.setattr(migrations, "steps", planted.steps)


async def old_store(desk: Desk, runs: int = RUNS) -> None:
    """A store of this release with runs in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "steps", planted.only_the_first)
        store = desk.store()
        for number in range(runs):
            await started(store, f"r{number}")
        await store.aclose()


def state(desk: Desk) -> tuple[object, object, object]:
    """The schema, how many runs have their length filled in, and how often a step noted itself."""

    def count(table: str) -> object:
        ((there,),) = desk.sql(f"SELECT to_regclass('{{s}}.{table}') IS NOT NULL")
        return desk.sql(f"SELECT count(*) FROM {{s}}.{table}")[0][0] if there else -1

    ((version,),) = desk.sql("SELECT max(version) FROM {s}.agentkit_schema")
    return version, count("agentkit_length"), count("agentkit_noted")


def opener(desk: Desk, kill_at: int = 0) -> "subprocess.Popen[str]":
    """A process of the later release; with its number of a statement at which it is killed."""
    return child(OPENS, desk.dsn, desk.schema, kill_at)


@pytest.mark.usefixtures("later")
async def test_whoever_opens_an_older_schema_brings_it_up(desk: Desk) -> None:
    """Its runs are as they were, and the older release refuses it from then on."""
    await old_store(desk, 3)
    assert (1, -1, -1) == state(desk)

    store = desk.store()
    lacking = await store.migrations()
    assert (1, -1, -1) == state(desk)
    found = await store.read("r2")
    await store.aclose()

    assert rows(1) == found
    assert [True, False, False, False] == [step.applied for step in lacking]
    assert (len(STEPS_ON_POSTGRES), 3, 1) == state(desk)
    with pytest.raises(JournalTooNew, match="has schema 4, this release knows schema 1"):
        await old_store(desk, 1)


@pytest.mark.slow
async def test_of_many_that_begin_at_once_each_step_is_done_once(desk: Desk) -> None:
    """They wait for one another, in the middle of a step too; each row is changed once."""
    await old_store(desk)
    starters = [opener(desk) for _ in range(10)]
    for one in starters:
        assert one.stdout is not None
        assert "ready\n" == one.stdout.readline()
    for one in starters:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()

    for one in starters:
        finish(one)

    assert (len(STEPS_ON_POSTGRES), RUNS, 1) == state(desk)


@pytest.mark.slow
async def test_a_migration_that_is_killed_is_carried_on(desk: Desk) -> None:
    """SIGKILL before each of its statements: what was filled stays filled, a step is there whole or
    not at all, and the next opener ends it.
    """
    killed = 0
    seen = set()
    for number in range(4, 200, 4):
        await old_store(desk)
        process = opener(desk, number)
        process.communicate("\n", timeout=60)
        if process.returncode == 0:
            assert (len(STEPS_ON_POSTGRES), RUNS, 1) == state(desk)
            break
        assert -signal.SIGKILL == process.returncode
        killed += 1
        version, filled, noted = state(desk)
        seen.add(filled)
        assert filled in {-1, 0, 25, 50, 60}, (number, filled)
        assert (noted == 1) == (version == len(STEPS_ON_POSTGRES))
        next_one = opener(desk)
        next_one.communicate("\n", timeout=60)
        assert 0 == next_one.returncode
        assert (len(STEPS_ON_POSTGRES), RUNS, 1) == state(desk)
        desk.sql("DROP SCHEMA {s} CASCADE")

    assert 8 < killed
    assert {-1, 0, 25, 50, 60} == seen
