"""The fixture as users have it: in a pytest of its own, with its usual companions."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import agentkit
from tests.architecture.source import ROOT

SOURCES = Path(agentkit.__file__).parents[1]

TESTS = '''
import asyncio

import pytest

from agentkit import Agent, ReActCognition, ToolCall, tool
from agentkit.core.testing import FakeLLM, Turn
from agentkit.testing.crashtest import note_effect

TURNS = [Turn(tool_calls=(ToolCall("c", "act", {"item": "a"}),)), Turn("Done.")]


@tool(side_effecting=True, idempotent=True)
async def act(item: str) -> str:
    """Act."""
    note_effect()
    return item


@tool(side_effecting=False)
async def look(item: str) -> str:
    """Look."""
    return item


careless = Agent("careless", cognition=ReActCognition([act]))


def make() -> Agent:
    turns = [Turn(tool_calls=(ToolCall("c", "look", {"item": "a"}),)), Turn("Done.")]
    return Agent("made", FakeLLM.script(turns), cognition=ReActCognition([look]))


def test_one_that_is_made(crash_everywhere):
    report = crash_everywhere(make, borders=["model:after"])
    report.assert_safe(in_doubt=False)
    assert report.kills == report.tested == 2


async def test_in_a_loop(crash_everywhere):
    report = await asyncio.to_thread(crash_everywhere, make, at="model:after@2")
    assert report.safe


def test_one_that_doubles(crash_everywhere):
    crash_everywhere(careless, model=TURNS, at="tool:after:act@1").assert_safe()
'''


@pytest.mark.slow
def test_it_finds_agents_of_test_files_under_xdist_and_asyncio(tmp_path: Path) -> None:
    """Workers import the test file by its path; the report of what fails is in pytest's own."""
    checks = tmp_path / "checks"  # on nobody's path
    checks.mkdir()
    (checks / "test_mine.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error\naddopts = --import-mode=importlib\n"
    )
    done = _pytest(tmp_path, "-n", "2", "-q", "-c", "../pytest.ini", "../checks")

    assert "1 failed, 2 passed" in done, done
    assert "crash_everywhere(…, at='tool:after:act@1')" in done
    assert "doubled: act, killed at tool:after:act@1" in done
    assert "def assert_safe" not in done


def test_an_installation_brings_the_plugin() -> None:
    """The entry point that pytest looks for names a module with the fixture."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [module] = project["entry-points"]["pytest11"].values()

    assert "crash_everywhere" in vars(import_module(module))


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    """Pytest imports it at every start of everybody's tests."""
    program = (
        "import pytest, sys; before = set(sys.modules)\n"
        "import agentkit.testing.pytest_plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if 'agentkit' not in name))\n"
        "print(sorted(name for name in sys.modules if name.startswith('agentkit')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert [
        "[]",
        "['agentkit', 'agentkit.testing', 'agentkit.testing.pytest_plugin']",
    ] == done.stdout.splitlines()


def _pytest(folder: Path, *arguments: str) -> str:
    """Run pytest there as an installation would: with an entry point, and no `-p`."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    installed = folder / "site" / "shown-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shown\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "[pytest11]\nagentkit = agentkit.testing.pytest_plugin\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=elsewhere,
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "PYTHONPATH": f"{installed.parent}{os.pathsep}{SOURCES}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.stdout + done.stderr
