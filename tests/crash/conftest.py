"""Servers that fork workers, started once for all tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.testing.crash import SCENARIO, Campaign, ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Forks workers of the crash harness's own scenario."""
    with ForkServer(SCENARIO) as server:
        yield server


@pytest.fixture(scope="module")
def successor() -> Iterator[ForkServer]:
    """A second one, for a worker beside the first."""
    with ForkServer(SCENARIO) as server:
        yield server


@pytest.fixture
def campaign(server: ForkServer, tmp_path: Path) -> Campaign:
    """Runs of three steps, each in a folder of its own."""
    return Campaign(server, tmp_path)
