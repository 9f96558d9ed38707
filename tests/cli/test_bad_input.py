"""Bad input: one paragraph, the right exit code, and nothing is written."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Done, Shell

LOOKERS = (["show", "r1"], ["runs"], ["status"])


def _refused(done: Done, code: int, *words: str) -> None:
    """One paragraph on standard error, nothing on standard output."""
    assert code == done.code, done
    assert "" == done.out
    assert 1 == len(done.err.strip().splitlines()), done.err
    assert done.err.startswith("Error: ")
    for word in words:
        assert word in done.err


def _files(shell: Shell) -> dict[str, bytes]:
    """Everything in the folder but what Python made of our agents."""
    return {
        str(path.relative_to(shell.folder)): path.read_bytes()
        for path in shell.folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("command", [["resume", "r1", "--agent", "agents:talker"], *LOOKERS])
def test_a_store_that_is_not_there_is_not_made_by_looking(shell: Shell, command: list[str]) -> None:
    """Exit code 6 and the way to make one; no file appears."""
    before = _files(shell)

    done = shell(*command)

    _refused(done, 6, "there is no store", "runs.db", "agentkit run")
    assert before == _files(shell)


@pytest.mark.parametrize("command", [["resume", "r1", "--agent", "agents:talker"], *LOOKERS])
def test_nothing_is_found_in_memory(shell: Shell, command: list[str]) -> None:
    """Exit code 2 and why, instead of an empty list; `run` warns that nothing will be found."""
    _refused(shell(*command, "--store", "memory://"), 2, "gone with it", "sqlite:///runs.db")

    ran = shell("run", "agents:talker", "Talk.", "--store", "memory://")
    assert (0, "hello\n") == (ran.code, ran.out)
    assert "Warning: memory:// is gone when this command ends" in ran.err


def test_an_unknown_run_is_not_found(shell: Shell) -> None:
    """`resume` and `show` leave with 3 and name the run."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "other").code

    _refused(shell("resume", "r1", "--agent", "agents:talker"), 3, "'r1'")
    _refused(shell("resume", "r1"), 3, "'r1'")
    _refused(shell("show", "r1"), 3, "'r1'")


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "sqlite://runs.db",
        "sqlite:///",
        "mysql://localhost/x",
        "postgresql://ann:s3cr3t@localhost:port/x",
        "sqlite:///runs.db?mode=ro",
    ],
)
def test_a_malformed_store_url_is_a_usage_error(shell: Shell, url: str) -> None:
    """Exit code 2 from every command; a password in it is not shown; no file appears."""
    before = _files(shell)

    for command in (["run", "agents:talker", "Talk."], ["runs"]):
        done = shell(*command, "--store", url)

        _refused(done, 2)
        assert "s3cr3t" not in done.err
    assert before == _files(shell)


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE pets (name TEXT)")


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 0x41674B74")
        database.execute("PRAGMA user_version = 999")
        database.execute("CREATE TABLE agentkit_run (run TEXT)")


def _text(path: Path) -> None:
    path.write_text("Dear diary, this is not a database at all. " * 40)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (_foreign, "another program"),
        (_newer, "Upgrade arc-agentkit"),
        (_text, "not a SQLite database"),
        (_folder, "is a folder"),
    ],
)
def test_a_file_that_is_no_store_of_ours_is_left_alone(
    shell: Shell, make: object, word: str
) -> None:
    """Foreign, newer or unreadable: exit code 6 from every command, and not one byte changes."""
    assert callable(make)
    make(shell.folder / "runs.db")
    before = _files(shell)

    for command in (["run", "agents:talker", "Talk."], ["resume", "r1"], *LOOKERS):
        _refused(shell(*command), 6, word, "runs.db")
        assert before == _files(shell)


def test_a_missing_sdk_names_the_extra(shell: Shell) -> None:
    """Exit code 2 and the command that installs it; no file appears."""
    path = shell.without("anthropic", "openai")
    before = _files(shell)

    for model, extra in (("anthropic:claude-x", "anthropic"), ("openai:gpt-x", "openai")):
        done = shell("run", "agents:talker", "Talk.", "--model", model, PYTHONPATH=path)

        _refused(done, 2, f'pip install "arc-agentkit[{extra}]"')
    assert before == _files(shell)


