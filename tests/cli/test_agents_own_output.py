"""Agents that print, and agents that are interrupted before their run is there."""

import subprocess
import sys

from tests.cli.kit import Shell

PRINTING = '''
from agentkit import Agent, ReActCognition, ToolCall, tool
from agentkit.core.testing import FakeLLM, Turn

print("imported")


@tool(side_effecting=False)
def look() -> str:
    """Look."""
    print("looked")
    return "seen"


def think(messages):
    answered = any(message.role == "assistant" for message in messages)
    return Turn("Done.") if answered else Turn(tool_calls=(ToolCall("1", "look"),))


agent = Agent("printing", FakeLLM(think), cognition=ReActCognition([look]))
'''

EARLY = '''
import signal

from agentkit import Agent
from agentkit.core.testing import FakeLLM


class Early(Agent):
    """Is interrupted when it is about to start."""

    def stream(self, *arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return super().stream(*arguments, **options)


agent = Early("early", FakeLLM("never"))
'''


def test_what_an_agent_prints_is_not_part_of_the_answer(shell: Shell) -> None:
    """Prints of its module and tools go to standard error, with `--json` and without."""
    (shell.folder / "printing.py").write_text(PRINTING)

    plain = shell("run", "printing:agent", "Look.", "--run-id", "r1")
    document = shell("run", "printing:agent", "Look.", "--run-id", "r2", "--json")
    resumed = shell("resume", "r2", "--json")

    assert (0, "Done.\n") == (plain.code, plain.out)
    assert "imported\nlooked\n" == document.err
    assert ["Done.", "Done."] == [document.json["output"], resumed.json["output"]]


def test_an_interruption_before_the_start_promises_no_run(shell: Shell) -> None:
    """Where nothing was recorded, nobody is told to resume it."""
    (shell.folder / "early.py").write_text(EARLY)

    done = shell("run", "early:agent", "Go.", "--run-id", "r1")

    *before, last = done.err.splitlines()
    assert (130, "interrupted") == (done.code, last)
    assert all(line.startswith("stopping: ") for line in before)
    assert shell("show", "r1").code in {3, 6}


def test_an_interruption_of_the_import_is_one(shell: Shell) -> None:
    """Also while an agent's module is loaded the exit code is 130."""
    (shell.folder / "endless.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")

    done = shell("run", "endless:agent", "Go.")

    assert (130, "interrupted\n") == (done.code, done.err)


def test_a_run_of_pythons_own_says_that_its_agent_must_be_named(shell: Shell) -> None:
    """A run that was not started from the command line records no reference."""
    program = "import agents; agents.talker.run_sync('Talk.', run_id='r1', store='runs.db')"
    subprocess.run([sys.executable, "-c", program], cwd=shell.folder, check=True)

    done = shell("resume", "r1")

    assert 2 == done.code
    assert "it was started from Python" in done.err
    assert "--agent module:variable" in done.err
    assert 0 == shell("resume", "r1", "--agent", "agents:talker").code
