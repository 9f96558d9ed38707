"""The stores that every contract check runs on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore


@pytest.fixture
def clock() -> FakeClock:
    """What the store under test judges leases by."""
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[JournalPort]:
    """A new, empty store."""
    store: JournalPort
    if request.param == "memory":
        store = InMemoryCheckpointStore(clock=clock)
    else:
        store = SqliteCheckpointStore(tmp_path / "runs.db", clock=clock)
    yield store
    await store.aclose()


@pytest.fixture
async def sqlite(clock: FakeClock, tmp_path: Path) -> AsyncIterator[SqliteCheckpointStore]:
    """A new, empty SQLite store in `tmp_path / "runs.db"`."""
    store = SqliteCheckpointStore(tmp_path / "runs.db", clock=clock)
    yield store
    await store.aclose()
