"""`agentkit export` and `agentkit import`: a file in between."""

import json
import signal

import pytest

from tests.cli.kit import Shell


def _store(shell: Shell) -> None:
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "d1").code
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d2", "--tenant", "acme").code
    shell.suspended("s1")


def test_runs_go_through_a_file_into_another_store(shell: Shell) -> None:
    """What is shown there is what is shown here, and what waits can be answered."""
    _store(shell)

    written = shell("export", "--output", "runs.jsonl", "--json")
    read = shell("import", "runs.jsonl", "--store", "sqlite:///b.db", "--json")

    assert (0, 0) == (written.code, read.code), (written, read)
    assert 3 == written.json["exported"] == read.json["imported"]
    assert [{"scope": "", "run": "s1"}] == read.json["not_ended"]
    for run in ("d1", "s1"):
        here = shell("show", run, "--json").json
        there = shell("show", run, "--json", "--store", "sqlite:///b.db").json
        assert here == there
    assert 0o600 == (shell.folder / "runs.jsonl").stat().st_mode & 0o777
    assert ["runs.jsonl"] == [path.name for path in shell.folder.glob("*runs.jsonl*")]


def test_standard_output_has_the_lines_and_nothing_else(shell: Shell) -> None:
    """So that a pipe is enough; each line is JSON."""
    _store(shell)

    exported = shell("export", "--run", "d1")
    (shell.folder / "one.jsonl").write_text(exported.out)

    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert ["agentkit_export", "run", "entry"] == [line["kind"] for line in lines][:3]
    assert {"kind": "end", "runs": 1, "entries": len(lines) - 3} == {
        name: value for name, value in lines[-1].items() if name != "seal"
    }
    assert "exported 1 runs" in exported.err
    assert 0 == shell("import", "one.jsonl", "--store", "sqlite:///b.db").code
    piped = shell("import", "-", "--store", "sqlite:///c.db")
    assert 1 == piped.code
    assert "does not begin as an export" in piped.err


def test_a_damaged_file_gives_what_is_whole_in_it_and_says_what_is_not(shell: Shell) -> None:
    """With the run and the line, and a code that says so."""
    _store(shell)
    text = shell("export").out
    assert "value of a" in text
    (shell.folder / "bad.jsonl").write_text(text.replace("value of a", "value of b", 1))

    read = shell("import", "bad.jsonl", "--store", "sqlite:///b.db", "--json")

    assert 1 == read.code
    [damage] = read.json["left_out"]
    assert ("ExportDamaged", "d1") == (damage["error"], damage["run"])
    assert "value of a" in text.splitlines()[damage["line"] - 1]
    assert 2 == read.json["imported"]
    assert 3 == shell("show", "d1", "--store", "sqlite:///b.db").code


def test_a_folder_that_is_not_there_is_told(shell: Shell) -> None:
    """Before anything is exported."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d1").code

    refused = shell("export", "--output", "no/such/folder/x.jsonl")

    assert 6 == refused.code
    assert "cannot be written" in refused.err


def test_a_folder_is_no_file_to_write(shell: Shell) -> None:
    """It is said in one line, and nothing is left in it or beside it."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d1").code
    (shell.folder / "there").mkdir()
    before = sorted(shell.folder.rglob("*"))

    refused = shell("export", "--output", "there")

    assert (6, "Error: 'there' is a folder; name a file in it\n") == (refused.code, refused.err)
    assert before == sorted(shell.folder.rglob("*"))


@pytest.mark.slow
def test_an_export_that_is_killed_leaves_no_file_of_that_name(shell: Shell) -> None:
    """Through a pipe it leaves one that is told to be cut off."""
    shell.interrupted("i1")

    for _ in shell.killed_at_each("export", "--output", "runs.jsonl"):
        assert not (shell.folder / "runs.jsonl").exists()

    path = shell.startup(
        """
        import os, signal
        from agentkit.state.upkeep.lines import ExportWriter

        def end(self):
            import sys
            sys.stdout.buffer.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        ExportWriter.end = end
        """
    )
    cut = shell("export", PYTHONPATH=path)
    (shell.folder / "cut.jsonl").write_text(cut.out)
    read = shell("import", "cut.jsonl", "--store", "sqlite:///b.db")
    assert -signal.SIGKILL == cut.code
    assert 1 == read.code
    assert "cut off" in read.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("import", "nowhere.jsonl"), 2, "cannot be read"),
        (("import", "agents.py"), 1, "does not begin as an export"),
        (("export",), 6, "no store"),
        (("export", "--json"), 2, "--output"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    arguments: tuple[str, ...], code: int, says: str, shell: Shell
) -> None:
    """With the exit code of its kind."""
    refused = shell(*arguments)

    assert code == refused.code, refused
    assert says in refused.err + refused.out
    assert "Traceback" not in refused.err