def test_a_missing_key_names_its_variable(shell: Shell) -> None:
    """Whether the model comes from the command line or from the agent: exit code 2, no file."""
    (shell.folder / "claude.py").write_text(
        "from agentkit import Agent\nagent = Agent('c', 'anthropic:claude-x', 'Talk.')\n"
    )
    before = _files(shell)

    by_option = shell("run", "agents:talker", "Talk.", "--model", "openai:gpt-x")
    by_agent = shell("run", "claude:agent", "Talk.")

    _refused(by_option, 2, "OPENAI_API_KEY")
    _refused(by_agent, 2, "ANTHROPIC_API_KEY")
    assert before == _files(shell)


@pytest.mark.parametrize(
    ("reference", "word"),
    [
        ("agents", "package.module:variable"),
        (":agent", "package.module:variable"),
        ("no_such_module:agent", "no_such_module"),
        ("agents:no_such_agent", "nothing of that name"),
        ("agents:lookr", "agents has looker, sender, talker"),
        ("agents.py:looker", "name the module: agents:looker"),
        ("./shop/agents.py:looker", "name the module: shop.agents:looker"),
        ("no_such_module:agent", "the current folder and on PYTHONPATH"),
        ("agents:nobody", "holds 'int'"),
        ("broken:agent", "SyntaxError"),
        ("leaves:agent", "SystemExit"),
    ],
)
def test_a_reference_without_an_agent_is_a_usage_error(
    shell: Shell, reference: str, word: str
) -> None:
    """Exit code 2 and what was found; no file appears."""
    (shell.folder / "broken.py").write_text("def (:\n")
    (shell.folder / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    before = _files(shell)

    done = shell("run", reference, "Talk.")

    _refused(done, 2, word)
    assert before == _files(shell)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resume"], "Missing argument 'RUN'."),
        (["runs", "--limit", "0"], "Invalid value for '--limit': 0 is not in the range"),
        (["rusn"], "No such command 'rusn'."),
    ],
)
def test_a_refused_command_line_is_a_document_where_one_was_asked_for(
    shell: Shell, words: list[str], message: str
) -> None:
    """`--json` holds for what the parser refuses: exit code 2, one object, nothing beside it."""
    done = shell(*words, "--json")

    assert (2, "") == (done.code, done.err)
    assert {"error", "message", "run", "facts"} == done.json.keys()
    assert done.json["message"].startswith(message)


@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"]])
def test_output_that_finds_no_room_is_an_error_in_one_line(shell: Shell, words: list[str]) -> None:
    """A full disk behind standard output: exit code 1 and no traceback."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1")

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agentkit", *words],
            cwd=shell.folder,
            env=shell.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    _refused(Done(done.returncode, "", done.stderr), 1, "No space left on device")


@pytest.mark.parametrize("run_id", ["", "x" * 513, "a\nb", "a\x1b[31mb", "a\x7f", "a\u2028b"])
def test_a_run_id_that_can_name_no_run_is_a_usage_error(shell: Shell, run_id: str) -> None:
    """Empty, too long or with control characters: exit code 2, shown escaped, no file."""
    before = _files(shell)

    for command in (
        ["run", "agents:talker", "Talk.", "--run-id", run_id],
        ["resume", run_id, "--agent", "agents:talker"],
        ["show", run_id],
    ):
        done = shell(*command)

        _refused(done, 2, "run id")
        assert "\x1b" not in done.err
    assert before == _files(shell)


def test_a_tenant_with_control_characters_is_a_usage_error(shell: Shell) -> None:
    """From every command that takes one; no file appears."""
    before = _files(shell)

    for command in (["run", "agents:talker", "Talk."], ["resume", "r1"], *LOOKERS):
        _refused(shell(*command, "--tenant", "a\nb"), 2, "scope part")
    assert before == _files(shell)


def test_an_empty_task_is_a_usage_error(shell: Shell) -> None:
    """There is nothing to do; no file appears."""
    before = _files(shell)

    _refused(shell("run", "agents:talker", "  "), 2, "task")
    assert before == _files(shell)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["walk"],
        ["runs", "--status", "sleeping"],
        ["runs", "--limit", "0"],
        ["resume", "r1", "--wait", "-1"],
    ],
)
def test_a_wrong_command_line_is_a_usage_error(shell: Shell, arguments: list[str]) -> None:
    """Exit code 2 and how the command is used."""
    done = shell(*arguments)

    assert 2 == done.code
    assert "Usage: agentkit" in done.err
    assert "" == done.out


def test_an_error_is_one_json_object_with_json(shell: Shell) -> None:
    """Standard output holds the error's name, message, run and facts; the exit code is the same."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "other").code

    done = shell("show", "r1", "--json")

    assert 3 == done.code
    assert "" == done.err
    told = json.loads(done.out)
    assert ("RunNotFound", "r1") == (told["error"], told["run"])
    assert "'r1'" in told["message"]
