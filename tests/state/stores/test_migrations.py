"""Steps of a SQLite schema: each is applied once, whole, whoever begins and whoever is killed."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import JournalTooNew
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.checkpoints.adapters import _migrations as migrations
from tests.state.stores import planted
from tests.state.stores.helpers import child, contents, finish, rows, started
from tests.state.stores.planted import STEPS

RUNS = 200

OPENS = """
import asyncio, os, signal, sys
import apsw
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.state.stores.planted import later_release

later_release()
kill_at, calls = int(sys.argv[2]), 0
if kill_at:
    class Killed(apsw.Connection):
        def execute(self, *arguments, **options):
            global calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().execute(*arguments, **options)
    apsw.Connection = Killed

async def main():
    store = SqliteCheckpointStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    applied = await store.migrate()
    print([step.number for step in applied])
    await store.aclose()

asyncio.run(main())
"""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is of a release that knows more steps."""
    monkeypatch.setattr(migrations, "steps", planted.steps)


async def _old_store(path: Path, runs: int = RUNS) -> None:
    """A store of this release with runs in it."""
    store = SqliteCheckpointStore(path)
    for number in range(runs):
        await started(store, f"r{number}")
    await store.aclose()


def _state(path: Path) -> tuple[int, int, int]:
    """The schema, how many runs have their length filled in, and how often a step noted itself."""
    db = sqlite3.connect(path)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    has = db.execute("SELECT name FROM sqlite_schema WHERE name = 'agentkit_length'").fetchone()
    filled = db.execute("SELECT count(*) FROM agentkit_length").fetchone()[0] if has else -1
    noted = db.execute("SELECT name FROM sqlite_schema WHERE name = 'agentkit_noted'").fetchone()
    count = db.execute("SELECT count(*) FROM agentkit_noted").fetchone()[0] if noted else 0
    db.close()
    return version, filled, count


def test_the_steps_of_this_release_note_themselves() -> None:
    """They are numbered without a gap, and each sets the number that its file has."""
    steps = migrations.steps("sqlite")

    assert [*range(1, len(steps) + 1)] == [step.number for step in steps]
    for step in steps:
        assert f"PRAGMA user_version = {step.number};" in step.sql


@pytest.mark.usefixtures("later")
async def test_whoever_opens_an_older_store_brings_it_up(tmp_path: Path) -> None:
    """Its runs are as they were; a new store has all steps at once."""
    path = tmp_path / "runs.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "steps", planted.only_the_first)
        await _old_store(path, 3)
    assert 1 == _state(path)[0]

    store = SqliteCheckpointStore(path)
    assert rows(1) == await store.read("r2")
    await store.aclose()
    new = SqliteCheckpointStore(tmp_path / "new.db")
    assert None is await new.head("r")
    await new.aclose()

    assert (len(STEPS), 3, 1) == _state(path)
    assert (len(STEPS), 0, 1) == _state(tmp_path / "new.db")


@pytest.mark.usefixtures("later")
async def test_looking_at_the_steps_changes_nothing(tmp_path: Path) -> None:
    """Neither a store that lacks some nor one that is not there."""
    path = tmp_path / "runs.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "steps", planted.only_the_first)
        await _old_store(path, 1)
    before = contents(tmp_path)

    known = await SqliteCheckpointStore(path).migrations()
    missing = await SqliteCheckpointStore(tmp_path / "none.db").migrations()

    assert [True, *[False] * (len(STEPS) - 1)] == [step.applied for step in known]
    assert [False] * len(STEPS) == [step.applied for step in missing]
    assert before == contents(tmp_path)


async def test_an_older_release_refuses_a_newer_store(tmp_path: Path) -> None:
    """Before anything is written, whether it opens it, looks at its steps or migrates."""
    path = tmp_path / "runs.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "steps", planted.steps)
        await _old_store(path, 1)
    before = contents(tmp_path)

    store = SqliteCheckpointStore(path)
    for act in (store.migrations, store.migrate, lambda: store.head("r0")):
        with pytest.raises(JournalTooNew, match="Upgrade"):
            await act()
    assert before == contents(tmp_path)


async def test_f102_of_twenty_that_begin_at_once_each_step_is_done_once(tmp_path: Path) -> None:
    """F102: they wait for one another, and all of them go on with the newest schema."""
    path = tmp_path / "runs.db"
    await _old_store(path)
    starters = [child(OPENS, path, 0) for _ in range(20)]
    for one in starters:
        assert one.stdout is not None
        assert "ready\n" == one.stdout.readline()
    for one in starters:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()

    for one in starters:
        finish(one)

    assert (len(STEPS), RUNS, 1) == _state(path)


@pytest.mark.slow
async def test_f102_a_migration_that_is_killed_is_carried_on(tmp_path: Path) -> None:
    """F102: SIGKILL at each statement; what was filled stays so, and the next opener ends it."""
    killed = 0
    for number in range(8, 100, 3):
        path = tmp_path / f"runs-{number}.db"
        await _old_store(path, 60)
        process = child(OPENS, path, number)
        process.communicate("\n", timeout=60)
        if process.returncode == 0:
            assert (len(STEPS), 60, 1) == _state(path)
            break
        assert -signal.SIGKILL == process.returncode
        killed += 1
        version, filled, noted = _state(path)
        assert filled in {-1, 0, 25, 50, 60}, (number, filled)
        assert (noted == 1) == (version == len(STEPS))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrations, "steps", planted.steps)
            store = SqliteCheckpointStore(path)
            assert rows(1) == await store.read("r59")
            await store.aclose()
        assert (len(STEPS), 60, 1) == _state(path)
    assert 4 < killed
