"""A fork server with both SDKs loaded, and no certificates read in this process either."""

from collections.abc import Iterator

import pytest

from agentkit.testing.crash import ForkServer
from tests.http.kit import NO_CERTIFICATES, load_sdks
from tests.http.workers import WORK


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Forks workers that talk HTTP."""
    with ForkServer(WORK) as server:
        yield server


@pytest.fixture(autouse=True)
def _loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are made without reading what the machine trusts, and with their SDKs loaded."""
    load_sdks()
    for name, value in NO_CERTIFICATES.items():
        monkeypatch.setenv(name, value)
