"""The command line under test."""

from pathlib import Path

import pytest

from tests.cli.kit import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """`agentkit` as a command, in an empty folder."""
    return Shell(tmp_path)
