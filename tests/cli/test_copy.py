"""`agentkit copy`: what it copies, tells and refuses, also when it is killed."""

import sqlite3
from pathlib import Path

import pytest

from tests.cli.kit import Shell


def _store(shell: Shell) -> None:
    """Two runs that have ended, one of another tenant, one that waits and one left behind."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "d1").code
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d2", "--tenant", "acme").code
    shell.suspended("s1")
    shell.interrupted("i1")


def _journal(path: Path) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Every entry by scope and run, as anybody may read it."""
    db = sqlite3.connect(path)
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for scope, run, seq, body in db.execute("SELECT * FROM agentkit_journal ORDER BY 1, 2, 3"):
        found.setdefault((scope, run), []).append((seq, body))
    db.close()
    return found


def test_all_runs_of_all_tenants_are_in_the_other_store(shell: Shell) -> None:
    """And go on there; what was done before is not done again."""
    _store(shell)

    copied = shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--json")

    assert 0 == copied.code, copied
    assert (4, 0, []) == (
        copied.json["copied"],
        copied.json["already_there"],
        copied.json["left_out"],
    )
    assert [{"scope": "", "run": run} for run in ("i1", "s1")] == copied.json["not_ended"]
    assert _journal(shell.folder / "runs.db") == _journal(shell.folder / "b.db")
    question = shell("show", "s1", "--store", "sqlite:///b.db", "--json").json["questions"][0]["id"]
    decided = ("--answer", f"{question}=done:it was sent")
    assert 0 == shell("resume", "s1", *decided, "--store", "sqlite:///b.db").code
    went_on = shell("resume", "i1", "--store", "sqlite:///b.db")
    assert (0, "It is value of a\n") == (went_on.code, went_on.out)
    assert "a\n" == (shell.folder / "sent").read_text()


def test_copying_tells_what_a_person_must_know(shell: Shell) -> None:
    """Runs that are in two stores now, and what is not copied; a second time nothing is new."""
    _store(shell)

    first = shell("copy", "sqlite:///runs.db", "sqlite:///b.db")
    second = shell("copy", "sqlite:///runs.db", "sqlite:///b.db")

    assert "copied 4 runs" in first.err
    assert "2 of these runs are in both places now" in first.err
    assert "idempotency keys" in first.err
    assert "ToolContext.once" in first.err
    assert (0, "") == (second.code, second.out)
    assert "copied 0 runs, 0 entries, 4 were there already" in second.err


def test_one_run_or_one_tenant(shell: Shell) -> None:
    """As asked for; a run that is nowhere is a code of its own."""
    _store(shell)

    assert 0 == shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--run", "d1").code
    assert {("", "d1")} == set(_journal(shell.folder / "b.db"))
    assert 0 == shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--tenant", "acme").code
    assert {("", "d1"), ("acme", "d2")} == set(_journal(shell.folder / "b.db"))
    nobody = shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--run", "nobody")
    assert 3 == nobody.code
    assert "does not exist" in nobody.err


def test_a_run_that_is_worked_on_and_one_that_is_other_there_are_left_out(shell: Shell) -> None:
    """Named, with a code that says so; the rest is copied."""
    _store(shell)
    other = ("run", "agents:talker", "Talk.", "--run-id", "d1", "--store", "sqlite:///b.db")
    assert 0 == shell(*other).code
    hold = shell.touch("hold-tool")
    worker = shell.start("run", "agents:looker", "Look at a.", "--run-id", "live")
    try:
        assert worker.stderr is not None
        while b"<looking>" not in worker.stderr.readline():
            pass
        copied = shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--json")
    finally:
        hold.unlink()
        worker.communicate(timeout=60)

    assert 1 == copied.code, copied
    assert {"d1": "RunIdReused", "live": "RunInUse"} == {
        one["run"]: one["error"] for one in copied.json["left_out"]
    }
    assert 3 == copied.json["copied"]
    assert 0 == worker.returncode
    assert ("", "live") not in _journal(shell.folder / "b.db")


@pytest.mark.slow
def test_a_copy_that_is_killed_leaves_each_run_whole_or_not_there(shell: Shell) -> None:
    """At each write to either store; copying again always ends it, and records one takeover."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d1").code
    shell.interrupted("i1")

    kills = 0
    for _ in shell.killed_at_each("copy", "sqlite:///runs.db", "sqlite:///b.db"):
        kills += 1
        if (shell.folder / "b.db").exists():
            source = _journal(shell.folder / "runs.db")
            for key, entries in _journal(shell.folder / "b.db").items():
                assert entries == source[key], (kills, key)

    assert 5 < kills
    assert 1 == shell("show", "i1").out.count("CRASH")
    assert _journal(shell.folder / "runs.db") == _journal(shell.folder / "b.db")
    went_on = shell("resume", "i1", "--store", "sqlite:///b.db")
    assert (0, "It is value of a\n") == (went_on.code, went_on.out)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("sqlite:///runs.db", "sqlite:///runs.db"), 6, "the same store"),
        (("sqlite:///nowhere.db", "sqlite:///b.db"), 6, "no store"),
        (("sqlite:///runs.db", "what"), 2, "not a store URL"),
        (("sqlite:///runs.db", "sqlite:///b.db", "--run", ""), 2, "non-empty"),
        (("sqlite:///runs.db",), 2, "DESTINATION"),
    ],
)
def test_what_cannot_be_copied_is_refused_in_one_line(
    arguments: tuple[str, ...], code: int, says: str, shell: Shell
) -> None:
    """With the exit code of its kind; nothing is made."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "r1").code

    refused = shell("copy", *arguments)

    assert code == refused.code, refused
    assert says in refused.err
    assert "Traceback" not in refused.err
    assert not (shell.folder / "b.db").exists()
    assert not (shell.folder / "nowhere.db").exists()
