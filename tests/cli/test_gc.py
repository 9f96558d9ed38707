"""`agentkit gc`: what goes, what stays, and what is left of what went."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.cli.kit import Shell


def _heads(path: Path) -> dict[str, tuple[str, int, int, int]]:
    """Of each run its status, seq, whether the head still has a checksum, and its entries."""
    db = sqlite3.connect(path)
    query = (
        "SELECT run, status, seq, length(tip), "
        "(SELECT count(*) FROM agentkit_entry WHERE place >> 32 = number) FROM agentkit_run"
    )
    found = {run: tuple(rest) for run, *rest in db.execute(query)}
    db.close()
    return found


def _store(shell: Shell) -> None:
    """Two runs that have ended, one that waits and one left behind."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "d1").code
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d2").code
    shell.suspended("s1")
    shell.interrupted("i1")


def test_ended_runs_keep_their_result_and_open_ones_everything(shell: Shell) -> None:
    """Asked for again the run is not done again, and what waits can be answered."""
    _store(shell)
    before = _heads(shell.folder / "runs.db")

    planned = shell("gc", "--older-than", "0s", "--dry-run")
    assert before == _heads(shell.folder / "runs.db")
    pruned = shell("gc", "--older-than", "0s", "--json")
    after = _heads(shell.folder / "runs.db")

    assert "would be pruned: 2 runs" in planned.out
    assert (0, 2, 0, 2) == (
        pruned.code,
        pruned.json["pruned"],
        pruned.json["deleted"],
        pruned.json["kept"]["open"],
    )
    for run in ("d1", "d2"):
        assert (*before[run][:2], 0, 0) == after[run]
    for run in ("s1", "i1"):
        assert before[run] == after[run]
    again = shell("run", "agents:looker", "Look at a.", "--run-id", "d1")
    assert (0, "It is value of a\n") == (again.code, again.out)
    assert "<asked>" not in again.err
    assert 0 == shell("resume", "i1").code


def test_show_and_fork_say_that_the_entries_are_gone(shell: Shell) -> None:
    """The result and the usage are told; there is nothing to fork."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "d1").code
    assert 0 == shell("gc", "--older-than", "0s").code

    shown = shell("show", "d1")
    as_json = shell("show", "d1", "--json").json
    forked = shell("fork", "d1", "--from", "latest")

    assert 0 == shown.code
    for line in ("run     d1", "agent   looker", "task    Look at a.", "status  done"):
        assert line in shown.out
    assert "usage   2 answers" in shown.out
    assert "end     completed: It is value of a" in shown.out
    assert "Its entries were removed since; this is its result." in shown.out
    assert (True, "It is value of a", "done", []) == (
        as_json["tombstone"],
        as_json["output"],
        as_json["status"],
        as_json["entries"],
    )
    assert 3 == forked.code
    assert "its entries are gone" in forked.err
    assert "done" in shell("runs").out


def test_tombstones_go_when_they_are_asked_for(shell: Shell) -> None:
    """Never by themselves."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d1").code

    assert 0 == shell("gc", "--older-than", "0s").code
    assert {"d1"} == set(_heads(shell.folder / "runs.db"))
    gone = shell("gc", "--older-than", "0s", "--tombstones-older-than", "0s", "--json")
    assert 1 == gone.json["deleted"]
    assert {} == _heads(shell.folder / "runs.db")


def test_the_latest_stay_and_young_ones_too(shell: Shell) -> None:
    """As asked for."""
    for run in ("d1", "d2"):
        assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", run).code

    young = shell("gc", "--older-than", "1h")
    assert "kept 2 that are not old enough" in young.out
    latest = shell("gc", "--older-than", "0s", "--keep-latest", "1", "--json").json
    assert (1, 1) == (latest["pruned"], latest["kept"]["latest"])
    assert 0 < _heads(shell.folder / "runs.db")["d2"][3]


def test_a_run_that_cannot_be_read_is_named_and_stays(shell: Shell) -> None:
    """With a code that says that somebody should look."""
    for run in ("d1", "d2"):
        assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", run).code
    db = sqlite3.connect(shell.folder / "runs.db")
    query = "UPDATE agentkit_entry SET body = CAST('x' || body AS BLOB) WHERE place = (1 << 32) + 2"
    db.execute(query)
    db.commit()
    db.close()

    pruned = shell("gc", "--older-than", "0s", "--json")

    assert 1 == pruned.code
    assert [("d1", "unreadable")] == [(one["run"], one["why"]) for one in pruned.json["to_look_at"]]
    assert "kept 'd1'" in pruned.err
    heads = _heads(shell.folder / "runs.db")
    assert 0 < heads["d1"][3]
    assert 0 == heads["d2"][3]


def test_a_run_that_ended_in_doubt_goes_only_when_it_is_named(shell: Shell) -> None:
    """Without that it is told whose call is in doubt, and what to say."""
    shell.suspended("i1")
    assert 0 == shell("cancel", "i1").code
    path = shell.folder / "runs.db"

    for extra in ("--dry-run", "--json"):
        kept = shell("gc", "--older-than", "0s", extra)
        assert 0 == kept.code
        assert "kept 'i1': it ended with a call in doubt (send)" in kept.err
        assert "--in-doubt i1" in kept.err
    assert 0 < _heads(path)["i1"][3]
    pruned = shell("gc", "--older-than", "0s", "--in-doubt", "i1", "--json")

    assert 1 == pruned.json["pruned"]
    assert 0 == _heads(path)["i1"][3]


@pytest.mark.slow
def test_a_gc_that_is_killed_leaves_each_run_whole_a_tombstone_or_gone(shell: Shell) -> None:
    """At each write; the next one ends it."""
    for run in ("d1", "d2"):
        assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", run).code
    before = _heads(shell.folder / "runs.db")
    path = shell.folder / "runs.db"

    kills = 0
    command = ("gc", "--older-than", "0s", "--tombstones-older-than", "0s")
    for _ in shell.killed_at_each(*command):
        kills += 1
        for run, head in _heads(path).items():
            whole, tombstone = before[run], (*before[run][:2], 0, 0)
            assert head in {whole, tombstone}, (kills, run)

    assert 2 < kills
    assert 0 == shell(*command).code
    assert {} == _heads(path)


def test_space_is_the_disks_again(shell: Shell) -> None:
    """Told in bytes; --no-reclaim leaves the file as large as it was."""
    for run in range(3):
        done = shell("run", "agents:talker", "x" * 60_000, "--run-id", f"d{run}")
        assert 0 == done.code

    kept = shell("gc", "--older-than", "0s", "--no-reclaim", "--json").json
    assert (3, None) == (kept["pruned"], kept["freed_bytes"])
    size = (shell.folder / "runs.db").stat().st_size
    gave = shell("gc", "--older-than", "0s")
    found = re.search(r"gave back (\d+) bytes", gave.out)
    assert found is not None
    assert 100_000 < int(found[1])
    assert (shell.folder / "runs.db").stat().st_size < size


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "--older-than"),
        (("--older-than", "soon"), 2, "must look like"),
        (("--older-than", "7d", "--tombstones-older-than", "6d"), 2, "cannot be less"),
        (("--older-than", "7d", "--keep-latest", "-1"), 2, "keep-latest"),
        (("--older-than", "7d"), 6, "no store"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: tuple[str, ...], code: int, says: str, shell: Shell
) -> None:
    """In one line, with the exit code of its kind; no store is made."""
    refused = shell("gc", *arguments)

    assert code == refused.code, refused
    assert says in refused.err
    assert not (shell.folder / "runs.db").exists()
