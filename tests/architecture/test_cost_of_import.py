"""Importing the package and asking for its version load nothing that is slow or optional."""

import json
import subprocess
import sys

import pytest

SDKS = {"anthropic", "openai"}
HEAVY = {*SDKS, "apsw", "docstring_parser", "httpx", "httpx2", "psycopg", "pydantic", "rich"}

IMPORT = "import agentkit"
VERSION = """
import runpy, sys
sys.argv = ["agentkit", "--version"]
runpy.run_module("agentkit", run_name="__main__")
"""
ALL_NAMES = """
import agentkit
for name in agentkit.__all__:
    getattr(agentkit, name)
"""


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        pytest.param(IMPORT, {*HEAVY, "click", "asyncio"}, id="import"),
        pytest.param(VERSION, {*HEAVY, "click", "asyncio"}, id="version"),
        pytest.param(
            ALL_NAMES,
            {*SDKS, "apsw", "click", "httpx", "httpx2", "psycopg", "rich"},
            id="all-names",
        ),
    ],
)
def test_heavy_modules_stay_out(program: str, heavy: set[str]) -> None:
    """SDKs, drivers and slow modules are loaded where they are used, not before."""
    assert set() == heavy & _loaded_by(program)


def _loaded_by(program: str) -> set[str]:
    tail = "\nimport json, sys\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program + tail], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr))
