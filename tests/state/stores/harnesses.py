"""How the conformance kit comes to each of our stores: one place, one line for each name."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from agentkit.core.contracts.ports import CheckpointPort, ClockPort, JournalPort
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
    open_store,
)
from agentkit.testing import FaultyStore
from agentkit.testing.conformance import Capability, Harness

_IN_MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)
"""A disk that needs no waiting for: what survives a loss of power is tested apart."""


class MemoryHarness(Harness):
    """A memory store is an object: there is no second handle on it."""

    name = "memory"
    clock = "held"
    lacks: Mapping[Capability, str] = {"handles": "another object is another store"}

    async def new_place(self) -> str:
        """Any; each object is its own."""
        return "memory://"

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object."""
        return InMemoryCheckpointStore(clock=clock)


class SqliteHarness(Harness):
    """A file in a folder of its own for each place."""

    name = "sqlite"
    clock = "held"
    opener = "agentkit.state.checkpoints.adapters:open_store"

    def __init__(self) -> None:
        self._folders: dict[str, tempfile.TemporaryDirectory[str]] = {}

    async def new_place(self) -> str:
        """A file that does not exist yet."""
        folder = tempfile.TemporaryDirectory(prefix="conformance-", dir=_IN_MEMORY)
        place = f"sqlite:///{Path(folder.name) / 'runs.db'}"
        self._folders[place] = folder
        return place

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object on the file."""
        return SqliteCheckpointStore(place.removeprefix("sqlite:///"), clock=clock)

    async def remove(self, place: str) -> None:
        """Remove the folder."""
        self._folders.pop(place).cleanup()


class WrappedHarness(Harness):
    """The stores of another harness, each within a wrapper."""

    def __init__(self, inner: Harness, wrap: Callable[[JournalPort], JournalPort]) -> None:
        self._inner = inner
        self._wrap = wrap
        self.name = f"{wrap.__name__} around {inner.name}"
        self.clock = inner.clock
        self.opener = inner.opener
        self.lacks = inner.lacks
        self.secrets = inner.secrets

    async def new_place(self) -> str:
        """As the inner one."""
        return await self._inner.new_place()

    def open(self, place: str, clock: ClockPort) -> CheckpointPort:
        """Wrapped."""
        opened = self._inner.open(place, clock)
        assert isinstance(opened, JournalPort)
        return self._wrap(opened)

    async def remove(self, place: str) -> None:
        """As the inner one."""
        await self._inner.remove(place)


HARNESSES: dict[str, Callable[[], Harness]] = {
    "memory": MemoryHarness,
    "sqlite": SqliteHarness,
    "wrapped memory": lambda: WrappedHarness(MemoryHarness(), StoreWrapper),
    "wrapped sqlite": lambda: WrappedHarness(SqliteHarness(), StoreWrapper),
    "faultless memory": lambda: WrappedHarness(MemoryHarness(), FaultyStore),
    "faultless sqlite": lambda: WrappedHarness(SqliteHarness(), FaultyStore),
}
"""By the name of the store."""

memory, sqlite = HARNESSES["memory"], HARNESSES["sqlite"]
_ = open_store
