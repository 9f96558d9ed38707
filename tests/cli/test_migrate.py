"""`agentkit migrate`: what a store's schema lacks, applied or printed."""

import signal
import sqlite3

from tests.cli.kit import Shell

LATER = """
from agentkit.state.checkpoints.adapters import _migrations as migrations

first = migrations.steps("sqlite")
text = "CREATE TABLE agentkit_more (at INTEGER);\\nPRAGMA user_version = 2;\\n"
migrations.steps = lambda dialect: (*first, migrations.step_of(2, "more", text))
"""

DIES = (
    LATER
    + """
import os, signal
from agentkit.state.checkpoints.adapters import _sqlite_files

def die(db, *, version):
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE agentkit_more (at INTEGER)")
    os.kill(os.getpid(), signal.SIGKILL)

_sqlite_files.bring_up = die
"""
)


def _schema(shell: Shell) -> tuple[int, bool]:
    db = sqlite3.connect(shell.folder / "runs.db")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    more = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'agentkit_more'").fetchone()
    db.close()
    return version, more is not None


def test_a_later_release_brings_the_schema_up_once(shell: Shell) -> None:
    """And an older one refuses it from then on, without a trace."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "r1").code
    later = shell.startup(LATER)

    printed = shell("migrate", "--print", PYTHONPATH=later)
    assert (1, False) == _schema(shell)
    first = shell("migrate", PYTHONPATH=later)
    again = shell("migrate", "--json", PYTHONPATH=later)
    refused = shell("show", "r1", "--json")

    assert (0, "applied 002 more\n") == (first.code, first.out)
    assert (2, True) == _schema(shell)
    assert "-- 001 journal: applied" in printed.out
    assert "-- 002 more: lacking\nCREATE TABLE agentkit_more" in printed.out
    assert [(True, False)] * 2 == [
        (step["applied"], step["applied_now"]) for step in again.json["steps"]
    ]
    assert (6, "JournalTooNew") == (refused.code, refused.json["error"])
    assert 0 == shell("show", "r1", PYTHONPATH=later).code


def test_a_migration_that_is_killed_is_done_by_the_next(shell: Shell) -> None:
    """SIGKILL in the middle of a step leaves the schema as it was."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "r1").code

    killed = shell("migrate", PYTHONPATH=shell.startup(DIES, name="dies"))
    assert -signal.SIGKILL == killed.code
    assert 0 == shell("show", "r1").code
    later = shell.startup(LATER)
    assert "applied 002 more\n" == shell("migrate", PYTHONPATH=later).out
    assert (2, True) == _schema(shell)


def test_a_store_without_a_schema_has_nothing_to_do(shell: Shell) -> None:
    """Which is said; a new file gets the whole schema, and none to be looked at."""
    memory = shell("migrate", "--store", "memory://")
    assert 0 == memory.code
    assert "nothing to do" in memory.err

    printed = shell("migrate", "--print")
    assert "-- 001 journal: lacking" in printed.out
    assert "CREATE TABLE agentkit_run" in printed.out
    assert not (shell.folder / "runs.db").exists()
    assert "applied 001 journal\n" == shell("migrate").out
    assert "the schema is up to date: 001 journal\n" == shell("migrate").out
