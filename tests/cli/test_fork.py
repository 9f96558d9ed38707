"""`agentkit fork`: what it makes, tells and refuses."""

import pytest

from tests.cli.kit import Shell


def _finished(shell: Shell, run: str = "r1") -> None:
    """A run of one step: it looks, then it answers what it saw."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", run).code


def test_a_fork_prints_its_id_and_is_carried_on_with_another_result(shell: Shell) -> None:
    """The answer alone goes to standard output; the agent is the recorded one."""
    _finished(shell)

    made = shell("fork", "r1", "--from", "1", "--as", "r2", "--edit", "1.0=nothing at all")
    went_on = shell("resume", "r2")

    assert (0, "r2\n") == (made.code, made.out)
    assert "agentkit resume r2" in made.err
    assert (0, "It is nothing at all\n") == (went_on.code, went_on.out)
    assert "<looking>" not in went_on.err


def test_show_and_runs_tell_where_a_fork_came_from(shell: Shell) -> None:
    """Its own usage apart from what was paid before it; the edit and the message in its place."""
    _finished(shell)
    shell("fork", "r1", "--from", "latest", "--as", "r2", "--edit", "1.0=x", "--message", "Well?")

    told = shell("show", "r2").out
    shown = shell("show", "r2", "--json").json
    listed = {run["run"]: run for run in shell("runs", "--json").json}

    assert "fork    from r1 at version 1 by command line; 1.0 is now: x" in told
    assert "the user adds: Well?" in told
    assert "usage   0 answers, 0 tokens in" in told
    assert "forked  from r1 at version 1, where 1 answers and 15 tokens had been paid" in told
    assert told.index("step    version 1") < told.index("fork    from r1")
    assert {"run": "r1", "version": 1} == shown["forked_from"] == listed["r2"]["forked_from"]
    assert (0, 1) == (shown["usage"]["requests"], shown["usage_before_fork"]["requests"])
    assert listed["r1"]["forked_from"] is None
    assert "ready" == listed["r2"]["status"]


def test_the_fork_of_a_waiting_run_says_what_it_waits_for(shell: Shell) -> None:
    """Also as JSON; the effect that may have happened is not repeated."""
    question = shell.suspended()

    made = shell("fork", "r1", "--from", "1", "--json")
    again = shell("fork", "r1", "--from", "1")

    assert [question] == [one["id"] for one in made.json["questions"]]
    assert ("r1", 1) == (made.json["parent"], made.json["version"])
    assert f"--answer {question}=" in again.err
    ended = shell("resume", made.json["run_id"], "--answer", f"{question}=done:it was sent")
    assert (0, "Done: it was sent\n") == (ended.code, ended.out)
    assert "a\n" == (shell.folder / "sent").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nobody", "--from", "1"), 3, "does not exist"),
        (("r1", "--from", "7"), 3, "it has 1"),
        (("r1", "--from", "1", "--as", "r1"), 4, "exists already"),
        (("r1", "--from", "1", "--as", ""), 2, "non-empty"),
        (("r1", "--from", "x"), 2, "version number"),
        (("r1", "--from", "1", "--edit", "1.0"), 2, "must look like"),
        (("r1", "--from", "1", "--edit", "1=x"), 2, "must look like"),
        (("r1", "--from", "1", "--edit", "1.0=x", "--edit", "1.0=y"), 2, "each call once"),
        (("r1", "--from", "1", "--edit", "2.0=x"), 2, "no call of the last turn"),
        (("r1", "--from", "1", "--edit", "task=Other."), 2, "task cannot be edited"),
        (("r1", "--from", "1", "--message", " "), 2, "empty"),
        (("r1", "--from", "1", "--tenant", "acme"), 3, "does not exist"),
        (("r1",), 2, "--from"),
    ],
)
def test_what_cannot_be_forked_is_refused_in_one_line(
    arguments: tuple[str, ...], code: int, says: str, shell: Shell
) -> None:
    """With the exit code of its kind; nothing is made."""
    _finished(shell)

    refused = shell("fork", *arguments)

    assert code == refused.code, refused
    assert says in refused.err
    assert "Traceback" not in refused.err
    assert ["r1"] == [run["run"] for run in shell("runs", "--json").json]


def test_no_store_is_made_for_a_fork(shell: Shell) -> None:
    """There is nothing in it to be forked."""
    refused = shell("fork", "r1", "--from", "1", "--json")

    assert (6, "StoreUnreachable") == (refused.code, refused.json["error"])
    assert not (shell.folder / "runs.db").exists()
