"""`agentkit crashtest`, as a user types it."""

import json
import signal

import pytest

from tests.cli.kit import Shell, hear

SCRIPT = [
    {"content": "I send.", "tool_calls": [{"name": "send", "arguments": {"item": "a"}}]},
    {"content": "Sent."},
]

CHARGER = '''
from agentkit import Agent, ReActCognition, tool
from agentkit.testing.crashtest import note_effect


@tool(side_effecting=True, idempotent=True)
async def charge(item: str) -> str:
    """Charge."""
    note_effect("charge")
    return f"charged {item}"


agent = Agent("charger", "openai:gpt-5.1", "Charge.", cognition=ReActCognition([charge]))
'''


@pytest.fixture
def scripted(shell: Shell) -> Shell:
    """A folder with agents and scripts for two of them."""
    (shell.folder / "script.json").write_text(json.dumps(SCRIPT))
    (shell.folder / "charger.py").write_text(CHARGER)
    charge = json.dumps(SCRIPT).replace('"send"', '"charge"')
    (shell.folder / "charge.json").write_text(charge)
    return shell


def test_a_person_gets_a_table_and_one_line_that_says_it_all(scripted: Shell) -> None:
    """An agent that asks as it should is safe: exit code 0."""
    where = ("crashtest", "agents:sender", "Send a.", "--model", "script.json")
    done = scripted(*where, "--only-border", "tool", "--only-border", "effect")

    assert 0 == done.code, done
    header, row, _, advice, _, headline = done.out.splitlines()
    assert ["tool", "policy", "kills", "in", "flight"] == header.split()[:5]
    assert ["send", "ask", "3", "1", "0", "3", "in", "doubt"] == row.split()
    assert advice.startswith("send: side-effecting and not idempotent: 3 kills led to a question.")
    assert headline.startswith("agents:sender: safe · 3 kills in 5 runs, 3 of 19 places")


def test_a_doubled_tool_is_told_with_a_command_that_repeats_it(scripted: Shell) -> None:
    """Exit code 1; the command dies at that one place, and finds the same again."""
    where = ("crashtest", "charger:agent", "--model", "charge.json")
    done = scripted(*where, "--only-border", "tool:after")
    [replay] = [line for line in done.out.splitlines() if "replay: " in line]
    command = replay.partition("replay: agentkit ")[2]
    again = scripted(*command.split(), "--json")

    assert 1 == done.code == again.code
    assert "doubled: charge, killed at tool:after:charge@1" in done.out
    assert "crashtest charger:agent --model charge.json --at tool:after:charge@1" == command
    assert "hand ctx.idempotency_key on to it" in done.out
    assert 1 == again.json["kills"]
    assert ["doubled"] == [finding["verdict"] for finding in again.json["findings"]]


def test_json_has_the_documented_fields(scripted: Shell) -> None:
    """The form that the how-to describes; the agent's own prints do not get into it."""
    agents = scripted.folder / "agents.py"
    agents.write_text(f"print('hello')\n{agents.read_text()}")
    done = scripted(
        "crashtest", "agents:sender", "--model", "script.json", "--at", "model:after@2", "--json"
    )

    assert 0 == done.code, done
    expected = {
        "agent": "agents:sender",
        "task": "Do your work.",
        "kills": 1,
        "runs": 3,
        "borders": 19,
        "tested": 1,
        "findings": [],
        "notes": [],
        "kept": "",
        "version": 1,
        "safe": True,
    }
    assert expected == {name: done.json[name] for name in expected}
    assert 0 < done.json["seconds"]
    [send] = done.json["tools"]
    assert ("send", "ask", "untested") == (send["name"], send["policy"], send["verdict"])
    assert {"calls", "kills", "fewest_effects", "most_effects", "repeats", "in_doubt"} < set(send)


def test_a_recorded_run_gives_the_model_and_the_task(shell: Shell) -> None:
    """Its answers, word for word; the agent's real model is not asked. One that is not there: 3."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "r1").code
    agents = shell.folder / "agents.py"
    agents.write_text(agents.read_text().replace("Slow(FakeLLM(think))", '"openai:gpt-5.1"'))
    done = shell("crashtest", "agents:looker", "--record", "r1", "--at", "append:after@1", "--json")

    assert 0 == done.code, done
    assert "Look at a." == done.json["task"]
    assert (1, 1) == (done.json["kills"], done.json["tools"][0]["calls"])
    assert 3 == shell("crashtest", "agents:looker", "--record", "r2").code


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["agents:nobody"], 2, "must be an agentkit.Agent"),
        (["agents:sender", "--model", "none.json"], 2, "cannot be read"),
        (["agents:sender", "--model", "a", "--record", "b"], 2, "choose one"),
        (["agents:sender", "--record", "r1"], 6, "there is no store at"),
        (["charger:agent"], 2, "--model script.json"),
    ],
)
def test_a_slip_is_one_paragraph_and_a_code(
    scripted: Shell, arguments: list[str], code: int, says: str
) -> None:
    """As everywhere on the command line."""
    done = scripted("crashtest", *arguments)

    assert (code, "") == (done.code, done.out)
    assert done.err.startswith("Error: ")
    assert says in done.err
    assert "Traceback" not in done.err


def test_an_interruption_leaves_no_process_behind(shell: Shell) -> None:
    """SIGINT ends the test with 130, and the worker that hangs in a tool with it."""
    shell.touch("hold-tool")
    process = shell.start("crashtest", "agents:looker")
    hear(process, "looking")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)  # the pipe ends when the last worker does

    assert 130 == process.returncode
    assert b"interrupted" in err
    assert b"Traceback" not in err


def test_sigterm_between_the_kills_ends_it_too(shell: Shell) -> None:
    """Whatever its workers do at that moment."""
    process = shell.start("crashtest", "agents:looker", "--jobs", "2")
    for _ in range(4):
        hear(process, "looking")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)

    assert 130 == process.returncode
    assert b"Traceback" not in err
