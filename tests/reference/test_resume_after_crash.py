"""The reference page's snippet, taken from the page's own text, does what the page says."""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.reference

ANSWER = "Octopuses distribute cognition across their arms."
CLAUDE = re.compile(r"    llm = providers\.claude\(\n.*?\n    \)\n", re.DOTALL)
MEMORY = "port = InMemoryCheckpointStore()"
CRASH = "break  # simulate worker exit"


@pytest.fixture
def page(reference_dir: Path) -> str:
    """The text of the page."""
    return (reference_dir / "resume-after-crash.txt").read_text("utf-8")


def test_the_snippet_resumes_with_one_model_for_both_attempts(page: str, tmp_path: Path) -> None:
    """First reading: the script of one FakeLLM goes on where the first attempt left it."""
    program = _with_fake(page, at="module")

    printed = _run(program, tmp_path)

    assert _expected(ANSWER) == printed


def test_the_snippet_resumes_with_a_model_made_for_each_attempt(page: str, tmp_path: Path) -> None:
    """Second reading: the second attempt's script begins at its first turn, as in a new process.

    So the second attempt calls the tool again in its own next turn, and then answers.
    """
    program = _with_fake(page, at="build_ctx")

    printed = _run(program, tmp_path)

    assert _expected(ANSWER) == printed


def test_the_snippet_resumes_in_a_second_process_on_sqlite(page: str, tmp_path: Path) -> None:
    """With a durable store and a process that really ends, the page's promise is the same."""
    program = _on_sqlite(_with_fake(page, at="build_ctx"))
    first, second = _in_two_processes(program)

    died = _process(first, tmp_path)
    printed = _run(second, tmp_path)

    assert (1, "[crash after] iteration:1\n") == (died.returncode, died.stdout)
    assert f"[checkpoint] versions saved: [1]\n[resumed] {ANSWER!r}\n" == printed


def test_the_snippet_needs_no_other_line(page: str) -> None:
    """Nothing but the page's own substitution separates what runs here from what is printed."""
    snippet = _snippet(page)
    program = _with_fake(page, at="build_ctx")

    lines = [line for line in CLAUDE.sub("", snippet).splitlines() if line.strip()]
    missing = [line for line in lines if line not in program.splitlines()]

    assert [] == missing


def _expected(answer: str) -> str:
    return f"[crash after] iteration:1\n[checkpoint] versions saved: [1]\n[resumed] {answer!r}\n"


def _snippet(page: str) -> str:
    start = page.index('"""Requires ANTHROPIC_API_KEY')
    end = page.index("asyncio.run(main())", start) + len("asyncio.run(main())\n")
    snippet = page[start:end]
    ast.parse(snippet)
    return snippet


def _substitution(page: str) -> tuple[str, str]:
    """The page's imports for FakeLLM, and its statement that makes one."""
    start = page.index("from agentkit.core.contracts.types import ToolCall")
    end = page.index("])\n", start) + len("])\n")
    imports, statement = page[start:end].split("\n\n", 1)
    return imports + "\n", statement


def _with_fake(page: str, *, at: str) -> str:
    imports, statement = _substitution(page)
    snippet = _snippet(page)
    assert 1 == len(CLAUDE.findall(snippet))
    if at == "module":
        body = CLAUDE.sub("", snippet)
        return body.replace("\n\n@tool(", f"\n{imports}\n{statement}\n\n@tool(", 1)
    indented = textwrap.indent(statement, "    ")
    body = CLAUDE.sub(lambda _: indented, snippet)
    return body.replace("\n\n@tool(", f"\n{imports}\n\n@tool(", 1)


def _on_sqlite(program: str) -> str:
    assert MEMORY in program
    assert CRASH in program
    program = program.replace("InMemoryCheckpointStore()", 'SqliteCheckpointStore("runs.db")')
    program = program.replace("InMemoryCheckpointStore", "SqliteCheckpointStore")
    return program.replace(CRASH, "os._exit(1)").replace(
        'print(f"[crash after] {ev.text}")', 'print(f"[crash after] {ev.text}", flush=True)'
    )


def _in_two_processes(program: str) -> tuple[str, str]:
    """Attempt 1 alone, and everything but attempt 1."""
    start = program.index("    ctx = build_ctx(checkpointer, run_id)\n")
    end = program.index("    # NOT ``list_versions(run_id)``")
    second = program[:start] + "    agent = build_agent()\n\n" + program[end:]
    return program, second


def _process(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "snippet.py"
    script.write_text(program, "utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _run(program: str, folder: Path) -> str:
    ended = _process(program, folder)
    assert (0, "") == (ended.returncode, ended.stderr)
    return ended.stdout
