"""What reaches the terminal: nothing that a model, a tool or a user wrote can act on it."""

import json
import os
import pty
import shlex
import subprocess
import sys
import time
import unicodedata

import pytest
from click.testing import CliRunner

from agentkit.cli.app import cli
from agentkit.cli.output import escape, shorten
from agentkit.cli.questions import asked_lines
from agentkit.core.contracts.types import Question
from tests.cli.kit import Shell
from tests.docs.cli_page import commands

COMMANDS = dict(commands(cli))
NASTY = (
    "\x1b[31mred\x1b]0;title\x07 \x9b2J \x00 \r over \u202eevil\u2069 \u2028 \ud800 [bold]x[/bold]"
)

AGENT = f"""
from agents import *

NASTY = {NASTY!r}

@tool(side_effecting=False)
async def echo(text: str) -> str:
    \"\"\"Echo.\"\"\"
    return NASTY + text

def say(messages):
    if not any(message.role == "assistant" for message in messages):
        return Turn(NASTY, tool_calls=(ToolCall("c", "echo", {{"text": NASTY}}),
                                       ToolCall("d", NASTY, {{}})))
    return Turn(NASTY)

agent = Agent("nasty", FakeLLM(say), cognition=ReActCognition([echo]))
"""


UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
IGNORABLE = {
    *{0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0},
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
}


def _is_harmless(text: str) -> bool:
    """No control character but tab and line feed, and nothing that cannot be seen."""
    return not any(
        (unicodedata.category(c) in UNSEEN and c not in "\t\n ") or ord(c) in IGNORABLE
        for c in text
    )


def test_escape_leaves_nothing_that_acts_or_is_not_seen() -> None:
    """Every code point of the first plane, those for tags and variants, and lone surrogates come
    out printable as UTF-8, each as another text.
    """
    codes = [*range(0x10000), *range(0xE0000, 0xE0200)]

    shown = [escape(chr(code)) for code in codes]

    assert all(_is_harmless(out) for out in shown)
    assert all(out.encode() for out in shown)
    assert len(codes) == len(set(shown))
    assert "\\U000e0041" == escape("\U000e0041")
    assert "plain, \u00fc, \U0001f600\n\tkept" == escape("plain, \u00fc, \U0001f600\n\tkept")


@pytest.mark.parametrize(
    "hidden",
    [*"\u200b\u200c\u200d\u2060\u00ad\u034f\u3164\ufe0f\u115f\u2800\u00a0\u3000", "\U000e0100"],
    ids=ascii,
)
def test_what_cannot_be_seen_makes_two_texts_look_different(hidden: str) -> None:
    """Joiners, soft hyphens, fillers, variation selectors and foreign blanks are shown escaped."""
    shown = escape(f"INV{hidden}7")

    assert ascii(hidden)[1:-1] == shown[3:-1]


def test_shorten_gives_one_line() -> None:
    """White space of ASCII becomes one space, all other is shown; what is cut off ends in an
    ellipsis.
    """
    assert "a b\\u2028c" == shorten("a\n\r b\u2028c")
    assert "aaa…" == shorten("a" * 9, 4)


def test_choices_are_shown_with_all_their_blanks() -> None:
    """Two choices that differ in their blanks only are shown as two."""
    schema = '{"enum":["a  b","a b"]}'
    asked = Question("q1", "input", "ask", "ask", "{}", "", ("answer",), "Which?", schema=schema)

    lines = list(asked_lines(asked, title="q1"))

    assert f"  answers: answer {schema}" in lines


