"""`tool settle` and `unpark`: saying what happened without driving the run."""

import os
import shlex

import pytest

from tests.cli.kit import Shell, hear

GOES_ON = "it can go on: a worker or agentkit resume takes it up"


@pytest.fixture
def doubtful(shell: Shell) -> Shell:
    """Run r1 was killed while it was sending; nobody has looked at it since."""
    shell.touch("hold-send")
    worker = shell.start("run", "agents:sender", "Send a.", "--run-id", "r1")
    hear(worker, "sending")
    worker.kill()
    worker.communicate()
    (shell.folder / "hold-send").unlink()
    return shell


def sent(shell: Shell) -> int:
    """How often it was sent."""
    return len((shell.folder / "sent").read_text().splitlines())


def test_what_happened_is_said_before_anybody_asks(doubtful: Shell) -> None:
    """The next worker goes on from the word, which the timeline shows with who and what."""
    shell = doubtful

    said = shell("tool", "settle", "r1", "1.0", "--done", '{"id": 7}', "--by", "ann")
    done = shell("resume", "r1")
    shown = shell("show", "r1")

    assert (0, "recorded: done. It goes on with: agentkit resume r1\n") == (said.code, said.out)
    assert (0, 'Done: {"id":7}\n') == (done.code, done.out)
    assert 1 == sent(shell)
    assert 'told    1.0 attempt 1 ok by ann: {"id":7}' in shown.out


def test_what_somebody_has_had_made_again_is_in_doubt_no_more(doubtful: Shell) -> None:
    """Until the next attempt has begun, `show` tells who said so."""
    before = doubtful("show", "r1").out
    doubtful("tool", "settle", "r1", "1.0", "--run-again", "--by", "ann")
    after = doubtful("show", "r1")

    assert "in doubt 1.0: send" in before
    assert "in doubt 1.0: send" not in after.out
    assert "told    1.0 attempt 1 retrying by ann\n" in after.out


def test_what_is_told_to_type_next_works_as_it_stands(shell: Shell) -> None:
    """Store, tenant and agent that were given as options are in the command; it can be pasted."""
    (shell.folder / "elsewhere").mkdir()
    (shell.folder / "agents.py").rename(shell.folder / "elsewhere" / "agents.py")
    shell.environment["PYTHONPATH"] += f"{os.pathsep}{shell.folder / 'elsewhere'}"
    given = ("--store", "sqlite:///other.db", "--tenant", "acme")
    shell.touch("hold-send")
    worker = shell.start("run", "agents:sender", "Send a.", "--run-id", "r 1", *given)
    hear(worker, "sending")
    worker.kill()
    worker.communicate()
    (shell.folder / "hold-send").unlink()

    asked = shell("resume", "r 1", "--agent", "agents:sender", *given)
    [told] = [line for line in asked.err.splitlines() if line.startswith("suspended: agentkit ")]
    words = shlex.split(told.removeprefix("suspended: agentkit ").replace("…", "skip"))
    skipped = shell(*words)
    forked = shell("fork", "r 1", "--from", "latest", *given)

    assert (5, 0) == (asked.code, skipped.code)
    assert ["resume", "r 1", *given, "--agent", "agents:sender"] == words[:-2]
    assert shlex.join(given) in forked.err.splitlines()[-1]


def test_an_open_question_is_answered(doubtful: Shell) -> None:
    """By the call's place or the question's id; what is decided stands."""
    shell = doubtful
    asked = shell("resume", "r1", "--json")
    [question] = asked.json["suspended"]["questions"]

    said = shell("tool", "settle", "r1", question["id"], "--run-again", "--why", "lost", "--json")
    other = shell("tool", "settle", "r1", question["id"], "--skip")
    done = shell("resume", "r1")

    assert (5, 0) == (asked.code, said.code)
    assert ("r1", "run_again") == (said.json["run"], said.json["answer"])
    assert 4 == other.code
    assert (0, "Done: sent a\n") == (done.code, done.out)
    assert 2 == sent(shell)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("r1", "1.0"), 2, "say exactly one of --done, --failed, --run-again and --skip"),
        (("r1", "1.0", "--skip", "--run-again"), 2, "say exactly one of"),
        (("r1", "3.1", "--skip"), 2, "no open call is named '3.1'; open calls: 1.0 (send)"),
        (("r2", "1.0", "--skip"), 3, "run 'r2' does not exist"),
        (("", "1.0", "--skip"), 2, "must be a non-empty string"),
    ],
)
def test_what_does_not_fit_is_told_in_one_paragraph(
    doubtful: Shell, words: tuple[str, ...], code: int, told: str
) -> None:
    """With its exit code, and nothing written."""
    before = doubtful("show", "r1", "--json").json

    said = doubtful("tool", "settle", *words)

    assert (code, "", 1) == (said.code, said.out, len(said.err.splitlines()))
    assert told in said.err
    assert before == doubtful("show", "r1", "--json").json


def test_a_parked_run_goes_on_once_it_is_unparked(shell: Shell) -> None:
    """Its status says who said so; unparking what is not parked is refused."""
    (shell.folder / "parks.py").write_text(
        "from agents import *\n"
        "once = ReActCognition([look], max_iterations=1)\n"
        "agent = Agent('looker', FakeLLM(think), cognition=once)"
    )
    (shell.folder / "goes.py").write_text(
        "from agents import *\n"
        "agent = Agent('looker', FakeLLM(think), cognition=ReActCognition([look]))"
    )
    parked = shell("run", "parks:agent", "Look.", "--run-id", "r1")

    said = shell("unpark", "r1", "--by", "ann", "--why", "it may take longer")
    runs = shell("runs", "--json").json
    again = shell("unpark", "r1")
    done = shell("run", "goes:agent", "Look.", "--run-id", "r1")

    assert (5, 0) == (parked.code, said.code)
    assert [("ready", GOES_ON)] == [(run["status"], run["why"]) for run in runs]
    assert (2, True) == (again.code, "is not parked: it is running" in again.err)
    assert (0, "It is value of a\n") == (done.code, done.out)
    assert "unparked by ann it may take longer" in shell("show", "r1").out