def test_hostile_text_never_acts_on_the_terminal(shell: Shell) -> None:
    """Escape sequences, bidi marks, NUL and lone surrogates in answers, arguments, tool names,
    results and the task: every command shows them escaped, and markup is shown as it was written.
    """
    (shell.folder / "nasty.py").write_text(AGENT)
    task = NASTY.replace("\x00", "").replace("\ud800", "")
    agent = ["nasty:agent", task, "--run-id", "r1"]

    outputs = [shell("run", *agent), shell("show", "r1"), shell("runs"), shell("resume", "r1")]

    for done in outputs:
        assert 0 == done.code, done
        assert _is_harmless(done.out + done.err)
    assert "\\x1b[31mred" in outputs[0].out
    assert "[bold]x[/bold]" in outputs[0].out
    assert "[bold]x[/bold]" in outputs[1].out
    for command in (["run", *agent, "--json"], ["show", "r1", "--json"], ["runs", "--json"]):
        done = shell(*command)
        assert 0 == done.code
        assert done.out.isascii()
        assert _is_harmless(done.out)
        assert json.loads(done.out)


def _on_a_terminal(shell: Shell, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "agentkit", *arguments]
    own = {**shell.environment, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        command, cwd=shell.folder, env=own, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    written = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            part = os.read(master, 65_536)
        except OSError:  # the other end is closed
            break
        written += part
    os.close(master)
    assert 0 == process.wait(), written
    return written.decode()


def test_no_color_is_honoured(shell: Shell) -> None:
    """Headings are bold on a terminal; with `NO_COLOR` there is no colour; a pipe gets text."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1")
    environment = {name: "" for name in ("NO_COLOR", "FORCE_COLOR") if name in os.environ}

    styled = _on_a_terminal(shell, "runs", **environment)
    plain = _on_a_terminal(shell, "runs", NO_COLOR="1")
    piped = shell("runs").out

    assert "\x1b[" in styled
    assert not any(f"\x1b[3{digit}" in plain for digit in range(8))
    assert "\x1b" not in piped


def test_a_warning_is_one_line(shell: Shell) -> None:
    """A changed definition is told in one line, without a file name or source line."""
    shell.interrupted()
    agents = shell.folder / "agents.py"
    agents.write_text(agents.read_text().replace('"Look.", cognition', '"Look well.", cognition'))

    done = shell("resume", "r1")

    assert 0 == done.code
    warnings = [line for line in done.err.splitlines() if "changed since" in line]
    assert 1 == len(warnings)
    assert warnings[0].startswith("Warning: run 'r1'")
    assert "warnings.warn" not in done.err
    assert ".py" not in warnings[0]


def test_every_help_has_an_example_and_the_exit_codes() -> None:
    """`--help` of each command shows how it is used; the group's lists the exit codes."""
    runner = CliRunner()

    whole = runner.invoke(cli, ["--help"])
    parts = {name: runner.invoke(cli, [*name.split(), "--help"]) for name in COMMANDS}

    assert "Exit codes: 0 ok" in whole.output
    assert {"run", "resume", "runs", "show", "status", "doctor", "demo"} < set(parts)
    for name, shown in [*parts.items(), ("", whole)]:
        assert 0 == shown.exit_code
        examples = shown.output.partition("  Example:\n")[2]
        assert examples.startswith(f"    agentkit {name}"), shown.output
        assert "\\b" not in shown.output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_examples_of_help_are_accepted(name: str) -> None:
    """Each example line parses: its command, arguments and options exist."""
    text = COMMANDS[name].epilog or ""
    lines = [
        line.strip()
        for line in text.partition("Example:")[2].splitlines()
        if line.strip().startswith("agentkit ")
    ]

    assert lines
    for line in lines:
        words = shlex.split(line)
        first = 1 + len(name.split())
        assert name == " ".join(words[1:first])
        context = COMMANDS[name].make_context(name, words[first:])
        assert {} != context.params


def test_version_is_one_line_and_loads_nothing_heavy(shell: Shell) -> None:
    """No SDK, driver, pydantic, rich or click is loaded to say which version this is."""
    counting = shell.startup(
        """
        import atexit, sys

        def tell():
            heavy = {"anthropic", "apsw", "asyncio", "click", "openai", "pydantic", "rich"}
            sys.stderr.write(" ".join(sorted(heavy & set(sys.modules))))

        atexit.register(tell)
        """
    )

    done = shell("--version", PYTHONPATH=counting)

    assert (0, "") == (done.code, done.err)
    assert done.out.startswith("agentkit ")
    assert 1 == len(done.out.splitlines())
